"""The words of the hand-over: which sandbox, what is wanted of it, what was got."""

from __future__ import annotations

from enum import StrEnum

from egress.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import socket

DNS_PORT = 53
MOST_PORTS = 50  # of each kind: one message carries 253 descriptors (SCM_MAX_FD)
DONE, FAILED = "done", "failed"  # how an answer of the helper begins
ELSE = "try --bridge relay, or ask egress doctor what this machine allows"


class HandoverError(Exception):
    """The sandbox's network cannot be set up; it must not start."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class Sandbox(NamedTuple):
    """Its first process, and its network namespace where bwrap has told it (zero where not)."""

    pid: int
    network: int = 0


class Capture(StrEnum):
    FULL = "full"  # every port, every name server
    PORTS = "ports"  # the policy's ports, for a kernel without nat
    OFF = "off"  # the proxy alone


class Wanted(NamedTuple):
    proxy_port: int | None = 3128
    capture: Capture = Capture.FULL
    ports: tuple[int, ...] = (443, 80)  # those that PORTS listens on
    host_ports: tuple[int, ...] = ()  # 127.0.0.1:PORT inside, for services of the host


class Role(StrEnum):
    PROXY = "proxy"
    CAPTURE = "capture"
    DNS_UDP = "dns-udp"
    DNS_TCP = "dns-tcp"
    REJECTS = "rejects"  # not a listener: a netlink socket that tells of refused packets
    HOST_PORT = "host-port"


class Listener(NamedTuple):
    role: Role
    sock: socket.socket

    @property
    def port(self) -> int:
        return int(self.sock.getsockname()[1])


def parse_info(data: bytes) -> Sandbox:
    """What bwrap writes to its --info-fd. It is JSON, but the json module would cost more than the reading."""
    pairs = (pair.partition(b":") for pair in data.translate(None, b'{}" \t\n').split(b","))
    fields = {key: int(value) for key, _, value in pairs if value.isdigit()}
    if b"child-pid" not in fields:
        raise HandoverError(f"bwrap told {data[:80]!r}, expected its child-pid", "see what bwrap itself says above")
    return Sandbox(fields[b"child-pid"], fields.get(b"net-namespace", 0))


def objection(wanted: Wanted) -> str | None:
    """Why this cannot be had, before anyone tries."""
    ports = [wanted.proxy_port, *wanted.host_ports, *([] if wanted.capture is Capture.OFF else [DNS_PORT])]
    for place, port in enumerate(ports):
        if port is not None and port in ports[:place]:
            return f"port {port} of the sandbox is wanted twice"
    if len(wanted.host_ports) > MOST_PORTS:
        return f"{len(wanted.host_ports)} ports of the host are wanted, expected at most {MOST_PORTS}"
    return None
