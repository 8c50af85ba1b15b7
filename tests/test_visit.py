"""A network that somebody else made: gone into, used, and put back."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netnskit import USER, bare_network, inside

from launcher.netns import before, visitor
from launcher.netns import visit as visit_module
from launcher.netns.handover import Handover
from launcher.netns.kernel import NETFILTER, ROUTE, Kernel
from launcher.netns.model import HandoverError, Role, Sandbox, Wanted
from launcher.netns.nftables import GET_CHAINS, GET_RULES, GET_TABLES
from launcher.netns.routes import AF_INET, AF_INET6, GET_ADDRESSES, GET_LINKS, addresses, get_routes, links
from launcher.netns.visit import Visit

UP, DOWN = "ip link set lo up", "true"
ANOTHER_INTERFACE = "ip link set lo up; ip tuntap add dev way-out mode tun"
FOREIGN_RULES = "ip link set lo up; nft add table ip somebody"


def state() -> list[object]:
    """All that a visit touches, as the kernel tells it."""
    with Kernel(ROUTE) as kernel:
        network = [
            list(links(kernel.ask(GET_LINKS))),
            sorted(addresses(kernel.ask(GET_ADDRESSES))),
            sorted(route[:12] for family in (AF_INET, AF_INET6) for route in kernel.ask(get_routes(family))),
        ]
    with Kernel(NETFILTER) as kernel:
        return [*network, *(kernel.ask(question) for question in (GET_TABLES, GET_CHAINS, GET_RULES)), sockets()]


def sockets() -> list[str]:
    tables = [Path(f"/proc/thread-self/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6")]
    lines = [line for table in tables for line in table.splitlines()]
    return [line for line in lines if " 0A " in line or " 07 " in line]  # those that listen


def close(handover: Handover) -> None:
    for listener in handover.listeners:
        listener.sock.close()


@pytest.fixture(params=[UP, DOWN], ids=["up", "down"])
def network(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with bare_network(request.param) as made:
        yield made


def refused(pid: int) -> HandoverError:
    with pytest.raises(HandoverError) as caught:
        Visit(pid, Wanted()).join()
    return caught.value


def reach(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=10) as sock:
        return sock.recv(100)


def test_after_a_visit_the_network_is_as_it_was(network: Sandbox) -> None:
    at_first = inside(network, state)
    visit = Visit(network.pid, Wanted())
    handover = visit.join()
    assert handover.full
    assert inside(network, state) != at_first
    close(handover)
    visit.leave()
    assert inside(network, state) == at_first


def test_a_network_can_be_visited_again(network: Sandbox) -> None:
    for _ in range(2):
        visit = Visit(network.pid, Wanted())
        close(visit.join())
        visit.leave()


def test_every_connection_arrives_here(network: Sandbox) -> None:
    visit = Visit(network.pid, Wanted())
    handover = visit.join()
    capture = next(each.sock for each in handover.listeners if each.role is Role.CAPTURE)
    child = os.fork()
    if child == 0:
        select.select([capture], [], [])
        sock, _ = capture.accept()
        sock.sendall(b"the gate")
        os._exit(0)
    assert inside(network, lambda: reach(("192.0.2.7", 4444))) == b"the gate"
    os.waitpid(child, 0)
    close(handover)
    visit.leave()


def test_servers_inside_can_be_reached_while_it_lasts(network: Sandbox) -> None:
    visit = Visit(network.pid, Wanted())
    handover = visit.join()
    with pytest.raises(ConnectionRefusedError):
        visit.connector.connect(9)
    close(handover)
    visit.leave()


def test_our_own_network_is_refused() -> None:
    assert "in the host's own network" in refused(os.getpid()).what


def test_a_second_interface_is_refused_and_named() -> None:
    with bare_network(ANOTHER_INTERFACE) as network:
        at_first = inside(network, state)
        assert refused(network.pid).what.endswith("a way past the gate: way-out")
        assert inside(network, state) == at_first


def test_rules_of_others_are_refused_and_left_alone() -> None:
    with bare_network(FOREIGN_RULES) as network:
        at_first = inside(network, state)
        assert refused(network.pid).what.endswith("has nftables rules of its own: somebody")
        assert inside(network, state) == at_first


def test_a_second_gate_is_refused_and_the_first_stays(network: Sandbox) -> None:
    visit = Visit(network.pid, Wanted())
    handover = visit.join()
    as_the_first_has_it = inside(network, state)
    error = refused(network.pid)
    assert error.what.endswith("has a gate already")
    assert f"--target {network.pid}" in error.hint
    assert inside(network, state) == as_the_first_has_it
    close(handover)
    visit.leave()


def test_a_process_that_is_gone_is_an_error() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert refused(pid).what == f"there is no process {pid}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_network_of_somebody_else_is_refused() -> None:
    with bare_network(UP) as network:
        error = _as_somebody_else(lambda: Visit(network.pid, Wanted()).join())
    assert error == f"the network of process {network.pid} is not ours to join: its user is 0, ours {USER}"


def _as_somebody_else(act: Callable[[], object]) -> str:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgid(int(USER))
        os.setuid(int(USER))
        try:
            act()
        except HandoverError as error:
            os.write(tell, error.what.encode())
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(pid, 0)
    with open(told, encoding="utf-8") as file:
        return file.read()


def test_a_port_that_is_taken_is_named_and_everything_put_back() -> None:
    with bare_network(UP) as network:
        at_first = inside(network, state)
        holder = _listening_inside(network, 3128)
        assert "Address already in use: 127.0.0.1 port 3128" in refused(network.pid).what
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        assert inside(network, state) == at_first


def _listening_inside(network: Sandbox, port: int) -> int:
    """A process there that has the port."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        from launcher.netns.joining import join

        join(network)
        with socket.create_server(("127.0.0.1", port)):
            os.write(tell, b"x")
            signal.pause()
    os.close(tell)
    assert os.read(ready, 1)
    os.close(ready)
    return pid


def test_doubts_put_everything_back(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def doubtful(*_: object) -> None:
        raise HandoverError("the sandbox's network does not hold: a reason", "")

    at_first = inside(network, state)
    monkeypatch.setattr(visitor, "proved", doubtful)
    assert refused(network.pid).what.endswith("a reason")
    assert inside(network, state) == at_first


def test_whoever_is_killed_leaves_nothing_in_the_network(network: Sandbox) -> None:
    at_first = inside(network, state)
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        visit = Visit(network.pid, Wanted())
        visit.join()
        os.write(tell, b"%d" % visit._visitor)
        signal.pause()
    life = os.pidfd_open(int(os.read(told, 20)))
    assert inside(network, state) != at_first
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert select.select([life], [], [], 20)[0]
    assert inside(network, state) == at_first


def test_a_visitor_that_was_killed_is_told_of(network: Sandbox) -> None:
    visit = Visit(network.pid, Wanted())
    close(visit.join())
    os.kill(visit._visitor, signal.SIGKILL)
    with pytest.raises(HandoverError, match=r"ended without an answer|is gone"):
        visit.leave()


def test_what_cannot_be_put_back_is_told(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before, "restore", lambda _: ["a route (Operation not permitted)"])
    visit = Visit(network.pid, Wanted())
    close(visit.join())
    with pytest.raises(HandoverError, match=r"is not as it was: a route \(Operation not permitted\) could not be"):
        visit.leave()


def test_a_visitor_that_hangs_is_ended(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit_module, "PATIENCE", 0.2)
    monkeypatch.setattr(visitor, "run", lambda *_: signal.pause())
    visit = Visit(network.pid, Wanted())
    pid = visit._visitor
    with pytest.raises(HandoverError, match="gave no answer"):
        visit.join()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_was_taken_away_inside_is_no_trouble() -> None:
    with bare_network(UP) as network:
        at_first = inside(network, state)
        visit = Visit(network.pid, Wanted())
        close(visit.join())
        inside(network, lambda: before.restore(before.Before(True, frozenset(), frozenset())))
        visit.leave()
        assert inside(network, state) == at_first


def test_ports_that_cannot_be_had_are_refused_before_the_start() -> None:
    with pytest.raises(HandoverError, match="port 53 of the sandbox is wanted twice"):
        Visit(os.getpid(), Wanted(proxy_port=53))
