"""`sync`, `mv`, patterns and standard streams, compared with rsync where that is possible."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.files.conftest import done, run
from tests.client.files.transfer.test_transfer import described, make_files
from tests.requirements import requirement
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

MIB = 1024 * 1024


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    make_files(root, 30, 1000)
    (root / "keep.log").write_text("log")
    (root / "build").mkdir()
    (root / "build" / "out.o").write_text("o")
    (root / "link").symlink_to("keep.log")
    (root / "big").write_bytes(os.urandom(3 * MIB))
    return root


def alike(one: Path, other: Path) -> bool:
    """True if two trees are the same; the times of directories are not compared with rsync's."""
    trees = [
        {
            path: facts[:2] if facts[0] == "directory" else facts
            for path, facts in described(root).items()
        }
        for root in (one, other)
    ]
    return trees[0] == trees[1]


def with_rsync(source: Path, destination: Path, *options: str) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    subprocess.run(["rsync", "-a", *options, f"{source}/", f"{destination}/"], check=True)


@requirement("cli/files:sync")
async def test_a_directory_becomes_like_the_other_as_with_rsync(server, tmp_path, source):
    ours, theirs, back = tmp_path / "ours", tmp_path / "theirs", tmp_path / "back"
    there = f"{server.url}:{ours}"
    patterns = ["--exclude=*.log", "--include=/build/out.o", "--exclude=/build/*"]
    for options in ([], patterns):
        with_rsync(source, theirs, *options)
        await done("sync", *options, source, there)
        assert alike(ours, theirs)
        await done("sync", *options, there, back)
        assert alike(back, theirs)


@requirement("cli/files:sync")
async def test_what_is_new_changed_or_gone_is_as_with_rsync(server, tmp_path, source):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    there = f"{server.url}:{ours}"
    for place in (ours, theirs):
        with_rsync(source, place)
    (source / "d0" / "f0").write_text("another content")
    shutil.rmtree(source / "d1")
    (source / "new").mkdir()
    (source / "new" / "file").write_text("new")
    (source / "link").unlink()
    (source / "link").symlink_to("new")
    for place in (ours, theirs):
        (place / "extra").mkdir()
        (place / "extra" / "file").write_text("x")
        (place / "extra.log").write_text("kept, because it is excluded")
        os.utime(place / "extra.log", (1_600_000_000, 1_600_000_000))
    planned = await done("sync", "--delete", "--dry-run", "--exclude=*.log", source, there)
    assert "delete extra/file\n" in planned and "create new/file\n" in planned
    assert "update d0/f0\n" in planned and "extra.log" not in planned
    assert (ours / "extra" / "file").exists()
    with_rsync(source, theirs, "--delete", "--exclude=*.log")
    facts = json.loads(
        await done("sync", "--delete", "--exclude=*.log", "-o", "json", source, there)
    )
    assert facts["removed"] >= 3 and facts["files"] == 2
    assert alike(ours, theirs)
    await done("sync", "--delete", "--exclude=*.log", there, tmp_path / "back")
    (theirs / "extra.log").unlink()
    (theirs / "keep.log").unlink()
    assert alike(tmp_path / "back", theirs)


@requirement("cli/files:sync-delete")
async def test_nothing_is_removed_after_a_problem(server, tmp_path, source):
    copy = tmp_path / "copy"
    await done("sync", source, f"{server.url}:{copy}")
    (copy / "extra").write_text("x")
    # A directory is where a file should go.
    (copy / "keep.log").unlink()
    (copy / "keep.log").mkdir()
    failed = await run("sync", "--delete", source, f"{server.url}:{copy}")
    assert failed.status == 1 and "is a directory where it should go" in failed.stderr
    assert (copy / "extra").exists()


@requirement("cli/files:sync-delete")
async def test_what_a_pattern_of_the_command_line_names_is_never_removed(server, tmp_path):
    """In a file `#` begins a comment; Emacs has such names, and a shell completes `./`."""
    here, there = tmp_path / "here", tmp_path / "there"
    names = ("#notes#", "blank ", "build", "!bang")
    for name in names:
        (there / name).mkdir(parents=True)
        (there / name / "file").write_text("mine")
    here.mkdir()
    patterns = ["-x", "#*#", "-x", "blank ", "-x", "./build", "-x", "\\!bang"]
    await done("sync", "--delete", *patterns, here, f"{server.url}:{there}")
    assert sorted(os.listdir(there)) == sorted(names)
    (tmp_path / "ignore").write_bytes(
        b"\xef\xbb\xbfbuild\r\n# a comment\r\n\\#*#\nblank\\ \n\\!bang\n"
    )
    patterns = ["--exclude-from", str(tmp_path / "ignore")]
    await done("sync", "--delete", *patterns, here, f"{server.url}:{there}")
    assert sorted(os.listdir(there)) == sorted(names)
    # A variable that is not set would protect nothing.
    for nothing in ("", "/", "./"):
        failed = await run("sync", "--delete", "-x", nothing, here, f"{server.url}:{there}")
        assert failed.status == 2 and f"`{nothing}` matches no name" in failed.stderr
    assert sorted(os.listdir(there)) == sorted(names)


@requirement("cli/files:sync-checksum")
async def test_contents_are_compared_if_that_is_wanted(server, tmp_path, source):
    copy = tmp_path / "copy"
    there = f"{server.url}:{copy}"
    await done("sync", source, there)
    before = (copy / "d0" / "f0").stat()
    (copy / "d0" / "f0").write_bytes(b"y" * before.st_size)
    os.utime(copy / "d0" / "f0", ns=(before.st_atime_ns, before.st_mtime_ns))
    await done("sync", source, there)
    assert (copy / "d0" / "f0").read_bytes().startswith(b"yy")
    await done("sync", "--checksum", source, there)
    assert described(copy) == described(source)


@pytest.mark.parametrize("way", ["up", "down"])
@requirement("cli/files:delta")
async def test_only_the_changes_of_a_large_file_are_sent(server, tmp_path, way):
    old, new = os.urandom(12 * MIB), tmp_path / "new"
    new.write_bytes(old[: 5 * MIB] + b"one more line\n" + old[5 * MIB :])
    copy = tmp_path / "copy"
    copy.write_bytes(old)
    words = [new, f"{server.url}:{copy}"] if way == "up" else [f"{server.url}:{new}", copy]
    facts = json.loads(await done("sync", "-o", "json", *words))
    assert copy.read_bytes() == new.read_bytes()
    assert facts["bytes"] == new.stat().st_size and facts["sentBytes"] < MIB
    assert sorted(os.listdir(tmp_path)) == ["copy", "new"]
    # Nothing in common: it is sent whole.
    new.write_bytes(os.urandom(2 * MIB))
    facts = json.loads(await done("sync", "-o", "json", *words))
    assert copy.read_bytes() == new.read_bytes() and facts["sentBytes"] == 2 * MIB
    # As it is wanted.
    new.write_bytes(b"x" + copy.read_bytes())
    facts = json.loads(await done("sync", "-W", "-o", "json", *words))
    assert copy.read_bytes() == new.read_bytes() and facts["sentBytes"] == 2 * MIB + 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("way", ["up", "down"])
@requirement("cli/files:delta-interrupted")
async def test_an_interrupted_delta_leaves_the_old_version(server, tmp_path, way, signum):
    old = os.urandom(12 * MIB)
    new, copy = tmp_path / "from" / "file", tmp_path / "to" / "file"
    new.parent.mkdir()
    copy.parent.mkdir()
    copy.write_bytes(old)
    new.write_bytes(os.urandom(6 * MIB) + old)
    schedule = [Fault(2 * MIB, way, "stall"), None]
    async with fault_proxy(server.url, schedule) as proxy:
        words = ["cp", new, f"{proxy.url}:{copy}"]
        if way == "down":
            words = ["cp", f"{proxy.url}:{new}", copy]
        process = await asyncio.create_subprocess_exec(
            *OURS, *map(str, words), stderr=subprocess.DEVNULL
        )
        await eventually(lambda: proxy.faults == 1)
        process.send_signal(signum)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() != 0
        assert copy.read_bytes() == old
        await done(*words)
    assert copy.read_bytes() == new.read_bytes()
    assert os.listdir(copy.parent) == ["file"]


@requirement("cli/files:mv")
async def test_files_are_moved(server, tmp_path, source):
    url = server.url
    wanted = described(source)
    await done("mv", f"{url}:{source}", f"{url}:{tmp_path}/renamed")
    assert described(tmp_path / "renamed") == wanted and not source.exists()
    (tmp_path / "into").mkdir()
    await done("mv", f"{url}:{tmp_path}/renamed", f"{url}:{tmp_path}/into")
    moved = tmp_path / "into" / "renamed"
    assert described(moved) == wanted
    # To another machine and back; the source goes when everything has arrived.
    await done("mv", f"{url}:{moved}", tmp_path / "here")
    assert described(tmp_path / "here") == wanted and not moved.exists()
    await done("mv", tmp_path / "here", f"{url}:{source}")
    assert described(source) == wanted and not (tmp_path / "here").exists()
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    await done("mv", "-n", f"{url}:{tmp_path}/a", f"{url}:{tmp_path}/b")
    assert (tmp_path / "b").read_text() == "b"
    assert await done("mv", "--dry-run", tmp_path / "a", f"{url}:{tmp_path}/b")
    assert (tmp_path / "a").exists()
    await done("mv", f"{url}:{tmp_path}/a", f"{url}:{tmp_path}/b")
    assert (tmp_path / "b").read_text() == "a" and not (tmp_path / "a").exists()
    failed = await run("mv", f"{url}:{tmp_path}/nope", f"{url}:{tmp_path}/b")
    assert failed.status == 1 and "No such file or directory" in failed.stderr
    failed = await run("mv", f"{url}:{source}", f"{url}:{source}/new")
    assert (failed.status, described(source)) == (1, wanted)
    assert failed.stderr.endswith(f"cannot be moved into itself, to {url}:{source}/new\n")
    # What could not be copied stays.
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "source").write_text("a file where a directory should go")
    failed = await run("mv", source, f"{url}:{tmp_path}/block")
    assert failed.status == 1 and described(source) == wanted


@requirement("cli/files:globs")
async def test_patterns_match_on_the_server(server, tmp_path):
    (tmp_path / "src" / "sub").mkdir(parents=True)
    for name in ("a.py", "b.py", "c.txt", ".hidden.py", "sub/d.py", "we[ird.py"):
        (tmp_path / "src" / name).write_text(name)
    here = tmp_path / "here"
    here.mkdir()
    await done("cp", f"{server.url}:{tmp_path}/src/*.py", here)
    assert sorted(os.listdir(here)) == ["a.py", "b.py", "we[ird.py"]
    await done("cp", f"{server.url}:{tmp_path}/s*/sub/?.py", here)
    assert (here / "d.py").exists()
    # A file with the very name counts first.
    await done("cp", f"{server.url}:{tmp_path}/src/we[ird.py", here / "one")
    assert (here / "one").read_text() == "we[ird.py"
    failed = await run("cp", f"{server.url}:{tmp_path}/src/*.c", here)
    assert failed.status == 1 and "no file matches" in failed.stderr
    relative = os.path.relpath(tmp_path, os.getcwd())
    await done("cp", f"{server.url}:{relative}/src/c.*", here)
    assert (here / "c.txt").exists()


@requirement("cli/files:streams")
async def test_standard_streams_are_files(server, tmp_path):
    data = os.urandom(3 * MIB)
    (tmp_path / "in").write_bytes(data)
    process = await asyncio.create_subprocess_exec(
        *OURS, "cp", "-", f"{server.url}:{tmp_path}/out", stdin=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        await process.communicate(data)
    assert process.returncode == 0 and (tmp_path / "out").read_bytes() == data
    process = await asyncio.create_subprocess_exec(
        *OURS, "cp", f"{server.url}:{tmp_path}/in", "-", stdout=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        printed, _ = await process.communicate()
    assert process.returncode == 0 and printed == data
    failed = await run("cp", "-", f"{server.url}:{tmp_path}")
    assert failed.status == 1 and "give the new file a name" in failed.stderr
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@requirement("cli/files:streams", "fs.transfer:private")
async def test_standard_input_leaves_the_mode_of_a_file_as_it_is(server, tmp_path):
    secret, pipe = tmp_path / "secret", tmp_path / "pipe"
    secret.write_text("old")
    secret.chmod(0o600)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    for path in (secret, pipe):
        process = await asyncio.create_subprocess_exec(
            *OURS, "cp", "-", f"{server.url}:{path}", stdin=subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE):
            await process.communicate(b"new")
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("new", 0o600)
    # A FIFO or a device such as /dev/null is not replaced by a file.
    assert pipe.is_fifo()
    os.close(reader)


@requirement("cli/files:sync")
async def test_options_that_people_type_out_of_habit_are_accepted(server, tmp_path, source):
    there = f"{server.url}:{tmp_path}"
    await done("cp", "-av", str(source), f"{there}/copied")
    assert alike(source, tmp_path / "copied")
    await done("sync", "-avz", f"{source}/", f"{there}/synced")
    assert alike(source, tmp_path / "synced")
    await done("sync", "-n", "--delete", f"{source}/build", f"{there}/synced")
    assert alike(source, tmp_path / "synced")
    await done("mv", "-fv", f"{there}/synced", f"{there}/moved")
    assert alike(source, tmp_path / "moved")
    assert (await done("ls", "-1", f"{there}/moved")).splitlines() == sorted(
        each.name for each in source.iterdir() if not each.name.startswith(".")
    )


@requirement("cli/files:cp-json")
async def test_programs_read_what_was_copied_and_moved(server, tmp_path):
    # A name need not be text.
    near, far = tmp_path / os.fsdecode(b"caf\xe9"), f"{server.url}:{tmp_path}/far"
    near.write_text("12345")
    found = json.loads(await done("cp", "-o", "json", "--dry-run", near, far))
    assert [(each["action"], each["size"]) for each in found] == [("create", 5)]
    [found] = json.loads(await done("cp", "-o", "json", near, far))
    assert (found["action"], found["bytes"], found["destination"]) == ("copied", 5, far)
    assert found["source"] == f"{tmp_path}/caf\\udce9"
    (tmp_path / "in").mkdir()
    moved = await run("mv", "-o", "json", f"{server.url}:{tmp_path}/none", far, tmp_path / "in")
    failure = json.loads(moved.stdout)
    assert moved.status == failure["exitCode"] == 1 and "none" in failure["error"]
    assert [each["action"] for each in failure["entries"]] == ["moved"]
    assert (tmp_path / "in" / "far").read_text() == "12345"
    # The server is on this machine, and the two names are one file.
    same = await run("mv", f"{server.url}:{tmp_path}/in/far", tmp_path / "in")
    assert same.status == 1 and "is the same file as" in same.stderr
    assert os.listdir(tmp_path / "in") == ["far"]
    refused = await run("cp", "-o", "json", "-", far)
    assert refused.status == 2 and "cannot be used with '-'" in json.loads(refused.stdout)["error"]


@requirement("cli/files:sync-root")
async def test_a_machine_is_not_emptied_by_delete(server, source):
    # Only --dry-run: if this is not refused, nothing may happen to the machine of the tests.
    words = ("sync", "--delete", "--dry-run")
    up = await run(*words, source, f"{server.url}:/usr/..")
    down = await run(*words, f"{server.url}:{source}", "//")
    for refused in (up, down):
        assert (refused.status, refused.stdout) == (1, "")
        assert "root of the machine" in refused.stderr
    nameless = await run(*words, source, f"{server.url}:")
    assert nameless.status == 2
    assert "--delete needs the directory" in nameless.stderr
