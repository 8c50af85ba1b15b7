"""What is mounted in the sandbox, and why: the words, and the tables of what every sandbox gets.

A file system is a list of mounts, each over the ones before it: what is true of a path is said by the
last mount that covers it. So a plan hides widely first and then gives back by name, and every question
of the form "could it see this, could it write this?" is one look at the list.

Masks are cheap, binds are not: bwrap reads its whole mount table for every bind, so that a hundred of
them take 50 ms. Hence a directory is hidden by an empty file system of its own, files are closed one by
one only where the user who starts the sandbox could open them at all, and a tree is bound once, high up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from egress.record import NamedTuple

DEV_NULL = "/dev/null"


class Kind(StrEnum):
    READ = "read-only"  # the host's files
    WRITE = "writable"  # the host's files
    SCRATCH = "private"  # empty at first, gone at the end
    EMPTY = "hidden"  # a directory with nothing in it
    CLOSED = "closed"  # a file that cannot be opened
    TEXT = "replaced"  # a file with words of ours
    GIVEN = "given"  # a file that is made for this run, and read from a pipe
    LINK = "link"  # a symbolic link
    DEVICES = "devices"
    PROCESSES = "processes"


class Mount(NamedTuple):
    kind: Kind
    path: str  # inside
    why: str
    text: str = ""  # of a file of ours; where a link points
    beneath: str = ""  # below this directory the sandbox chooses what paths mean: open, never follow

    @property
    def shows_host(self) -> bool:
        return self.kind in (Kind.READ, Kind.WRITE)


class PlanError(Exception):
    """There can be no such sandbox; `hint` says what would help."""

    def __init__(self, message: str, hint: str = "", status: int = 125) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


def is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(top if top == "/" else top + "/")


def covering(mounts: Sequence[Mount], path: str) -> Mount:
    """The mount that decides what is at a path."""
    return next(mount for mount in reversed(mounts) if is_within(path, mount.path))


def by_depth(mounts: Iterable[Mount]) -> list[Mount]:
    """Parents before what is below them."""
    return sorted(mounts, key=lambda mount: (mount.path.count("/"), mount.path))


class Row(NamedTuple):
    path: str
    why: str


# Directories of the sandbox's own. /tmp and /run are also where sockets of the host live.
SCRATCH = (
    Row("/tmp", "temporary files; X11, ssh-agent and editors keep sockets here"),  # noqa: S108
    Row("/var/tmp", "temporary files"),  # noqa: S108
    Row("/run", "sockets of the host's daemons: D-Bus, docker, systemd"),
    Row("/var/run", "the older name of /run"),
    Row("/dev/shm", "shared memory"),  # noqa: S108
)

# Where people live; $HOME is added to these, wherever it is.
HOMES = (Row("/home", "people's files"), Row("/root", "the administrator's files"))

# What a readable root would still tell. Ordinary users cannot read most of it; a sandbox started by
# root has no capabilities, but it owns root's files.
SECRETS = (
    Row("/etc/shadow", "password hashes"),
    Row("/etc/shadow-", "password hashes"),
    Row("/etc/gshadow", "password hashes"),
    Row("/etc/gshadow-", "password hashes"),
    Row("/etc/security/opasswd", "old passwords"),
    Row("/etc/sudoers", "who may become root"),
    Row("/etc/sudoers.d", "who may become root"),
    Row("/etc/ssh/ssh_host_*_key", "the host's identity"),
    Row("/etc/ssl/private", "private keys"),
    Row("/etc/pki/tls/private", "private keys"),
    Row("/etc/letsencrypt", "private keys"),
    Row("/etc/krb5.keytab", "the host's Kerberos key"),
    Row("/etc/wireguard", "VPN keys"),
    Row("/etc/openvpn", "VPN keys"),
    Row("/etc/NetworkManager/system-connections", "Wi-Fi and VPN passwords"),
    Row("/etc/kubernetes", "cluster credentials"),
    Row("/etc/rancher", "cluster credentials"),
    Row("/var/lib/docker", "containers of the host"),
    Row("/var/lib/containerd", "containers of the host"),
    Row("/var/lib/containers", "containers of the host"),
    Row("/var/lib/kubelet", "secrets of pods"),
    Row("/var/lib/rancher", "cluster credentials"),
    Row("/var/lib/incus", "virtual machines of the host"),
    Row("/var/lib/lxd", "virtual machines of the host"),
    Row("/var/lib/libvirt", "virtual machines of the host"),
    Row("/var/lib/systemd/coredump", "memory of other programs"),
    Row("/var/crash", "memory of other programs"),
    Row("/var/backups", "copies of /etc"),
    Row("/var/log", "what the host logs"),
    Row("/var/mail", "mail"),
    Row("/var/spool", "mail, print and cron jobs"),
    Row("/mnt", "other disks; on WSL the Windows side"),
    Row("/media", "other disks"),
    Row("/boot", "the kernel and its symbols"),
)

# The kernel, seen through a fresh /proc. Root without capabilities may still use these: the kernel only
# asks whose files they are (for others, such as kmsg, it asks for capabilities). And bwrap's own read-only
# binds pass over /proc/sys: its top is not writable, but settings in it are, even that for core dumps.
PROC = (
    Row("/proc/acpi", "hardware"),
    Row("/proc/asound", "hardware"),
    Row("/proc/bus", "hardware"),
    Row("/proc/driver", "hardware"),
    Row("/proc/dynamic_debug", "the kernel's log"),
    Row("/proc/fs", "file systems of the host"),
    Row("/proc/irq", "hardware"),
    Row("/proc/scsi", "hardware"),
    Row("/proc/kallsyms", "addresses in the kernel"),
    Row("/proc/kcore", "memory of the host"),
    Row("/proc/keys", "key rings"),
    Row("/proc/kpagecgroup", "memory of the host"),
    Row("/proc/kpagecount", "memory of the host"),
    Row("/proc/kpageflags", "memory of the host"),
    Row("/proc/latency_stats", "processes of the host"),
    Row("/proc/mtrr", "hardware"),
    Row("/proc/pagetypeinfo", "memory of the host"),
    Row("/proc/sched_debug", "processes of the host"),
    Row("/proc/slabinfo", "memory of the host"),
    Row("/proc/sysrq-trigger", "reboots the host"),
    Row("/proc/timer_list", "processes of the host"),
    Row("/proc/vmallocinfo", "addresses in the kernel"),
)
PROC_SYS = Row("/proc/sys", "settings of the kernel can be read")

# /sys tells what machine and network this is; counting processors is all that programs need of it.
SYS = Row("/sys", "hardware and network devices")
SYS_SHOWN = Row("/sys/devices/system/cpu", "how many processors there are")
