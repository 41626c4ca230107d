"""Changes outside of the workspace."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import socket
import tempfile

from .attempt import Stage, attempt, call, change, openable, plain

_FS_IOC_SETFLAGS = 0x40086602
_NODUMP = 0x40


@plain
def write_outside(stage: Stage) -> None:
    """write over a file outside"""
    fd = os.open(f"{stage.outside}/file", os.O_WRONLY)
    os.write(fd, b"escaped")


@plain
def append_outside(stage: Stage) -> None:
    """append to a file outside"""
    change(f"{stage.outside}/file")


@plain
def truncate_outside_by_open(stage: Stage) -> None:
    """empty a file outside by opening it"""
    os.open(f"{stage.outside}/file", os.O_WRONLY | os.O_TRUNC)


@plain
def truncate_outside_opened_for_reading(stage: Stage) -> None:
    """open a file outside for reading, emptied"""
    os.open(f"{stage.outside}/file", os.O_RDONLY | os.O_TRUNC)


@plain
def truncate_outside_by_name(stage: Stage) -> None:
    """truncate(2) a file outside"""
    os.truncate(f"{stage.outside}/file", 0)


@plain
def create_outside(stage: Stage) -> None:
    """make a file outside"""
    os.open(f"{stage.outside}/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)


@plain
def create_unnamed_outside(stage: Stage) -> None:
    """make a file outside that has no name yet"""
    os.open(stage.outside, os.O_TMPFILE | os.O_WRONLY)


@plain
def mkdir_outside(stage: Stage) -> None:
    """make a directory outside"""
    os.mkdir(f"{stage.outside}/new-directory")


@plain
def fifo_outside(stage: Stage) -> None:
    """make a FIFO outside"""
    os.mkfifo(f"{stage.outside}/new-fifo")


@plain
def symlink_outside(stage: Stage) -> None:
    """make a symbolic link outside"""
    os.symlink("file", f"{stage.outside}/new-link")


@plain
def hard_link_outside(stage: Stage) -> None:
    """make a hard link outside"""
    os.link(f"{stage.outside}/file", f"{stage.outside}/new-hard-link")


@plain
def rename_outside(stage: Stage) -> None:
    """rename a file outside"""
    os.rename(f"{stage.outside}/renamed", f"{stage.outside}/renamed-again")


@plain
def unlink_outside(stage: Stage) -> None:
    """remove a file outside"""
    os.unlink(f"{stage.outside}/unlinked")


@plain
def rmdir_outside(stage: Stage) -> None:
    """remove a directory outside"""
    os.rmdir(f"{stage.outside}/empty")


@plain
def chmod_outside(stage: Stage) -> None:
    """change the mode of a file outside"""
    os.chmod(f"{stage.outside}/file", 0o600)


@plain
def chmod_outside_by_descriptor(stage: Stage) -> None:
    """change the mode of a file outside that is open for reading"""
    os.fchmod(os.open(f"{stage.outside}/file", os.O_RDONLY), 0o600)


@plain
def chmod_outside_the_new_way(stage: Stage) -> None:
    """change the mode of a file outside with fchmodat2"""
    call("fchmodat2", -100, f"{stage.outside}/file".encode(), 0o600, 0)


@plain
def chown_outside(stage: Stage) -> None:
    """change the owner of a file outside, to the same"""
    os.chown(f"{stage.outside}/file", os.geteuid(), os.getegid())


@plain
def chown_outside_by_descriptor(stage: Stage) -> None:
    """change the owner of a file outside that is open for reading"""
    os.fchown(os.open(f"{stage.outside}/file", os.O_RDONLY), os.geteuid(), os.getegid())


@plain
def utime_outside(stage: Stage) -> None:
    """change the times of a file outside"""
    os.utime(f"{stage.outside}/file", (1, 1))


@plain
def utime_outside_by_descriptor(stage: Stage) -> None:
    """change the times of a file outside that is open for reading"""
    os.utime(os.open(f"{stage.outside}/file", os.O_RDONLY), (1, 1))


@attempt
def xattr_outside(stage: Stage) -> None:
    """set an extended attribute of a file outside"""
    os.setxattr(f"{stage.outside}/file", "user.escaped", b"1")


@attempt
def flags_outside(stage: Stage) -> None:
    """set flags of a file outside that is open for reading"""
    fd = os.open(f"{stage.outside}/file", os.O_RDONLY)
    fcntl.ioctl(fd, _FS_IOC_SETFLAGS, _NODUMP.to_bytes(4, "little"))


@plain
def reopened_for_writing(stage: Stage) -> None:
    """reopen a file outside for writing through /proc/self/fd"""
    fd = os.open(f"{stage.outside}/file", os.O_RDONLY)
    change(f"/proc/self/fd/{fd}")


@plain
def reopened_from_a_path(stage: Stage) -> None:
    """reopen an O_PATH descriptor for writing through /dev/fd"""
    fd = os.open(f"{stage.outside}/file", os.O_PATH)
    change(f"/dev/fd/{fd}")


@plain
def beside_an_open_directory(stage: Stage) -> None:
    """open `..` of an open directory and write from there"""
    fd = os.open(stage.workspace, os.O_PATH | os.O_DIRECTORY)
    os.open("../outside/file", os.O_WRONLY | os.O_APPEND, dir_fd=fd)


@plain
def write_to_a_fifo(stage: Stage) -> None:
    """write to a FIFO outside that another program reads"""
    os.write(os.open(f"{stage.outside}/fifo", os.O_WRONLY | os.O_NONBLOCK), b"escaped")


@plain
def remove_a_socket(stage: Stage) -> None:
    """remove the name of a socket outside"""
    os.unlink(f"{stage.outside}/spare.socket")


@plain
def replace_a_socket(stage: Stage) -> None:
    """rename another thing over a socket outside"""
    os.rename(f"{stage.outside}/replacement", f"{stage.outside}/replaced.socket")


@plain
def socket_outside(stage: Stage) -> None:
    """bind a socket outside"""
    socket.socket(socket.AF_UNIX).bind(f"{stage.outside}/new.socket")


@attempt
def etc(stage: Stage) -> None:
    """open /etc/passwd for writing"""
    openable("/etc/passwd")


@attempt
def preload(stage: Stage) -> None:
    """make /etc/ld.so.preload"""
    os.close(os.open("/etc/ld.so.preload.escaped", os.O_CREAT | os.O_EXCL))
    os.unlink("/etc/ld.so.preload.escaped")


@attempt
def root_directory(stage: Stage) -> None:
    """make a file in /"""
    os.close(os.open("/escaped", os.O_CREAT | os.O_EXCL))
    os.unlink("/escaped")


@attempt
def program(stage: Stage) -> None:
    """open /bin/sh for writing"""
    openable("/bin/sh")


@plain
def var_tmp(stage: Stage) -> None:
    """make a file in /var/tmp"""
    tempfile.TemporaryFile(dir="/var/tmp").close()


@plain
def slash_tmp(stage: Stage) -> None:
    """make a file in /tmp, which was not given"""
    fd, path = tempfile.mkstemp(dir="/tmp")
    os.close(fd)
    os.unlink(path)


@attempt
def home(stage: Stage) -> None:
    """make a file at home"""
    path = os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".escaped")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    os.unlink(path)


@attempt
def run(stage: Stage) -> None:
    """make a directory in /run"""
    os.mkdir("/run/escaped")
    os.rmdir("/run/escaped")


@attempt
def own_locks(stage: Stage) -> None:
    """make a file among the server's own locks"""
    uid = os.geteuid()
    folder = "/run/exec-server" if uid == 0 else f"/tmp/exec-server-{uid}"
    path = f"{folder}/placeholders/escaped"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    os.unlink(path)


@attempt
def handle(stage: Stage) -> None:
    """open a file outside by its handle"""
    room = 128
    buffer = ctypes.create_string_buffer(room.to_bytes(4, "little"), 8 + room)
    mount = ctypes.c_int()
    path = f"{stage.outside}/file".encode()
    call("name_to_handle_at", -100, path, buffer, ctypes.byref(mount), 0)
    fd = os.open(stage.outside, os.O_RDONLY)
    call("open_by_handle_at", fd, buffer, os.O_WRONLY)
