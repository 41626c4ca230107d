"""Move descriptor 0, a pipe, into the journal in a folder, and tell each record on descriptor 1.

Usage: pumps_into_a_journal.py PACKAGE FOLDER STREAM [MASTER]. An event is the number, the length
and the bytes. With MASTER, the descriptor of a terminal, that is read through the pipe on
descriptors 0 and MASTER + 1.
"""

import os
import select
import struct
import sys

path, folder, stream, *terminal = sys.argv[1:]
# As a keeper has it: the package without its `__init__.py`.
package = sys.modules["exec_server"] = type(sys)("exec_server")
package.__path__ = [path]

from exec_server.process.journal import Journal  # noqa: E402
from exec_server.process.journaling.journal_format import EndOfStream  # noqa: E402
from exec_server.process.journaling.terminal_output import take_terminal  # noqa: E402

journal = Journal.open(folder, max_bytes=1 << 40, max_records=1 << 40)
source = int(terminal[0]) if terminal else 0
while True:
    select.select([source], [], [])
    try:
        if terminal:
            record = take_terminal(journal, source, (0, source + 1), 1 << 16)
        else:
            record = journal.take(stream, 0, 1 << 16)
    except EndOfStream:
        break
    if record is not None:
        os.write(1, struct.pack("<QQ", record.seq, record.length) + journal.read(record))
