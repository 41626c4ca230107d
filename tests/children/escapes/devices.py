"""Devices and terminals."""

from __future__ import annotations

import fcntl
import os
import stat
import termios
from collections.abc import Callable

from .attempt import NoGain, Stage, attempt, call, openable, plain

_TIOCLINUX = 0x541C
_TIOCSETD = 0x5423


@attempt
def character_device(stage: Stage) -> None:
    """make a device node for memory in the workspace"""
    os.mknod(f"{stage.workspace}/mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1))


@attempt
def null_device(stage: Stage) -> None:
    """make a device node like /dev/null in the workspace"""
    os.mknod(f"{stage.workspace}/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))


@attempt
def block_device(stage: Stage) -> None:
    """make a block device in the workspace"""
    os.mknod(f"{stage.workspace}/disk", 0o600 | stat.S_IFBLK, os.makedev(7, 0))


@attempt
def device_elsewhere(stage: Stage) -> None:
    """make a block device in /dev/shm"""
    os.mknod("/dev/shm/disk", 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    os.unlink("/dev/shm/disk")


@attempt
def prepared_device(stage: Stage) -> None:
    """write to a device node that was in the workspace before"""
    openable(f"{stage.workspace}/prepared-device", os.O_RDWR)


@attempt
def memory_device(stage: Stage) -> None:
    """open /dev/mem"""
    openable("/dev/mem", os.O_RDWR)


@attempt
def kvm(stage: Stage) -> None:
    """open /dev/kvm"""
    openable("/dev/kvm", os.O_RDWR)


@attempt
def loop_control(stage: Stage) -> None:
    """open /dev/loop-control"""
    openable("/dev/loop-control", os.O_RDWR)


@attempt
def fuse(stage: Stage) -> None:
    """open /dev/fuse for writing"""
    openable("/dev/fuse", os.O_RDWR)


@attempt
def tunnel(stage: Stage) -> None:
    """open /dev/net/tun"""
    openable("/dev/net/tun", os.O_RDWR)


@attempt
def kernel_messages(stage: Stage) -> None:
    """open /dev/kmsg for writing"""
    openable("/dev/kmsg")


@attempt
def disks(stage: Stage) -> None:
    """open any block device for writing"""
    _any_device(stat.S_ISBLK)


@attempt
def raw_disks(stage: Stage) -> None:
    """read any block device, whatever is in its files"""
    _any_device(stat.S_ISBLK, os.O_RDONLY)


@attempt
def other_devices(stage: Stage) -> None:
    """open any character device for writing, but for those that every program may"""
    _any_device(stat.S_ISCHR)


def _any_device(is_wanted: Callable[[int], bool], flags: int = os.O_WRONLY) -> None:
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    for name in os.listdir("/dev"):
        path = f"/dev/{name}"
        try:
            if name not in harmless and is_wanted(os.lstat(path).st_mode):
                openable(path, flags)
                return
        except OSError:
            pass
    raise NoGain


@attempt
def other_terminals(stage: Stage) -> None:
    """open another program's terminal for writing"""
    for name in os.listdir("/dev/pts"):
        try:
            if name != "ptmx":
                openable(f"/dev/pts/{name}", os.O_WRONLY | os.O_NOCTTY)
                return
        except OSError:
            pass
    raise NoGain


@plain
def overheard_terminal(stage: Stage) -> None:
    """read what is typed into another program's terminal"""
    openable(stage.terminal, os.O_RDONLY | os.O_NOCTTY)


@attempt
def typing(stage: Stage) -> None:
    """type into the terminal with TIOCSTI"""
    fcntl.ioctl(0, termios.TIOCSTI, b"x")


@attempt
def typing_with_a_larger_register(stage: Stage) -> None:
    """type into the terminal, with something in the upper half of the register"""
    call("ioctl", 0, termios.TIOCSTI | 1 << 32, b"x")


@attempt
def console_selection(stage: Stage) -> None:
    """paste on the console with TIOCLINUX"""
    fcntl.ioctl(0, _TIOCLINUX, b"\3")


@attempt
def controlling_terminal(stage: Stage) -> None:
    """open the terminal of the server"""
    openable("/dev/tty", os.O_RDWR)


@plain
def shared_memory_file(stage: Stage) -> None:
    """write to a file in the host's /dev/shm"""
    openable(stage.dev_shm)


@plain
def new_shared_memory_file(stage: Stage) -> None:
    """make a file in the host's /dev/shm"""
    path = stage.dev_shm + "-new"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    if not os.path.exists(stage.dev_shm):
        # It is another /dev/shm.
        raise NoGain
    os.unlink(path)
