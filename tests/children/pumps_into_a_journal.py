"""Move descriptor 0, a pipe, into the journal in a folder, and tell each record on descriptor 1.

Usage: pumps_into_a_journal.py MODULE FOLDER STREAM [MASTER]. An event is the number, the length and
the bytes. With MASTER, the descriptor of a terminal, that is read through the pipe on descriptors 0
and MASTER + 1.
"""

import importlib.util
import os
import select
import struct
import sys

path, folder, stream, *terminal = sys.argv[1:]
spec = importlib.util.spec_from_file_location("journal", path)
assert spec is not None and spec.loader is not None
journals = importlib.util.module_from_spec(spec)
spec.loader.exec_module(journals)

journal = journals.Journal.open(folder, max_bytes=1 << 40, max_records=1 << 40)
source = int(terminal[0]) if terminal else 0
while True:
    select.select([source], [], [])
    try:
        if terminal:
            record = journals.take_terminal(journal, source, (0, source + 1), 1 << 16)
        else:
            record = journal.take(stream, 0, 1 << 16)
    except journals.EndOfStream:
        break
    if record is not None:
        os.write(1, struct.pack("<QQ", record.seq, record.length) + journal.read(record))
