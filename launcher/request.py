"""What is asked of a sandbox, by the persona and by the user, before anyone has looked whether it is there."""

from __future__ import annotations

from collections.abc import Mapping

from egress.record import TYPE_CHECKING, NamedTuple
from egress.surroundings import Filesystem

if TYPE_CHECKING:
    from launcher.mounts import Mount


class Own(NamedTuple):
    """A file of the gate: the policy can be read inside, the audit log cannot."""

    path: str
    why: str
    hide: bool = True


class Request(NamedTuple):
    command: tuple[str, ...]
    project: str
    directory: str = ""  # where the user is; flags are relative to it
    filesystem: Filesystem = Filesystem()
    write: tuple[str, ...] = ()  # --rw
    read: tuple[str, ...] = ()  # --ro
    sockets: tuple[str, ...] = ()  # --socket
    usual_sockets: tuple[str, ...] = ()  # the persona's
    env: tuple[str, ...] = ()  # the persona's
    set_env: tuple[str, ...] = ()  # --env
    own: tuple[Own, ...] = ()
    files: tuple[Mount, ...] = ()  # texts of ours, such as a certificate
    variables: Mapping[str, str] = {}  # and variables that name them
    proxy: str = "http://127.0.0.1:3128"
    capture: bool = True
    nameserver: str = "198.18.0.1"
    terminal: bool = False  # it has a terminal of our own making
