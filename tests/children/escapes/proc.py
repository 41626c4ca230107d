"""/proc and /sys."""

from __future__ import annotations

import os

from .attempt import NoGain, Stage, attempt, openable, plain


def _write_back(path: str) -> None:
    """Write what is there already."""
    with open(path, "rb") as file:
        content = file.read()
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, content)
    os.close(fd)


@attempt
def hostname_setting(stage: Stage) -> None:
    """write /proc/sys/kernel/hostname"""
    _write_back("/proc/sys/kernel/hostname")


@attempt
def core_pattern(stage: Stage) -> None:
    """write /proc/sys/kernel/core_pattern"""
    _write_back("/proc/sys/kernel/core_pattern")


@attempt
def modprobe_setting(stage: Stage) -> None:
    """write /proc/sys/kernel/modprobe or another setting of programs that the kernel runs"""
    found = [p for p in ("modprobe", "poweroff_cmd") if os.path.exists(f"/proc/sys/kernel/{p}")]
    _write_back(f"/proc/sys/kernel/{found[0]}")


@attempt
def memory_setting(stage: Stage) -> None:
    """write /proc/sys/vm/overcommit_memory"""
    _write_back("/proc/sys/vm/overcommit_memory")


@attempt
def network_setting(stage: Stage) -> None:
    """write /proc/sys/net/ipv4/ip_forward"""
    openable("/proc/sys/net/ipv4/ip_forward")


@attempt
def setting_by_another_path(stage: Stage) -> None:
    """write a setting through /proc/self/root/proc/sys"""
    _write_back("/proc/self/root/proc/sys/kernel/core_pattern")


@attempt
def sysrq(stage: Stage) -> None:
    """open /proc/sysrq-trigger for writing"""
    openable("/proc/sysrq-trigger")


@attempt
def any_machine_file(stage: Stage) -> None:
    """open for writing any file in /proc that is about the machine, except those for all users"""
    found = 0
    for folder, names, files in os.walk("/proc"):
        if folder == "/proc":
            names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self")]
        for name in files:
            path = os.path.join(folder, name)
            try:
                # A file that all users may write only affects its writer, such as /proc/pressure.
                if os.path.islink(path) or os.stat(path).st_mode & 0o002:
                    continue
                openable(path)
                found += 1
            except OSError:
                pass
    if not found:
        raise NoGain


@attempt
def kernel_memory(stage: Stage) -> None:
    """read /proc/kcore"""
    openable("/proc/kcore", os.O_RDONLY)


@attempt
def kernel_log(stage: Stage) -> None:
    """read /proc/kmsg"""
    openable("/proc/kmsg", os.O_RDONLY)


@plain
def victims_environment(stage: Stage) -> None:
    """read the environment of a process outside"""
    openable(f"/proc/{stage.victim}/environ", os.O_RDONLY)


@plain
def victims_memory(stage: Stage) -> None:
    """open the memory of a process outside"""
    openable(f"/proc/{stage.victim}/mem", os.O_RDWR)


@plain
def victims_map(stage: Stage) -> None:
    """read the memory map of a process outside"""
    openable(f"/proc/{stage.victim}/maps", os.O_RDONLY)


@plain
def victims_descriptors(stage: Stage) -> None:
    """see what the descriptors of a process outside are"""
    os.readlink(f"/proc/{stage.victim}/fd/0")


@plain
def victims_stdin(stage: Stage) -> None:
    """open a descriptor of a process outside"""
    openable(f"/proc/{stage.victim}/fd/0", os.O_RDONLY)


@plain
def victims_root(stage: Stage) -> None:
    """write through the root of a process outside"""
    openable(f"/proc/{stage.victim}/root{stage.outside}/file")


@plain
def victims_directory(stage: Stage) -> None:
    """go to the working directory of a process outside"""
    os.chdir(f"/proc/{stage.victim}/cwd")


@plain
def victims_score(stage: Stage) -> None:
    """open oom_score_adj of a process outside for writing"""
    openable(f"/proc/{stage.victim}/oom_score_adj")


@plain
def victims_references(stage: Stage) -> None:
    """open clear_refs of a process outside for writing"""
    openable(f"/proc/{stage.victim}/clear_refs")


@plain
def servers_environment(stage: Stage) -> None:
    """read the server's environment"""
    with open(f"/proc/{stage.server}/environ", "rb") as file:
        if stage.secret.encode() not in file.read():
            raise NoGain


@plain
def servers_memory(stage: Stage) -> None:
    """open the server's memory"""
    openable(f"/proc/{stage.server}/mem", os.O_RDWR)


@plain
def servers_root(stage: Stage) -> None:
    """write through the server's root"""
    openable(f"/proc/{stage.server}/root{stage.outside}/file")


@plain
def servers_descriptors(stage: Stage) -> None:
    """see what the server's descriptors are"""
    os.readlink(f"/proc/{stage.server}/fd/0")


@plain
def keepers_socket(stage: Stage) -> None:
    """see what the keeper's socket is"""
    os.readlink(f"/proc/{stage.keeper}/fd/0")


@attempt
def secret_anywhere(stage: Stage) -> None:
    """find the server's secret in the environment of any process in sight"""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if stage.secret.encode() in file.read():
                        return
            except OSError:
                pass
    raise NoGain


@attempt
def first_process_root(stage: Stage) -> None:
    """write through /proc/1/root"""
    openable(f"/proc/1/root{stage.outside}/file")


@attempt
def first_process_directory(stage: Stage) -> None:
    """write through /proc/1/cwd"""
    openable(f"/proc/1/cwd{stage.outside}/file")


@attempt
def sys_file(stage: Stage) -> None:
    """open any file in /sys/kernel for writing"""
    _any_openable("/sys/kernel")


@attempt
def sys_power(stage: Stage) -> None:
    """open any file in /sys/power or /sys/module for writing"""
    _any_openable("/sys/power", "/sys/module")


@attempt
def sys_block(stage: Stage) -> None:
    """open any file of a block device in /sys for writing"""
    _any_openable("/sys/block", "/sys/devices/virtual")


def _any_openable(*folders: str) -> None:
    """Open the first files that the owner may write; each other error is the sandbox's."""
    refused: OSError | None = None
    tried = 0
    for top in folders:
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                if os.path.islink(path) or not os.lstat(path).st_mode & 0o200 or tried > 500:
                    continue
                tried += 1
                try:
                    openable(path)
                    return
                except OSError as exc:
                    refused = exc
    raise refused or NoGain()


@attempt
def cgroup(stage: Stage) -> None:
    """make a control group"""
    os.mkdir("/sys/fs/cgroup/escaped")
    os.rmdir("/sys/fs/cgroup/escaped")


@attempt
def cgroup_move(stage: Stage) -> None:
    """open cgroup.procs, or another file of the control groups, for writing"""
    names = [n for n in ("cgroup.procs", "release_agent") if os.path.exists(f"/sys/fs/cgroup/{n}")]
    openable(f"/sys/fs/cgroup/{names[0]}" if names else "/sys/fs/cgroup/escaped")
