"""The file methods on systems other than Linux: they can be imported and work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.requirements import requirement

# Modules that are imported after this see another system.
SCRIPT = """
import asyncio, ctypes, os, select, sys, tempfile
import msgspec, pybase64

sys.platform = "darwin"
for name in ("O_PATH", "RWF_NOWAIT", "copy_file_range", "preadv", "sendfile"):
    if hasattr(os, name):
        delattr(os, name)
del select.epoll
real = ctypes.CDLL

from exec_server.files.nowait import linux_calls
assert not linux_calls.IS_LINUX
from exec_server.files.file_admission import FileAdmission
from exec_server.files.file_service import FileService
from exec_server.limits import Limits
from exec_server.protocol import fs
from exec_server.protocol.base64 import Blob, LazyBlob
from exec_server.protocol.paths import PathUri

root = os.fsencode(os.path.realpath(sys.argv[1]))

def uri(name):
    return PathUri.of(root + b"/" + name)

async def outcome(result):
    return await result if hasattr(result, "__await__") else result

async def no_helper(plan):
    raise AssertionError

async def main():
    service = FileService(Limits(), FileAdmission({}), no_helper)
    files = service.connect(print)
    for follow in (None, False):
        await outcome(files.write_file(fs.WriteFileParams(uri(b"f"), LazyBlob(b"abc"), follow)))
        read = await outcome(files.read_file(fs.ReadFileParams(uri(b"f"), follow)))
        assert b"".join(read.parts) == b'{"dataBase64":"YWJj"}', read
        found = await outcome(files.get_metadata(fs.GetMetadataParams(uri(b"f"), follow)))
        assert found.is_file and found.size == 3
        create = fs.CreateDirectoryParams(uri(b"d/e"), True, follow)
        await outcome(files.call(fs.CREATE_DIRECTORY, create))
        change_ = fs.SetPermissionsParams(uri(b"f"), 0o600, 1000, 2000, follow)
        await outcome(files.call(fs.SET_PERMISSIONS, change_))
        assert os.stat(root + b"/f").st_mtime == 1
        await outcome(files.call(fs.APPEND, fs.AppendParams(uri(b"f"), Blob(b"d"), True, follow)))
        rename = fs.RenameParams(uri(b"f"), uri(b"g"), False, follow)
        await outcome(files.call(fs.RENAME, rename))
        await outcome(files.call(fs.COPY, fs.CopyParams(uri(b"g"), uri(b"h"), False)))
        assert open(root + b"/h", "rb").read() == b"abcd"
        atomic_ = fs.WriteFileParams(uri(b"g"), LazyBlob(b"x"), follow, True)
        await outcome(files.write_file(atomic_))
        handle = fs.OpenParams("h", uri(b"h"))
        await outcome(files.open_files.open(handle))
        block = await outcome(files.open_files.read_block(fs.ReadBlockParams("h", 1, 9)))
        assert b"".join(block.parts) == b'{"chunk":"YmNk","eof":true}', block
        files.open_files.close(fs.CloseParams("h"))
        for name in (b"g", b"h"):
            await outcome(files.call(fs.REMOVE, fs.RemoveParams(uri(name), False, True, follow)))
        await outcome(files.call(fs.REMOVE, fs.RemoveParams(uri(b"d"))))
    watching = await outcome(files.missing.replace(fs.WatchMissingParams(1, [uri(b"x")])))
    assert not watching.watching
    os.symlink(b"nowhere", root + b"/link")
    try:
        await outcome(files.get_metadata(fs.GetMetadataParams(uri(b"link/x"), False)))
    except Exception as exc:
        assert exc.code == -32603, exc
    files.close()
    service.stop()

asyncio.run(main())
print("done")
"""


@requirement("fs:elsewhere")
def test_other_systems_need_nothing_of_linux(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2] / "src",
        timeout=30,
    )
    assert found.stdout == "done\n", found.stderr
