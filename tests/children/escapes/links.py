"""Ways around: links, dots, renames, races."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable
from functools import partial

from .attempt import NoGain, Stage, call, change, plain

_EXCHANGE = 2
_AT_SYMLINK_FOLLOW = 0x400
# An attempt takes at least as many rounds as this, and places change at least as often.
_ROUNDS = 3000
_SECONDS = 5
# On one core the two take turns. An odd number of swaps leaves the places the other way round.
_ROUNDS_IN_TURN, _SWAPS_IN_TURN = 50, 51

Attack = Callable[[], None]


@plain
def prepared_symlink(stage: Stage) -> None:
    """write through a symbolic link that was in the workspace before"""
    change(f"{stage.workspace}/link")


@plain
def prepared_directory_link(stage: Stage) -> None:
    """make a file through a prepared link to a directory"""
    os.open(f"{stage.workspace}/directory-link/new-by-link", os.O_WRONLY | os.O_CREAT)


@plain
def dangling_link(stage: Stage) -> None:
    """make a file through a prepared link to nowhere"""
    os.open(f"{stage.workspace}/dangling", os.O_WRONLY | os.O_CREAT)


@plain
def own_symlink(stage: Stage) -> None:
    """make a symbolic link inside and write through it"""
    os.symlink(f"{stage.outside}/file", f"{stage.workspace}/own-link")
    change(f"{stage.workspace}/own-link")


@plain
def own_relative_symlink(stage: Stage) -> None:
    """make a relative link inside and write through it"""
    os.symlink("../outside", f"{stage.workspace}/own-relative")
    change(f"{stage.workspace}/own-relative/file")


@plain
def chain_of_links(stage: Stage) -> None:
    """make a chain of links and write through it"""
    os.symlink(f"{stage.outside}/dir", f"{stage.workspace}/chain-1")
    os.symlink("chain-1/../file", f"{stage.workspace}/chain-2")
    change(f"{stage.workspace}/chain-2")


@plain
def dots(stage: Stage) -> None:
    """write with `..` in the path"""
    change(f"{stage.workspace}/sub/../../outside/file")


@plain
def dots_of_the_working_directory(stage: Stage) -> None:
    """write relative to the working directory's parent"""
    os.chdir("..")
    change("outside/file")


@plain
def proc_self_root(stage: Stage) -> None:
    """write through /proc/self/root"""
    change(f"/proc/self/root{stage.outside}/file")


@plain
def proc_thread_root(stage: Stage) -> None:
    """write through /proc/thread-self/root"""
    change(f"/proc/thread-self/root{stage.outside}/file")


@plain
def proc_parent_root(stage: Stage) -> None:
    """write through the root of the parent process"""
    change(f"/proc/{os.getppid()}/root{stage.outside}/file")


@plain
def proc_self_cwd(stage: Stage) -> None:
    """write through /proc/self/cwd/.."""
    change("/proc/self/cwd/../outside/file")


@plain
def proc_descriptor_of_a_directory(stage: Stage) -> None:
    """write through /proc/self/fd/N/.."""
    fd = os.open(".", os.O_PATH | os.O_DIRECTORY)
    change(f"/proc/self/fd/{fd}/../outside/file")


@plain
def rename_into(stage: Stage) -> None:
    """rename a file outside into the workspace"""
    os.rename(f"{stage.outside}/moved", f"{stage.workspace}/moved")


@plain
def rename_out(stage: Stage) -> None:
    """rename a file of the workspace to the outside"""
    os.rename(f"{stage.workspace}/moved-out", f"{stage.outside}/moved-out")


@plain
def rename_a_directory_into(stage: Stage) -> None:
    """rename a directory outside into the workspace"""
    os.rename(f"{stage.outside}/moved-dir", f"{stage.workspace}/moved-dir")


@plain
def exchange(stage: Stage) -> None:
    """exchange a file of the workspace with one outside"""
    ours, theirs = f"{stage.workspace}/exchanged", f"{stage.outside}/exchanged"
    call("renameat2", -100, ours.encode(), -100, theirs.encode(), _EXCHANGE)


@plain
def link_into(stage: Stage) -> None:
    """hard-link a file outside into the workspace"""
    os.link(f"{stage.outside}/file", f"{stage.workspace}/linked")
    change(f"{stage.workspace}/linked")


@plain
def link_out(stage: Stage) -> None:
    """hard-link a file of the workspace to the outside"""
    os.link(f"{stage.workspace}/file", f"{stage.outside}/linked-out")


@plain
def link_a_descriptor_into(stage: Stage) -> None:
    """hard-link an open file outside into the workspace by its descriptor"""
    fd = os.open(f"{stage.outside}/file", os.O_RDONLY)
    target = f"{stage.workspace}/linked-descriptor"
    call("linkat", -100, f"/proc/self/fd/{fd}".encode(), -100, target.encode(), _AT_SYMLINK_FOLLOW)
    change(f"{stage.workspace}/linked-descriptor")


@plain
def prepared_hard_link(stage: Stage) -> None:
    """write through a hard link that was in the workspace before"""
    change(f"{stage.workspace}/hard")


@plain
def workspace_renamed(stage: Stage) -> None:
    """rename the workspace itself"""
    os.rename(stage.workspace, stage.workspace + "-moved")
    os.rename(stage.workspace + "-moved", stage.workspace)


@plain
def workspace_replaced(stage: Stage) -> None:
    """rename another directory over the workspace's name"""
    other = f"{stage.workspace}/replacement"
    os.mkdir(other)
    call("renameat2", -100, other.encode(), -100, stage.workspace.encode() + b"/../spare", 0)


@plain
def workspace_parent(stage: Stage) -> None:
    """make a file beside the workspace"""
    os.open(f"{stage.workspace}/../beside", os.O_WRONLY | os.O_CREAT | os.O_EXCL)


@plain
def race_of_a_link(stage: Stage) -> None:
    """write while a directory and a symbolic link to the outside change places"""
    path, spare = f"{stage.workspace}/raced", f"{stage.workspace}/raced-link"
    os.mkdir(path)
    os.close(os.open(f"{path}/target", os.O_WRONLY | os.O_CREAT))
    os.symlink(f"{stage.outside}/dir", spare)
    has_won = partial(_is_written, f"{stage.outside}/dir/target")
    _while_swapping(path, spare, partial(_overwrite, f"{path}/target"), has_won)


@plain
def race_of_a_rename(stage: Stage) -> None:
    """make files while a directory and a symbolic link to the outside change places"""
    path, spare = f"{stage.workspace}/made", f"{stage.workspace}/made-link"
    os.mkdir(path)
    os.symlink(f"{stage.outside}/raced", spare)
    has_won = partial(os.path.lexists, f"{stage.outside}/raced/made")
    _while_swapping(path, spare, partial(_create, f"{path}/made"), has_won)


def _overwrite(path: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"escaped")
    os.close(fd)


def _is_written(path: str) -> bool:
    return os.path.getsize(path) > 0


def _create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def _while_swapping(path: str, spare: str, act: Attack, has_won: Callable[[], bool]) -> None:
    """Act again and again while *path* and *spare* change places; NoGain if it is of no use."""
    # It fails at once, and is told, where nothing may be renamed.
    call("renameat2", -100, path.encode(), -100, spare.encode(), _EXCHANGE)
    swaps = memoryview(mmap.mmap(-1, 8)).cast("Q")
    swapping = os.fork()
    if swapping == 0:
        while True:
            call("renameat2", -100, path.encode(), -100, spare.encode(), _EXCHANGE)
            swaps[0] += 1
            if not swaps[0] % _SWAPS_IN_TURN:
                os.sched_yield()
    rounds, end = 0, time.monotonic() + _SECONDS
    try:
        # On a busy machine the other process may not run for a while.
        while (rounds < _ROUNDS or swaps[0] < _ROUNDS) and time.monotonic() < end:
            rounds += 1
            if not rounds % _ROUNDS_IN_TURN:
                os.sched_yield()
            try:
                act()
            except OSError:
                pass
            if has_won():
                return
    finally:
        os.kill(swapping, signal.SIGKILL)
        os.waitpid(swapping, 0)
    raise NoGain
