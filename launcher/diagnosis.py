"""Why bubblewrap cannot make a sandbox here: its words and what is known of the machine, to a cause and its cure.

bwrap says which step the kernel refused, and a refusal has few words: "Operation not permitted" may be a
setting, AppArmor, a container or a chroot. What tells them apart are the machine's settings. So a row of the
table is a pattern for the words and a condition on the facts, and the first that fits is the diagnosis.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Facts(NamedTuple):
    """What decides about namespaces; None where this kernel has no such setting."""

    bwrap: str = "/usr/bin/bwrap"
    is_root: bool = False
    container: str = ""  # its engine
    is_filtered: bool = False  # by a seccomp filter, before we did anything
    is_chroot: bool = False
    is_sandboxed: bool = False  # by ourselves
    clone_allowed: int | None = None  # kernel.unprivileged_userns_clone
    apparmor: int | None = None  # kernel.apparmor_restrict_unprivileged_userns
    most_namespaces: int | None = None  # user.max_user_namespaces


class Diagnosis(NamedTuple):
    what: str
    hint: str


Words = str | Callable[[Facts], str]


class Row(NamedTuple):
    pattern: str
    what: str  # {0} is what the pattern's group found
    hint: Words
    holds: Callable[[Facts], bool] = lambda _: True


def diagnose(stderr: str, facts: Facts) -> Diagnosis:
    for row in TABLE:
        if (match := re.search(row.pattern, stderr)) and row.holds(facts):
            found = match[1] if match.re.groups else ""
            return Diagnosis(row.what.replace("{0}", found), row.hint if isinstance(row.hint, str) else row.hint(facts))
    said = [line.removeprefix("bwrap: ") for line in stderr.splitlines() if line.strip()]
    return Diagnosis(f"bubblewrap failed: {said[-1] if said else 'without a word'}", ASK)


ASK = "egress doctor"


def _setting(name: str, value: int) -> str:
    return f"echo '{name} = {value}' |\n  sudo tee /etc/sysctl.d/60-egress.conf && sudo sysctl --system"


def _profile(facts: Facts) -> str:
    return (
        "sudo tee /etc/apparmor.d/egress-bwrap <<'EOF'\n"
        "abi <abi/4.0>,\n"
        "include <tunables/global>\n"
        f"profile egress-bwrap {facts.bwrap} flags=(unconfined) {{\n"
        "  userns,\n"
        "}\n"
        "EOF\n"
        "sudo apparmor_parser -r /etc/apparmor.d/egress-bwrap"
    )


# How an engine is told to let go of a wall of its own, by what stands in the way.
_ENGINES = {
    "docker": {
        "seccomp": "docker run --security-opt seccomp=unconfined …",
        "mounts": "docker run --security-opt apparmor=unconfined …",
        "proc": "docker run --security-opt systempaths=unconfined …",
    },
    "podman": {
        "seccomp": "podman run --security-opt seccomp=unconfined …",
        "mounts": "podman run --security-opt label=disable …",
        "proc": "podman run --security-opt unmask=ALL …",
    },
    "kubernetes": {
        "seccomp": "securityContext: {seccompProfile: {type: Unconfined}}",
        "mounts": "securityContext: {appArmorProfile: {type: Unconfined}}",
        "proc": "securityContext: {procMount: Unmasked}",
    },
    "lxc": dict.fromkeys(("seccomp", "mounts", "proc"), "incus config set NAME security.nesting=true"),
}


def _engine(wall: str) -> Callable[[Facts], str]:
    return lambda facts: _ENGINES.get(facts.container, _ENGINES["docker"])[wall]


_NO_NAMESPACE = (
    r"No permissions to creat(?:e|ing)(?: a)? new namespace|Creating new namespace failed: Permission denied"
)
_TOO_MANY_NAMESPACES = r"Creating new namespace failed: nesting depth"
_NO_USERS = r"setting up [ug]id map"
_NO_LOOPBACK = r"loopback: .*(?:Operation not permitted|Permission denied)"
_NO_MOUNT = (
    r"(Failed to make / slave|Failed to mount tmpfs|setting up newroot bind|pivot_root|unmount old root"
    r"|Failed to make old root rprivate|Can't (?:bind )?mount \S+(?: on \S+)?|Can't remount readonly on \S+)"
    r".*: (?:Operation not permitted|Permission denied)"
)
_NO_SETTING = r"user.max_user_namespaces.*"  # what --disable-userns writes
_MASKED = "parts of /proc are hidden or read-only here, as in a container, so there can be no new /proc"

TABLE: tuple[Row, ...] = (
    # no user namespace
    Row(
        f"{_NO_NAMESPACE}|{_TOO_MANY_NAMESPACES}",
        "this is a sandbox already, and no other can be made in it",
        "run it outside of the sandbox",
        lambda facts: facts.is_sandboxed,
    ),
    Row(
        _NO_NAMESPACE,
        "only root may make user namespaces (kernel.unprivileged_userns_clone is 0)",
        _setting("kernel.unprivileged_userns_clone", 1),
        lambda facts: facts.clone_allowed == 0 and not facts.is_root,
    ),
    Row(
        _NO_NAMESPACE,
        "in a chroot there can be no user namespaces",
        "enter it otherwise: sudo systemd-nspawn -D DIRECTORY",
        lambda facts: facts.is_chroot,
    ),
    Row(
        _NO_NAMESPACE,
        "a seccomp filter, such as a container's, forbids new namespaces",
        _engine("seccomp"),
        lambda facts: facts.is_filtered,
    ),
    Row(
        f"{_NO_NAMESPACE}|{_NO_USERS}|{_NO_LOOPBACK}",
        "AppArmor keeps ordinary users from using namespaces (Ubuntu 23.10 and later)",
        _profile,
        lambda facts: facts.apparmor == 1 and not facts.is_root,
    ),
    Row(
        _NO_NAMESPACE,
        "the kernel refuses new user namespaces",
        "sysctl -a -r 'userns|user_namespaces'",
    ),
    Row(
        _TOO_MANY_NAMESPACES,
        "user namespaces are switched off (user.max_user_namespaces is 0)",
        _setting("user.max_user_namespaces", 15000),
        lambda facts: facts.most_namespaces == 0,
    ),
    Row(
        _TOO_MANY_NAMESPACES,
        "there are too many namespaces already, or 32 in one another",
        "sysctl -a -r '^user.max_.*_namespaces'",
    ),
    Row(
        r"kernel does not support user namespaces",
        "this kernel has no user namespaces",
        "grep USER_NS /boot/config-$(uname -r) # boot one that has CONFIG_USER_NS=y",
    ),
    Row(
        r"(?:Creating new namespace failed|[Cc]an't fork.*): Resource temporarily unavailable",
        "this user may not have another process",
        "ulimit -u; ps -L -u $(id -u) | wc -l",
    ),
    # no rights in it
    Row(
        _NO_USERS,
        "the new user namespace gets no users: root lacks a capability here",
        "docker run --cap-add SETFCAP … # or start it as an ordinary user",
        lambda facts: facts.is_root,
    ),
    Row(
        _NO_USERS,
        "the new user namespace gets no users, as when /proc is mounted with hidepid",
        "sudo mount -o remount,hidepid=0 /proc",
    ),
    Row(
        r"loopback: Failed RTM_NEW\w+: File exists",
        "loopback is up before bubblewrap brings it up, as in gVisor",
        "docker run --runtime=runc … # any runtime but gVisor's",
    ),
    Row(
        _NO_LOOPBACK,
        "the sandbox's loopback cannot be set up: a filter forbids it",
        _engine("seccomp"),
    ),
    # no file systems
    Row(r"Can't mount proc on", _MASKED, _engine("proc")),
    Row(f"{_NO_SETTING}: Read-only file system", _MASKED, _engine("proc")),
    Row(
        f"{_NO_SETTING}: Permission denied",
        "the settings of a new user namespace cannot be written, as in LXC",
        "incus config set NAME raw.apparmor='allow /proc/sys/user/** rw,'",
    ),
    Row(
        r"unshare user ns|new user namespaces was not disabled",
        "a user namespace cannot be closed: a filter forbids unshare",
        _engine("seccomp"),
    ),
    Row(
        r"pivot_root: Invalid argument",
        "the root directory cannot be exchanged: it is an initramfs, or a chroot",
        "findmnt / # expected: a file system of its own, not rootfs",
    ),
    Row(
        _NO_MOUNT,
        "mounts are forbidden ({0}), by AppArmor, SELinux or a container",
        _engine("mounts"),
    ),
    Row(
        r"Can't find source path (\S+): Permission denied",
        "{0} cannot be reached by this user",
        "give this user access to it, or leave it out",
    ),
    Row(
        r"Can't find source path (\S+): No such file",
        "{0} is not there",
        "create it, or leave it out",
    ),
    Row(
        r"Can't open /proc|overflow[ug]id",
        "/proc is not mounted",
        "sudo mount -t proc proc /proc",
    ),
    # no bubblewrap that can be used
    Row(
        r"Unknown option (\S+)",
        "bubblewrap is too old: it does not know {0}; 0.8 or later is needed",
        "sudo apt-get install --only-upgrade bubblewrap",
    ),
    Row(
        r"Unexpected capabilities but not setuid",
        "bubblewrap was started with capabilities, which it refuses",
        lambda facts: f"sudo setcap -r {facts.bwrap} # or: setpriv --ambient-caps=-all …",
    ),
    Row(
        r"error while loading shared libraries: ([^\s:]+): (?!.*Error 24)",
        "bubblewrap lacks the library {0}",
        "sudo apt-get install --reinstall bubblewrap",
    ),
    # too little of something
    Row(
        r"Too many open files in system",
        "the system has no descriptors left",
        "sudo sysctl -w fs.file-max=1000000",
    ),
    Row(r"Too many open files|Error 24", "there may be no more open files", "ulimit -n 4096"),
    Row(
        r"Can't (?:bind )?mount.*No space left",
        "there may be no more mounts",
        "sudo sysctl -w fs.mount-max=200000",
    ),
    Row(r"No space left on device", "a disk is full", "df -h"),
    Row(r"Cannot allocate memory|Out of memory", "there is no memory left", "free -h"),
    # the command
    Row(
        r"PR_SET_SECCOMP",
        "this kernel takes no seccomp filter",
        "grep SECCOMP /boot/config-$(uname -r) # or use --seccomp off",
    ),
    Row(
        r"execvp (\S+): No such file",
        "{0} is not to be found in the sandbox",
        "egress-launch --ro DIRECTORY … # the one that it is in",
    ),
    Row(
        r"execvp (\S+): (?:Permission denied|Exec format error)",
        "{0} cannot be executed in the sandbox",
        "file COMMAND; ls -l COMMAND",
    ),
)
