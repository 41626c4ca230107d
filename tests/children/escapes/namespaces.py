"""Namespaces and mounts."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket

from .attempt import Stage, attempt, call, change, plain

_FLAGS = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "time": 0x80,
}
_USER, _MOUNT = _FLAGS["user"], _FLAGS["mount"]
_READ_ONLY, _REMOUNT, _BIND, _MOVE, _RECURSIVE = 1, 32, 4096, 8192, 16384
_DETACH = 2
_CLONE_TREE = 1
_GET_PARENT, _GET_USER = 0xB702, 0xB701
_SIGCHLD = 17


def _register_unshare(kind: str) -> None:
    def tried(stage: Stage) -> None:
        call("unshare", _FLAGS[kind])

    tried.__name__ = f"unshare_{kind}"
    tried.__doc__ = f"unshare a {kind} namespace"
    (plain if kind == "user" else attempt)(tried)


for _kind in _FLAGS:
    _register_unshare(_kind)


def _nest(*kinds: str) -> None:
    """Have all capabilities in a user namespace inside, with others of *kinds*."""
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", _USER | sum(_FLAGS[kind] for kind in kinds))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except PermissionError:
            # The real root's id cannot be mapped; the capabilities are there nevertheless.
            pass


def _mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())


def _umount(target: str, flags: int = 0) -> None:
    call("umount2", target.encode(), flags)


@attempt
def clone_user(stage: Stage) -> None:
    """clone into a user namespace"""
    if call("clone", _USER | _SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


@attempt
def clone3_user(stage: Stage) -> None:
    """clone3 into a user namespace"""
    arguments = (ctypes.c_uint64 * 11)(_USER, 0, 0, 0, _SIGCHLD)
    if call("clone3", arguments, ctypes.sizeof(arguments)) == 0:
        os._exit(0)


@attempt
def nested_capabilities(stage: Stage) -> None:
    """write to the outside as root of a nested user namespace"""
    _nest()
    change(f"{stage.outside}/file")


@attempt
def nested_remount(stage: Stage) -> None:
    """make / writable again in nested namespaces"""
    _nest("mount")
    _mount("none", "/", "none", _REMOUNT | _BIND)


@attempt
def nested_remount_outside(stage: Stage) -> None:
    """mount the outside on itself, writable, in nested namespaces"""
    _nest("mount")
    _mount(stage.outside, stage.outside, "none", _BIND | _RECURSIVE)
    _mount("none", stage.outside, "none", _REMOUNT | _BIND)
    change(f"{stage.outside}/file")


@attempt
def nested_umount_settings(stage: Stage) -> None:
    """unmount the cover of /proc/sys in nested namespaces"""
    _nest("mount")
    _umount("/proc/sys", _DETACH)


@attempt
def nested_umount_proc(stage: Stage) -> None:
    """unmount /proc in nested namespaces"""
    _nest("mount")
    _umount("/proc", _DETACH)


@attempt
def nested_umount_protection(stage: Stage) -> None:
    """unmount what protects .git in nested namespaces"""
    _nest("mount")
    _umount(f"{stage.workspace}/.git", _DETACH)


@attempt
def nested_umount_workspace(stage: Stage) -> None:
    """unmount the workspace in nested namespaces"""
    _nest("mount")
    _umount(stage.workspace, _DETACH)


@attempt
def nested_bind_without_protection(stage: Stage) -> None:
    """mount the workspace elsewhere without what is mounted in it"""
    _nest("mount")
    _mount(stage.workspace, "/mnt", "none", _BIND)
    os.mkdir("/mnt/.git/escaped")


@attempt
def nested_tree_without_protection(stage: Stage) -> None:
    """clone the workspace's mount without what is mounted in it"""
    _nest("mount")
    fd = call("open_tree", -100, stage.workspace.encode(), _CLONE_TREE)
    os.mkdir(".git/escaped", dir_fd=fd)


@attempt
def nested_move(stage: Stage) -> None:
    """move what protects .git in nested namespaces"""
    _nest("mount")
    _mount(f"{stage.workspace}/.git", "/mnt", "none", _MOVE)


@attempt
def nested_overlay(stage: Stage) -> None:
    """write to the outside as the upper layer of an overlay"""
    _nest("mount")
    _mount("tmp", "/mnt", "tmpfs")
    for name in ("lower", "work", "merged"):
        os.mkdir(f"/mnt/{name}")
    data = f"lowerdir=/mnt/lower,upperdir={stage.outside}/dir,workdir={stage.outside}/empty"
    _mount("overlay", "/mnt/merged", "overlay", 0, data)
    change("/mnt/merged/file")


@attempt
def nested_overlay_over_protection(stage: Stage) -> None:
    """write to .git with the workspace as the upper layer of an overlay"""
    _nest("mount")
    _mount("tmp", "/mnt", "tmpfs")
    os.mkdir(f"{stage.workspace}/overlay-work")
    os.mkdir("/mnt/lower")
    os.mkdir("/mnt/merged")
    data = f"lowerdir=/mnt/lower,upperdir={stage.workspace},workdir={stage.workspace}/overlay-work"
    _mount("overlay", "/mnt/merged", "overlay", 0, data)
    os.mkdir("/mnt/merged/.git/escaped")


@attempt
def nested_proc(stage: Stage) -> None:
    """mount a fresh proc, whose settings nothing covers"""
    _nest("mount", "pid")
    pid = os.fork()
    if pid == 0:
        try:
            _mount("proc", "/mnt", "proc")
            os._exit(0)
        except OSError as exc:
            os._exit(exc.errno or 255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


@attempt
def nested_sysfs(stage: Stage) -> None:
    """mount a fresh sysfs"""
    _nest("mount", "net")
    _mount("sysfs", "/mnt", "sysfs")


@attempt
def nested_cgroup(stage: Stage) -> None:
    """mount the control groups anew and make one"""
    _nest("mount", "cgroup")
    _mount("cgroup2", "/mnt", "cgroup2")
    os.mkdir("/mnt/escaped")
    os.rmdir("/mnt/escaped")


@attempt
def nested_device(stage: Stage) -> None:
    """make a device node in a nested user namespace"""
    _nest("mount")
    _mount("tmp", "/mnt", "tmpfs")
    os.mknod("/mnt/disk", 0o60600, os.makedev(7, 0))


@attempt
def nested_chroot(stage: Stage) -> None:
    """leave a chroot of a nested user namespace by its open parent"""
    _nest("mount")
    fd = os.open("/", os.O_RDONLY)
    os.chroot("/usr")
    os.fchdir(fd)
    for _ in range(10):
        os.chdir("..")
    os.chroot(".")
    change(f"{stage.outside}/file")


@attempt
def nested_network(stage: Stage) -> None:
    """make an internet socket in a nested network namespace"""
    _nest("net")
    socket.socket(socket.AF_INET)


@attempt
def nested_hostname(stage: Stage) -> None:
    """set the host's name as root of a nested user namespace"""
    _nest()
    call("sethostname", None, 1)


@attempt
def nested_setting(stage: Stage) -> None:
    """write a setting as root of a nested user namespace"""
    _nest()
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))


@attempt
def join_first_process(stage: Stage) -> None:
    """join the mount namespace of process 1"""
    call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), _MOUNT)


@attempt
def join_victim(stage: Stage) -> None:
    """join the mount namespace of a process outside"""
    call("setns", os.open(f"/proc/{stage.victim}/ns/mnt", os.O_RDONLY), _MOUNT)


@attempt
def join_victim_by_pidfd(stage: Stage) -> None:
    """join the namespaces of a process outside by its pidfd"""
    call("setns", call("pidfd_open", stage.victim, 0), _MOUNT)


@attempt
def join_own_user(stage: Stage) -> None:
    """join the own user namespace again, for its capabilities"""
    call("setns", os.open("/proc/self/ns/user", os.O_RDONLY), _USER)


@attempt
def parent_of_the_user_namespace(stage: Stage) -> None:
    """get the parent of the user namespace"""
    fcntl.ioctl(os.open("/proc/self/ns/user", os.O_RDONLY), _GET_PARENT)


@attempt
def parent_of_the_process_namespace(stage: Stage) -> None:
    """get the parent of the PID namespace"""
    fcntl.ioctl(os.open("/proc/self/ns/pid", os.O_RDONLY), _GET_PARENT)


@attempt
def owner_of_the_uts_namespace(stage: Stage) -> None:
    """join the host's user namespace, which owns the UTS namespace"""
    call("setns", fcntl.ioctl(os.open("/proc/self/ns/uts", os.O_RDONLY), _GET_USER), _USER)


@attempt
def mount_tmpfs(stage: Stage) -> None:
    """mount a tmpfs"""
    _mount("tmp", "/mnt", "tmpfs")


@attempt
def mount_bind(stage: Stage) -> None:
    """mount the outside in the workspace"""
    _mount(stage.outside, f"{stage.workspace}/sub", "none", _BIND)


@attempt
def mount_remount(stage: Stage) -> None:
    """make / writable again"""
    _mount("none", "/", "none", _REMOUNT | _BIND)


@attempt
def mount_move(stage: Stage) -> None:
    """move the mount of the workspace"""
    _mount(stage.workspace, "/mnt", "none", _MOVE)


@attempt
def umount_workspace(stage: Stage) -> None:
    """unmount the workspace"""
    _umount(stage.workspace)


@attempt
def umount_settings(stage: Stage) -> None:
    """unmount the cover of /proc/sys"""
    _umount("/proc/sys", _DETACH)


@attempt
def pivot_root(stage: Stage) -> None:
    """pivot_root to where it is"""
    call("pivot_root", b".", b".")


@attempt
def chroot(stage: Stage) -> None:
    """chroot to the workspace"""
    os.chroot(".")


@attempt
def open_tree_clone(stage: Stage) -> None:
    """clone a mount with open_tree"""
    call("open_tree", -100, b"/", _CLONE_TREE)


@attempt
def move_mount(stage: Stage) -> None:
    """move a mount with move_mount"""
    call("move_mount", -100, stage.workspace.encode(), -100, b"/mnt", 0)


@attempt
def fsopen(stage: Stage) -> None:
    """begin a mount with fsopen"""
    call("fsopen", b"tmpfs", 0)


@attempt
def fspick(stage: Stage) -> None:
    """change a mounted file system with fspick"""
    call("fspick", -100, b"/", 0)


@attempt
def mount_setattr(stage: Stage) -> None:
    """make / writable again with mount_setattr"""
    attributes = (ctypes.c_uint64 * 4)(0, _READ_ONLY, 0, 0)
    call("mount_setattr", -100, b"/", 0x8000, attributes, ctypes.sizeof(attributes))


@attempt
def sethostname(stage: Stage) -> None:
    """set the host's name"""
    call("sethostname", None, 1)


@attempt
def setdomainname(stage: Stage) -> None:
    """set the domain's name"""
    call("setdomainname", None, 1)
