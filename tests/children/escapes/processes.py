"""Other processes, and what they share with us."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess

from .attempt import NoGain, Stage, attempt, call, libc, openable, plain

_SEIZE, _TRACEME = 0x4206, 0
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 38, 47
_SI_QUEUE = -1


def _no_signal(pid: int) -> None:
    os.kill(pid, 0)


@plain
def signal_victim(stage: Stage) -> None:
    """signal a process outside"""
    _no_signal(stage.victim)


@plain
def signal_server(stage: Stage) -> None:
    """signal the server"""
    _no_signal(stage.server)


@plain
def signal_keeper(stage: Stage) -> None:
    """signal the server's keeper"""
    _no_signal(stage.keeper)


@plain
def signal_the_servers_group(stage: Stage) -> None:
    """signal the keeper's group"""
    os.killpg(stage.keeper, 0)


@attempt
def signal_first_process(stage: Stage) -> None:
    """signal process 1 outside"""
    os.kill(1, 0)
    if os.path.exists("/proc/2") and not os.path.exists(f"/proc/{stage.victim}"):
        # It is the sandbox's own.
        raise NoGain


@plain
def signal_thread(stage: Stage) -> None:
    """signal a thread outside with tkill"""
    call("tkill", stage.victim, 0)


@plain
def signal_thread_of_a_group(stage: Stage) -> None:
    """signal a thread outside with tgkill"""
    call("tgkill", stage.victim, stage.victim, 0)


@plain
def signal_with_a_value(stage: Stage) -> None:
    """signal a process outside with rt_sigqueueinfo"""
    info = (ctypes.c_int * 32)(0, 0, _SI_QUEUE)
    call("rt_sigqueueinfo", stage.victim, 0, info)


@plain
def signal_by_pidfd(stage: Stage) -> None:
    """signal a process outside by its pidfd"""
    call("pidfd_send_signal", call("pidfd_open", stage.victim, 0), 0, None, 0)


@plain
def descriptor_by_pidfd(stage: Stage) -> None:
    """take a descriptor of a process outside by its pidfd"""
    call("pidfd_getfd", call("pidfd_open", stage.victim, 0), 0, 0)


@attempt
def advice_by_pidfd(stage: Stage) -> None:
    """advise the kernel on the memory of a process outside"""
    vector = (ctypes.c_uint64 * 2)(0, 0)
    call("process_madvise", call("pidfd_open", stage.victim, 0), vector, 1, 20, 0)


@plain
def trace_victim(stage: Stage) -> None:
    """trace a process outside with PTRACE_SEIZE"""
    call("ptrace", _SEIZE, stage.victim, 0, 0)


@attempt
def trace_server(stage: Stage) -> None:
    """trace the server with PTRACE_SEIZE"""
    call("ptrace", _SEIZE, stage.server, 0, 0)


@attempt
def trace_parent(stage: Stage) -> None:
    """trace the parent process"""
    call("ptrace", _SEIZE, os.getppid(), 0, 0)


@plain
def trace_self(stage: Stage) -> None:
    """ask to be traced"""
    call("ptrace", _TRACEME, 0, 0, 0)


def _transfer(name: str, pid: int) -> None:
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
    # Nothing is mapped there: a process that may do it gets EFAULT.
    remote = (ctypes.c_uint64 * 2)(8, 8)
    try:
        call(name, pid, local, 1, remote, 1, 0)
    except OSError as exc:
        if exc.errno != 14:
            raise


@plain
def read_victims_memory(stage: Stage) -> None:
    """read the memory of a process outside with process_vm_readv"""
    _transfer("process_vm_readv", stage.victim)


@plain
def write_victims_memory(stage: Stage) -> None:
    """write the memory of a process outside with process_vm_writev"""
    _transfer("process_vm_writev", stage.victim)


@plain
def compare_with_victim(stage: Stage) -> None:
    """compare descriptors with a process outside"""
    call("kcmp", os.getpid(), stage.victim, 0, 0, 0)


@plain
def move_victims_pages(stage: Stage) -> None:
    """ask where the pages of a process outside are"""
    call("move_pages", stage.victim, 0, None, None, None, 0)


@plain
def priority_of_victim(stage: Stage) -> None:
    """change the priority of a process outside"""
    os.setpriority(os.PRIO_PROCESS, stage.victim, 0)


@plain
def priority_of_everybody(stage: Stage) -> None:
    """change the priority of all processes of the user"""
    # The own one, which is allowed: the tests may run with a low priority.
    os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_PROCESS, 0))
    if not os.path.exists(f"/proc/{stage.victim}"):
        raise NoGain


@plain
def limits_of_victim(stage: Stage) -> None:
    """change the limits of a process outside"""
    resource.prlimit(stage.victim, resource.RLIMIT_CORE)


@plain
def processors_of_victim(stage: Stage) -> None:
    """change the processors of a process outside"""
    os.sched_setaffinity(stage.victim, os.sched_getaffinity(0))


@plain
def scheduling_of_victim(stage: Stage) -> None:
    """change the scheduling of a process outside"""
    os.sched_setscheduler(stage.victim, os.SCHED_OTHER, os.sched_param(0))


@plain
def input_priority_of_victim(stage: Stage) -> None:
    """change the I/O priority of a process outside"""
    call("ioprio_set", 1, stage.victim, 2 << 13 | 4)


@plain
def shared_memory(stage: Stage) -> None:
    """attach System V shared memory of the host"""
    call("shmat", call("shmget", stage.shm_key, 0, 0), None, 0)


@plain
def semaphores(stage: Stage) -> None:
    """use System V semaphores of the host"""
    call("semget", stage.shm_key, 0, 0)


@plain
def message_queue(stage: Stage) -> None:
    """use a System V message queue of the host"""
    call("msgget", stage.shm_key, 0)


@plain
def posix_message_queue(stage: Stage) -> None:
    """open a POSIX message queue of the host"""
    call("mq_open", stage.mq.encode(), os.O_RDWR, 0, None)


@attempt
def become_root(stage: Stage) -> None:
    """change the user id to root's, and gain by it"""
    os.setuid(0)
    _needs_capability()


@attempt
def become_somebody_else(stage: Stage) -> None:
    """change the user id to another's"""
    os.setresuid(1, 1, 1)


@attempt
def change_group(stage: Stage) -> None:
    """change the group id to another's"""
    os.setresgid(1, 1, 1)


@attempt
def change_groups(stage: Stage) -> None:
    """change the supplementary groups"""
    os.setgroups([0])


@attempt
def regain_capabilities(stage: Stage) -> None:
    """set capabilities"""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", header, (ctypes.c_uint32 * 6)(1 << 21, 1 << 21, 0, 0, 0, 0))


@attempt
def ambient_capability(stage: Stage) -> None:
    """raise an ambient capability"""
    if libc.prctl(_PR_CAP_AMBIENT, 2, 21, 0, 0):
        raise OSError(ctypes.get_errno(), "")


@attempt
def allow_privileges(stage: Stage) -> None:
    """take no_new_privs back"""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "")


def _needs_capability() -> None:
    with open("/proc/self/status") as file:
        facts = dict(line.split(":", 1) for line in file)
    if any(int(facts[f"Cap{name}"], 16) for name in ("Eff", "Prm", "Inh", "Amb")):
        return
    raise NoGain


@attempt
def any_capability(stage: Stage) -> None:
    """have any capability left"""
    _needs_capability()


@attempt
def setuid_program(stage: Stage) -> None:
    """run a program of another user that has the setuid bit"""
    said = subprocess.run(
        [f"{stage.outside}/setuid", "-u"], stdout=subprocess.PIPE, check=True, timeout=5
    ).stdout
    if int(said) == os.geteuid():
        raise NoGain


@attempt
def inherited_descriptors(stage: Stage) -> None:
    """find a descriptor of the server's among the own"""
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # That of the listing itself.
            continue
        # Beside the three there is the pipe to the one who counts.
        if int(name) > 2 and not target.startswith("pipe:"):
            return
    raise NoGain


@attempt
def inherited_environment(stage: Stage) -> None:
    """find the server's secret in the own environment"""
    if stage.secret not in " ".join(os.environ.values()):
        raise NoGain


@attempt
def output_of_the_server(stage: Stage) -> None:
    """open the files behind the standard streams for more than was given"""
    openable("/proc/self/fd/1", os.O_RDONLY)
    openable("/proc/self/fd/2", os.O_RDONLY)
    # They are pipes of our own.
    raise NoGain
