"""The kernel's other doors."""

from __future__ import annotations

import ctypes
import mmap

from .attempt import Stage, attempt, call, plain

_BAD = 8


def _register(name: str, text: str, *arguments: object) -> None:
    """A call with arguments that, if it is let through, fail otherwise or do nothing."""

    def tried(stage: Stage) -> None:
        call(name, *arguments)

    tried.__name__ = f"call_{name}"
    tried.__doc__ = text
    attempt(tried)


for _name, _text, *_arguments in (
    ("io_uring_setup", "make an io_uring", 1, ctypes.create_string_buffer(120)),
    ("io_uring_enter", "enter an io_uring", -1, 0, 0, 0, None, 0),
    ("io_uring_register", "register with an io_uring", -1, 0, None, 0),
    ("bpf", "load a BPF program", 5, None, 0),
    ("perf_event_open", "count events of the machine", None, -1, 0, -1, 0),
    ("userfaultfd", "handle own page faults", 1),
    ("add_key", "add a key", b"user", b"escaped", b"x", 1, -2),
    ("request_key", "ask for a key", b"user", b"escaped", None, 0),
    ("keyctl", "use the session's keyring", 0, -3, 0),
    ("kexec_load", "load another kernel", 0, 0, None, 0xFFFF),
    ("kexec_file_load", "load another kernel from a file", -1, -1, 0, None, 0xFFFF),
    ("init_module", "load a kernel module", None, 0, b""),
    ("finit_module", "load a kernel module from a file", -1, b"", 0),
    ("delete_module", "unload a kernel module", b"escaped", 0x800),
    ("reboot", "restart the machine", 0, 0, 0, None),
    ("settimeofday", "set the clock", _BAD, None),
    ("clock_settime", "set a clock", 0, None),
    ("acct", "switch accounting", b"/escaped"),
    ("quotactl", "change quotas", 0xFFFF, None, 0, None),
    ("quotactl_fd", "change quotas by a descriptor", -1, 0xFFFF, 0, None),
    ("swapon", "swap to a file", b"/escaped", 0),
    ("swapoff", "stop swapping", b"/escaped"),
    ("syslog", "read the kernel's log", 3, ctypes.create_string_buffer(64), 64),
    ("iopl", "use all I/O ports", 3),
    ("ioperm", "use an I/O port", 0x80, 1, 1),
    ("vhangup", "hang up the terminal", ),
    ("fanotify_init", "watch whole file systems", 4, 0),
    ("open_by_handle_at", "open a file by its handle", -1, None, 0),
):  # fmt: skip
    _register(_name, _text, *_arguments)


@attempt
def adjust_clock(stage: Stage) -> None:
    """adjust the clock"""
    change = (ctypes.c_uint32 * 64)(0x4000)
    call("adjtimex", change)


@attempt
def adjust_a_clock(stage: Stage) -> None:
    """adjust a clock with clock_adjtime"""
    change = (ctypes.c_uint32 * 64)(0x4000)
    call("clock_adjtime", 0, change)


def _run(code: bytes) -> int:
    """Run machine code of x86-64 that returns a number."""
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    result: int = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    return result


@plain
def call_by_interrupt(stage: Stage) -> None:
    """make a 32-bit system call with int 0x80"""
    # mov eax, 20 (getpid); int 0x80; ret
    if _run(b"\xb8\x14\0\0\0\xcd\x80\xc3") < 0:
        raise OSError(38, "")


@attempt
def call_of_x32(stage: Stage) -> None:
    """make a system call of x32"""
    # mov eax, 0x40000027 (getpid); syscall; ret
    if _run(b"\xb8\x27\0\0\x40\x0f\x05\xc3") < 0:
        raise OSError(38, "")


@attempt
def socket_of_x32(stage: Stage) -> None:
    """make an internet socket with a system call of x32"""
    # mov edi, 2; mov esi, 1; xor edx, edx; mov eax, 0x40000029; syscall; ret
    if _run(b"\xbf\2\0\0\0\xbe\1\0\0\0\x31\xd2\xb8\x29\0\0\x40\x0f\x05\xc3") < 0:
        raise OSError(38, "")


@attempt
def socket_by_interrupt(stage: Stage) -> None:
    """make an internet socket with a 32-bit system call"""
    # push rbx; mov eax, 359 (socket); mov ebx, 2; mov ecx, 1; xor edx, edx; int 0x80; pop rbx; ret
    if _run(b"\x53\xb8\x67\1\0\0\xbb\2\0\0\0\xb9\1\0\0\0\x31\xd2\xcd\x80\x5b\xc3") < 0:
        raise OSError(38, "")
