"""Archives of small files: what we write tar reads, and what tar writes we read."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.client.files.transfer import pack
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import ProtocolError
from tests.requirements import requirement

NAMES = [
    b"a",
    b"a b/c",
    b"-n",
    b"caf\xc3\xa9",
    b"\xff\xfe",
    b"line\nbreak",
    b"x" * 255,
    b"d/" * 90 + b"e",
]
TIMES = [0, 1, 1_600_000_000 * 10**9, 1_700_000_000_123_456_789, -1, -1_500_000_000, 2**33 * 10**9]


def archive(entries: list[tuple[TreeEntry, bytes]]) -> bytes:
    parts = []
    for entry, data in entries:
        parts += [pack.member(entry, mode=entry.mode or 0), data, pack.padding(len(data))]
    return b"".join((*parts, pack.END))


@requirement("client/transfer:archive")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("time", TIMES)
def test_tar_unpacks_what_we_pack(tmp_path, name, time):
    data = os.urandom(700)
    parents = [name.rsplit(b"/", n)[0] for n in range(name.count(b"/"), 0, -1)]
    entries = [(TreeEntry(path, "directory", mode=0o700), b"") for path in parents]
    entries.append((TreeEntry(name, "file", len(data), time, 0o640), data))
    entries.append((TreeEntry(b"link", "symlink", mode=0o777, target=name * 2), b""))
    subprocess.run(
        ["tar", "-x", "-p", "-f", "-", "--no-same-owner"],
        input=archive(entries),
        cwd=tmp_path,
        check=True,
    )
    path = bytes(tmp_path) + b"/" + name
    found = os.stat(path)
    assert (found.st_mode & 0o777, found.st_size) == (0o640, 700)
    assert found.st_mtime_ns == time
    with open(path, "rb") as file:
        assert file.read() == data
    assert os.readlink(bytes(tmp_path) + b"/link") == name * 2


@requirement("client/transfer:archive")
def test_others_read_it_too():
    data = archive([(TreeEntry(b"a/" + b"n" * 120, "file", 3, 1_500_000_000, 0o600), b"abc")])
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        (member,) = found.getmembers()
    assert (member.name, member.size, member.mode) == ("./a/" + "n" * 120, 3, 0o600)
    assert member.mtime == 1.5


@requirement("client/transfer:archive")
@given(pieces=st.lists(st.integers(1, 5000), max_size=20))
def test_any_split_of_an_archive_gives_the_same_files(pieces):
    data = _packed_by_tar()
    unpacker = pack.Unpacker(limit=100_000)
    found: dict[bytes, bytes] = {}
    start = 0
    for size in [*pieces, len(data)]:
        found.update(unpacker.feed(data[start : start + size]))
        start += size
    assert found == _CONTENTS


_CONTENTS = {name: name * 7 for name in NAMES} | {b"empty": b"", b"larger": bytes(70_000)}
_cache: list[bytes] = []


def _packed_by_tar() -> bytes:
    if not _cache:
        with tempfile.TemporaryDirectory() as folder:
            root = os.fsencode(folder)
            for name, content in _CONTENTS.items():
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                with open(os.path.join(root, name), "wb") as file:
                    file.write(content)
            names = b"\0".join(b"./" + name for name in _CONTENTS)
            options = [
                "--format=gnu",
                "--no-recursion",
                "--null",
                "--verbatim-files-from",
                "-T",
                "-",
            ]
            done = subprocess.run(
                ["tar", "-c", "-f", "-", *options],
                input=names,
                cwd=root,
                capture_output=True,
                check=True,
            )
            _cache.append(done.stdout)
    return _cache[0]


@requirement("client/transfer:archive")
@pytest.mark.parametrize(
    "data",
    [
        b"x" * 512,
        pack.member(TreeEntry(b"a", "file", 1000), mode=0)[:124] + b"z" * 388,
        pack.member(TreeEntry(b"a", "file", 1001), mode=0),
        b"\x80" * 512,
    ],
)
def test_what_is_no_such_archive_is_refused(data):
    with pytest.raises(ProtocolError):
        list(pack.Unpacker(limit=1000).feed(data))


@requirement("client/transfer:archive")
@given(data=st.binary(max_size=2000))
def test_any_bytes_are_files_or_an_error(data):
    try:
        list(pack.Unpacker(limit=1000).feed(data))
    except ProtocolError:
        pass


@requirement("client/transfer:archive")
def test_directories_and_links_in_an_archive_are_passed_over():
    data = archive(
        [
            (TreeEntry(b"d", "directory", mode=0o700), b""),
            (TreeEntry(b"l", "symlink", target=b"/etc/passwd"), b""),
            (TreeEntry(b"f", "file", 1), b"x"),
        ]
    )
    assert list(pack.Unpacker(limit=10).feed(data)) == [(b"f", b"x")]
