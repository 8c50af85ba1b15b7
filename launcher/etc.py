"""Files of /etc that would be wrong inside, with the words that are right there.

    resolv.conf     names a server; which one does not matter, since queries to any are captured
    hosts           the host's, and the sandbox's own name
    nsswitch.conf   where names are asked of a daemon over a socket (systemd-resolved, mDNS) it says
                    "stop if it does not answer": these are left out, so that DNS is reached
    passwd          where the user is known only to a directory service, a line for them

Each is mounted on the file that its path leads to: a mount on a link would follow it, and resolv.conf is
often a link into /run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from launcher.mounts import Kind, Mount, is_within

_MOST_TEXT = 1 << 20
_LOCAL_SERVICES = ("files", "dns", "myhostname")  # these need no daemon


def texts(nameserver: str, hostname: str, user: str, home: str) -> Iterator[Mount]:
    files = {name: _read(f"/etc/{name}") for name in ("hosts", "nsswitch.conf", "passwd")}
    yield from _replaced("resolv.conf", f"nameserver {nameserver}\n", "DNS ends at the gate")
    yield from _replaced("hosts", f"{files['hosts'].rstrip()}\n127.0.0.1 {hostname}\n", "the sandbox's own name")
    if (switch := without_daemons(files["nsswitch.conf"])) != files["nsswitch.conf"]:
        yield from _replaced("nsswitch.conf", switch, "names are asked of DNS, not of daemons")
    if files["passwd"] and not has_user(files["passwd"], os.getuid()):
        line = f"{user}:x:{os.getuid()}:{os.getgid()}::{home}:/bin/sh\n"
        yield from _replaced("passwd", f"{files['passwd'].rstrip()}\n{line}", "the user has a name")


def without_daemons(text: str) -> str:
    return "\n".join(_local(line) if line.startswith("hosts:") else line for line in text.split("\n"))


def _local(line: str) -> str:
    services = [word for word in line.removeprefix("hosts:").split() if not word.startswith("[")]
    if all(service in _LOCAL_SERVICES for service in services):
        return line
    kept = [service for service in services if service in _LOCAL_SERVICES]
    return f"hosts: {' '.join(kept if 'dns' in kept else [*kept, 'dns'])}"


def has_user(passwd: str, uid: int) -> bool:
    return any(line.split(":")[2:3] == [str(uid)] for line in passwd.splitlines())


def _replaced(name: str, text: str, why: str) -> Iterator[Mount]:
    """A mount needs a file to be on: one that exists, or one in /run, which is ours inside."""
    path = os.path.realpath(f"/etc/{name}")
    if os.path.isfile(path) or is_within(path, "/run"):
        yield Mount(Kind.TEXT, path, why, text=text)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_TEXT).decode(errors="surrogateescape")
    except OSError:
        return ""
