"""The seccomp filter of a program under test: no new processes, no network, no signals, no kernel features.

Threads, files within Landlock's bounds, clocks, memory, and sockets that reach nobody stay. What is refused fails with
EPERM, so that a program sees an exception.
"""

import errno
import os
import socket

import pyseccomp as seccomp

_CLONE_THREAD = 0x10000
_PROCESSES = (
    "fork", "vfork", "execve", "execveat", "setsid", "setpgid", "kill", "tkill", "tgkill", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_open",
    "pidfd_getfd", "pidfd_send_signal", "setrlimit", "setpriority", "sched_setscheduler", "sched_setparam",
    "sched_setattr", "ioprio_set",
)  # fmt: skip
_SOCKETS = ("connect", "bind", "listen", "accept", "accept4", "sendto", "sendmsg", "sendmmsg")
_SHARED = (
    "shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "semget", "semop", "semtimedop", "mq_open", "mq_unlink",
    "memfd_create", "memfd_secret",
)  # fmt: skip
_KERNEL = (
    "mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "move_mount", "fsopen", "fsmount",
    "fsconfig", "mount_setattr", "name_to_handle_at", "open_by_handle_at", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key", "init_module",
    "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "syslog", "iopl",
    "ioperm", "modify_ldt", "personality", "lookup_dcookie", "vhangup", "fanotify_init", "inotify_init",
    "inotify_init1", "mknod", "mknodat", "chown", "fchown", "lchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr",
    "seccomp", "landlock_create_ruleset",
)  # fmt: skip
_WRITES = (
    "creat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat",
    "symlink", "symlinkat", "truncate", "chmod", "fchmod", "fchmodat",
)  # fmt: skip
_PRLIMIT_NEW = 2


def table(*, files: bool) -> seccomp.SyscallFilter:
    """The filter, to be loaded by the process that it is for; with `files` false, none writes to files either."""
    found = seccomp.SyscallFilter(seccomp.ALLOW)
    found.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    refused = seccomp.ERRNO(errno.EPERM)
    for name in _PROCESSES + _SOCKETS + _SHARED + _KERNEL:
        _rule(found, refused, name)
    _rule(found, seccomp.ERRNO(errno.ENOSYS), "clone3")
    _rule(found, refused, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, 0))
    _rule(found, refused, "socket", seccomp.Arg(0, seccomp.GT, socket.AF_INET6))
    _rule(found, refused, "socketpair", seccomp.Arg(0, seccomp.NE, socket.AF_UNIX))
    _rule(found, refused, "prlimit64", seccomp.Arg(_PRLIMIT_NEW, seccomp.NE, 0))
    if not files:
        _forbid_writing(found, refused)
    return found


def _forbid_writing(table: seccomp.SyscallFilter, refused: int) -> None:
    for name in _WRITES:
        _rule(table, refused, name)
    _rule(table, seccomp.ERRNO(errno.ENOSYS), "openat2")
    for bit in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC):
        _rule(table, refused, "open", seccomp.Arg(1, seccomp.MASKED_EQ, bit, bit))
        _rule(table, refused, "openat", seccomp.Arg(2, seccomp.MASKED_EQ, bit, bit))


def _rule(table: seccomp.SyscallFilter, action: int, name: str, *arguments: seccomp.Arg) -> None:
    """One rule; a call that this processor, or this libseccomp, does not know needs none."""
    number = seccomp.resolve_syscall(seccomp.Arch.NATIVE, name)
    if number >= 0:
        table.add_rule(action, number, *arguments)
