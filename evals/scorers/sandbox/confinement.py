"""What a process gives up before it runs code we do not trust.

In this order, each step irreversible: own session, resource limits, no identity (nobody, when we are root), no new
privileges, Landlock (read the standard library, nothing else), seccomp (a list of allowed system calls; anything else
is refused, among them sockets, fork, exec, signals to others, ptrace, every way to new kernel surface).

Landlock and seccomp are reached through ctypes, on x86_64 and aarch64. Linux only; `probe` says what this kernel has.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

NOBODY = 65534

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
_SECCOMP_MODE_FILTER = 2

# Landlock: uapi/linux/landlock.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_NUM_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # by ABI; later ones keep 16
_NET_BIND_OR_CONNECT_TCP = 0b11  # from ABI 4
_SCOPE_ABSTRACT_SOCKET_OR_SIGNAL = 0b11  # from ABI 6

READABLE = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/urandom",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one run may use."""

    wall_s: float = 4.0  # hard deadline for everything
    cpu_s: int = 2  # of each process
    memory_bytes: int = 512 << 20  # address space of the answer's process
    file_bytes: int = 1 << 20  # no file can be created, this is the second fence
    num_files: int = 32
    num_processes: int = 256  # counted per uid, hence only set once we are nobody
    output_bytes: int = 8192  # of stdout and stderr kept; the rest is read and thrown away


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """What this kernel lets us use."""

    landlock_abi: int  # 0: none
    seccomp: bool


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def probe() -> Kernel:
    """Ask the kernel; tries the seccomp filter in a child, since it cannot be taken off again."""
    abi = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    return Kernel(landlock_abi=max(0, abi), seccomp=_seccomp_works())


def works(step: Callable[[], None]) -> bool:
    """Whether a step that cannot be undone succeeds here; it is tried in a child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            step()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def drop_identity() -> None:
    """Become nobody; needs root, and a container that lets root do so."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def landlock_ruleset(abi: int, *, readable: list[str]) -> int:
    """A ruleset under which only `readable` files and folders can be read, as a file descriptor to inherit."""
    fs_rights = (1 << _NUM_FS_RIGHTS.get(abi, 16)) - 1
    attributes = struct.pack("=Q", fs_rights)
    if abi >= 4:
        attributes += struct.pack("=Q", _NET_BIND_OR_CONNECT_TCP)
    if abi >= 6:
        attributes += struct.pack("=Q", _SCOPE_ABSTRACT_SOCKET_OR_SIGNAL)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path in readable:
        if os.path.exists(path):
            _allow_reading(ruleset, path)
    return ruleset


def confine(limits: Limits, *, ruleset: int | None, seccomp: bool, nobody: bool) -> None:
    """Give everything up. Raises OSError when a step fails: then nothing untrusted may run."""
    _set_limits(limits)
    if nobody:
        resource.setrlimit(resource.RLIMIT_NPROC, (limits.num_processes, limits.num_processes))
        drop_identity()
    # After the change of identity, which resets both.
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if ruleset is not None:
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
        os.close(ruleset)
    if seccomp:
        _install_filter()


def hide_from_ptrace() -> None:
    """Nobody but root may look into this process's memory."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def adopt_orphans() -> None:
    """Grandchildren whose parent is gone become our children, even from another session (PR_SET_CHILD_SUBREAPER)."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def _set_limits(limits: Limits) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.num_files),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _allow_reading(ruleset: int, path: str) -> None:
    rights = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, folder)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(folder)


# System calls a Python interpreter needs to compute, import and answer: name -> (x86_64, aarch64).
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "stat": (4, None),
    "lstat": (6, None),
    "lseek": (8, 62),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getgroups": (115, 158),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getrandom": (318, 278),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "membarrier": (324, 283),
    "getcwd": (79, 17),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "uname": (63, 160),
    "getrusage": (98, 165),
    "times": (100, 153),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    # send() and recv() on the one socket that was there before; no call that makes a socket is allowed.
    "sendto": (44, 206),
    "recvfrom": (45, 207),
}
_CLONE, _CLONE3, _FCNTL = (56, 220), (435, 435), (72, 25)
_CLONE_THREAD = 0x00010000
_OPEN, _OPENAT = (2, None), (257, 56)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC  # also refused where there is no Landlock
# Not F_SETOWN or F_SETSIG, which make the kernel send a signal to somebody else.
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, JEQ, JGE, JSET, RET
_NR, _ARCH, _FIRST_ARG, _SECOND_ARG, _THIRD_ARG = 0, 4, 16, 24, 32  # offsets in struct seccomp_data, low words
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


@cache
def _filter() -> bytes:
    """The classic BPF program. Refusals are errors, not kills, so that Python can raise and the answer can fail."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    step = lambda code, value, yes=0, no=0: struct.pack("=HBBI", code, yes, no, value)  # noqa: E731
    refuse = step(_RETURN, _ERRNO | errno.EPERM)
    allow = step(_RETURN, _ALLOW)
    program = [step(_LOAD, _ARCH), step(_EQUAL, architecture, 1, 0), step(_RETURN, _KILL), step(_LOAD, _NR)]
    if column == 0:
        # The x32 calls of x86_64 have numbers of their own, from 2^30.
        program += [step(_AT_LEAST, 0x40000000, 0, 1), step(_RETURN, _KILL)]
    for numbers in _ALLOWED.values():
        if numbers[column] is not None:
            program += [step(_EQUAL, numbers[column], 0, 1), allow]
    # Threads may be started, processes may not. clone3 hides its flags from us: absent, so libc falls back to clone.
    program += [step(_EQUAL, _CLONE3[column], 0, 1), step(_RETURN, _ERRNO | errno.ENOSYS)]
    program += [step(_EQUAL, _CLONE[column], 0, 4), step(_LOAD, _FIRST_ARG), step(_BITS, _CLONE_THREAD, 0, 1)]
    program += [allow, refuse]
    for numbers, flags in ((_OPEN, _SECOND_ARG), (_OPENAT, _THIRD_ARG)):
        if numbers[column] is not None:
            program += [step(_EQUAL, numbers[column], 0, 4), step(_LOAD, flags), step(_BITS, _WRITING, 1, 0)]
            program += [allow, refuse]
    program += [step(_EQUAL, _FCNTL[column], 0, 2 + 2 * len(_FCNTL_COMMANDS)), step(_LOAD, _SECOND_ARG)]
    for command in _FCNTL_COMMANDS:
        program += [step(_EQUAL, command, 0, 1), allow]
    return b"".join([*program, refuse, refuse])


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def _install_filter() -> None:
    code = _filter()
    program = _Program(len(code) // 8, code)
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0))


def _seccomp_works() -> bool:
    def refuses_what_is_not_listed() -> None:
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _install_filter()
        try:
            os.getpgid(0)
        except PermissionError:
            return
        os._exit(1)

    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    _filter()  # built here once, for every later fork
    return works(refuses_what_is_not_listed)
