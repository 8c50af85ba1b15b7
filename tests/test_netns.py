"""The hand-over, with real sandboxes: what programs inside meet, and what the host gets of it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from netnskit import (
    PYTHON,
    STARTS,
    VIEW,
    Teller,
    bare_network,
    handed_over,
    inside,
    readable_copy,
)
from netnsstory import ANSWER, Bwrap

from launcher.netns import connector, helper, kernel, listening, nftables, proof
from launcher.netns import furnish as furnishing
from launcher.netns import handover as handover_module
from launcher.netns.captured import original_destination
from launcher.netns.furnish import await_loopback, furnish
from launcher.netns.handover import Handover, Joiner
from launcher.netns.model import Capture, HandoverError, Role, Sandbox, Wanted, parse_info
from launcher.netns.namespace import network_of
from launcher.netns.proof import doubts

WANTED = Wanted()
OWN = "192.0.0.8"
ARRIVALS = [
    ("192.0.2.1", 9),
    ("8.8.8.8", 65535),
    ("10.0.0.1", 22),
    ("169.254.169.254", 80),
    ("198.18.0.1", 443),
    ("240.0.0.1", 1),
    ("2001:db8::7", 22),
    ("fd00::1", 443),
    ("64:ff9b::7f00:1", 853),
]


@pytest.fixture(scope="session")
def copy() -> Iterator[Path]:
    with readable_copy() as folder:
        yield folder


@pytest.fixture(params=STARTS)
def tell(request: pytest.FixtureRequest, copy: Path) -> Teller:
    return Teller(request.param, copy)


@pytest.fixture
def network() -> Iterator[Sandbox]:
    with bare_network() as sandbox:
        yield sandbox


@contextlib.contextmanager
def held(*command: str, wanted: Wanted | None = WANTED) -> Iterator[tuple[Joiner, Bwrap]]:
    """A sandbox that waits to be joined and released."""
    with Joiner(wanted) as joiner:
        bwrap = Bwrap([*next(iter(STARTS.values())), *VIEW, "--", *(command or ("true",))], joiner)
        try:
            yield joiner, bwrap
        finally:
            joiner.close()
            bwrap.wait()
            os.close(bwrap.output)


def close(handover: Handover) -> None:
    for listener in handover.listeners:
        listener.sock.close()


def await_end(*pids: int) -> None:
    """Each of these processes ends, whoever's child it is."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            assert select.select([descriptor], [], [], 10)[0], f"process {pid} is still there"
            os.close(descriptor)


# What programs inside meet.


def test_every_connection_arrives_with_the_address_it_was_for(tell: Teller) -> None:
    told = tell(*(("tcp", ip, port) for ip, port in ARRIVALS))
    assert told["seen"] == [["capture", ip, port] for ip, port in ARRIVALS]
    said = f"the capture of {told['ports']['capture']}"
    assert told["inside"] == [[said, ip, port] for ip, port in ARRIVALS]
    assert (told["full"], told["missing"], told["status"]) == (True, [], 0)


def test_a_mapped_address_arrives_as_the_one_it_maps(tell: Teller) -> None:
    assert tell(("tcp", "::ffff:1.2.3.4", 22))["seen"] == [["capture", "1.2.3.4", 22]]


def test_any_name_server_answers_and_it_is_ours(tell: Teller) -> None:
    servers = ["8.8.8.8", "2001:4860:4860::8888", "127.0.0.1", "127.0.0.53", "::1"]
    told = tell(*(("udp", server, 53) for server in servers))
    assert told["inside"] == ["A DATAGRAM"] * 5
    assert told["seen"] == [["dns-udp"]] * 5


def test_a_resolver_is_answered_over_udp_and_tcp(tell: Teller) -> None:
    ask = ("run", "dig", "+short", "+tries=1", "name.example")
    told = tell((*ask, "@9.9.9.9"), (*ask, "@9.9.9.9", "+tcp"), (*ask, "@2620:fe::fe"), (*ask, "@2620:fe::fe", "+tcp"))
    assert told["inside"] == [ANSWER] * 4
    assert told["seen"] == [["dns-udp"], ["dns-tcp", "9.9.9.9", 53], ["dns-udp"], ["dns-tcp", "2620:fe::fe", 53]]


def test_the_c_library_resolves_with_any_resolv_conf(tell: Teller, copy: Path) -> None:
    (copy / "resolv.conf").write_text("nameserver 203.0.113.53\n")
    extra = ["--ro-bind", str(copy / "resolv.conf"), os.path.realpath("/etc/resolv.conf")]
    told = tell(*(("run", "getent", how, "name.example") for how in ("hosts", "ahosts", "ahostsv4")), extra=extra)
    assert [said.split()[:1] for said in told["inside"]] == [[ANSWER]] * 3
    assert ["dns-udp"] in told["seen"]


def test_curl_without_any_proxy_arrives(tell: Teller) -> None:
    told = tell(("run", "curl", "--silent", "--http0.9", "http://203.0.113.5:8080/"))
    assert told["seen"] == [["capture", "203.0.113.5", 8080]]
    assert told["inside"] == [f"the capture of {told['ports']['capture']}"]


def test_other_datagrams_are_refused_and_told_of_once(tell: Teller) -> None:
    told = tell(("udp", "1.2.3.4", 443), ("udp", "1.2.3.4", 443), ("udp", "2001:db8::1", 443), ("udp", "10.0.0.1", 123))
    assert told["inside"] == ["ECONNREFUSED"] * 4
    assert told["seen"] == [
        ["rejected", "udp", "1.2.3.4", 443],
        ["rejected", "udp", "2001:db8::1", 443],
        ["rejected", "udp", "10.0.0.1", 123],
    ]


def test_loopback_inside_is_left_alone(tell: Teller) -> None:
    told = tell(
        *(("among_ourselves", ip) for ip in ("127.0.0.1", "127.1.2.3", "::1", OWN)),
        *(("tcp", ip, 9999) for ip in ("127.0.0.1", "127.9.9.9", "::1", OWN)),
        ("udp", "127.0.0.1", 9999),
    )
    assert told["inside"] == [["neighbour", "note"]] * 4 + ["ECONNREFUSED"] * 5
    assert told["seen"] == []


def test_the_proxy_and_ports_of_the_host_are_where_they_were_wanted(tell: Teller) -> None:
    told = tell(("tcp", "127.0.0.1", 3129), ("tcp", "127.0.0.1", 5432), proxy_port=3129, host_ports=[5432])
    assert told["inside"] == [
        ["the proxy of 3129", "127.0.0.1", 3129],
        ["the host-port of 5432", "127.0.0.1", 5432],
    ]


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_the_host_connects_to_a_server_inside(tell: Teller, ip: str) -> None:
    told = tell(("serve", ip, 3000))
    assert told["seen"] == [["connected", f"served on {ip}"]]
    assert told["inside"] == [[ip]]


def test_without_capture_only_the_named_ports_are_there(tell: Teller) -> None:
    told = tell(("tcp", "127.0.0.1", 3128), ("tcp", "192.0.2.1", 443), ("tcp", "2001:db8::1", 443), capture="off")
    assert told["inside"] == [["the proxy of 3128", "127.0.0.1", 3128], "ENETUNREACH", "ENETUNREACH"]
    assert told["ports"] == {"proxy": 3128}
    assert (told["full"], told["missing"]) == (False, [])


def test_without_nat_the_ports_of_the_policy_are_captured(tell: Teller) -> None:
    told = tell(
        *(("tcp", "192.0.2.1", port) for port in (443, 22, 80)),
        ("tcp", "2001:db8::1", 22),
        ("udp", "127.0.0.1", 53),
        ("udp", "1.2.3.4", 443),
        capture="ports",
        ports=[443, 22],
    )
    said = [said if isinstance(said, str) else said[0] for said in told["inside"]]
    assert said == [
        "the capture of 443",
        "the capture of 22",
        "ECONNREFUSED",
        "the capture of 22",
        "A DATAGRAM",
        "ECONNREFUSED",
    ]
    assert told["seen"][:3] == [
        ["capture", "192.0.2.1", 443],
        ["capture", "192.0.2.1", 22],
        ["capture", "2001:db8::1", 22],
    ]
    assert not told["full"]
    assert "captured are the ports 22 443, and DNS that goes to 127.0.0.1" in told["missing"][0]


def test_the_kernel_itself_answers_no_ping(network: Sandbox) -> None:
    def ping() -> str:
        furnish(Wanted())
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
            sock.settimeout(5)
            sock.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("192.0.2.1", 0))
            return {0: "answered", 3: "unreachable"}[sock.recv(100)[20]]

    assert inside(network, ping) == "unreachable"


# What the host gets.


def test_every_socket_is_in_the_sandboxs_network_does_not_block_and_is_not_inherited() -> None:
    with held(wanted=Wanted(host_ports=(5432,))) as (joiner, _):
        handover = joiner.join()
        assert {listener.role for listener in handover.listeners} == set(Role)
        network = os.stat(f"/proc/{joiner.sandbox}/ns/net").st_ino
        for listener in handover.listeners:
            assert network_of(listener.sock) == handover.network == network
            assert not listener.sock.getblocking()
            assert not listener.sock.get_inheritable()
        close(handover)


def test_connections_wait_for_a_host_that_comes_late() -> None:
    code = "import socket; s = socket.create_connection(('192.0.2.7', 99)); s.send(b'early'); print('sent', flush=True)"
    with held(PYTHON, "-c", code) as (joiner, bwrap):
        handover = joiner.join()
        joiner.release()
        assert os.read(bwrap.output, 4) == b"sent"
        capture = next(each.sock for each in handover.listeners if each.role is Role.CAPTURE)
        sock, _ = capture.accept()
        with sock:
            assert original_destination(sock) == ("192.0.2.7", 99)
            assert sock.recv(10) == b"early"
        close(handover)


def test_the_command_does_not_start_before_the_release() -> None:
    with held("echo", "started") as (joiner, bwrap):
        close(joiner.join())
        assert select.select([bwrap.output], [], [], 0)[0] == []
        joiner.release()
        assert os.read(bwrap.output, 10) == b"started\n"


def test_a_connection_to_the_capture_port_itself_is_one_to_loopback(network: Sandbox) -> None:
    def knock() -> tuple[str, int, int]:
        furnished = furnish(Wanted())
        listener = next(furnished.having(Role.CAPTURE))
        with socket.create_connection(("127.0.0.1", listener.port)):
            sock, _ = listener.sock.accept()
            with sock:
                return (*original_destination(sock), listener.port)

    ip, port, own = inside(network, knock)
    assert (ip, port) == ("127.0.0.1", own)


def test_what_bwrap_tells_of_itself_is_read() -> None:
    assert parse_info(b'{\n    "child-pid": 8310,\n    "net-namespace": 4026532183\n}\n') == Sandbox(8310, 4026532183)
    assert parse_info(b'{ "child-pid": 7 }') == Sandbox(7)
    with pytest.raises(HandoverError, match="expected its child-pid"):
        parse_info(b"")


# What may be missing, and is then told.


def test_a_kernel_that_refuses_the_rules_captures_ports_and_says_so(
    network: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonsense = nftables.Step("nonsense", (nftables.Expression("nonsense", ()),))
    monkeypatch.setattr("launcher.netns.capture.is_reply", lambda: nonsense)
    with handed_over(network, Wanted(ports=(22,))) as (_, handover):
        assert not handover.full
        assert handover.missing[0].startswith("capture of every port (nftables: No such file or directory): captured")
        assert sorted(each.port for each in handover.listeners if each.role is Role.CAPTURE) == [22, 22]


def test_a_kernel_without_the_log_captures_fully_and_says_so(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def no() -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(listening, "refusals", no)
    with handed_over(network, Wanted()) as (_, handover):
        assert handover.full
        assert handover.missing == ("the log of refused datagrams (nflog: Invalid argument)",)
        assert Role.REJECTS not in {each.role for each in handover.listeners}


def test_a_network_without_ipv6_is_captured_and_says_so() -> None:
    setup = "ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
    with bare_network(setup) as sandbox, handed_over(sandbox, Wanted()) as (_, handover):
        assert handover.full
        assert handover.missing == ("IPv6 (the kernel or this network has it off)",)
        assert {each.sock.family for each in handover.listeners} == {socket.AF_INET, socket.AF_NETLINK}


def test_more_ports_than_one_message_carries_are_cut_and_named(network: Sandbox) -> None:
    wanted = Wanted(capture=Capture.PORTS, ports=tuple(range(1000, 1200)))
    with handed_over(network, wanted) as (_, handover):
        assert len([each for each in handover.listeners if each.role is Role.CAPTURE]) == 100
        assert "1049," in handover.missing[0]


# What must not hold.


def sabotaged(*words: str) -> Callable[[], list[str]]:
    def check() -> list[str]:
        furnished = furnish(Wanted())
        subprocess.run(words, check=True)
        return list(doubts(furnished, os.stat("/proc/self/ns/net").st_ino))

    return check


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("ip", "link", "add", "out", "type", "veth"), "expected loopback alone, and up"),
        (("ip", "link", "set", "lo", "down"), "expected loopback alone, and up"),
        (("ip", "route", "del", "local", "default", "dev", "lo"), "no route makes every address local (AF_INET)"),
        (("ip", "-6", "route", "del", "local", "default", "dev", "lo"), "every address local (AF_INET6)"),
        (("nft", "flush chain inet egress divert"), "2 chains with 7 rules, not 2 with 13"),
        (("nft", "flush chain inet egress divert"), "connection (AF_INET): [Errno 113] No route to host"),
        (("nft", "insert rule inet egress divert tcp dport 9 redirect to :3128"), "connection (AF_INET): timed out"),
        (("nft", "flush chain inet egress refuse"), "datagram (AF_INET): timed out"),
        (("nft", "insert rule inet egress refuse udp dport 9 drop"), "datagram (AF_INET6): timed out"),
        (("nft", "insert rule inet egress refuse udp sport 53 drop"), "question (AF_INET): timed out"),
    ],
)
def test_a_network_that_was_tampered_with_is_not_believed(
    network: Sandbox, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setattr(proof, "_PATIENCE", 0.2)
    found = inside(network, sabotaged(*words))
    assert any(reason in doubt for doubt in found), found


def test_a_network_that_was_left_alone_is_believed(network: Sandbox) -> None:
    assert inside(network, sabotaged("true")) == []


def test_a_listener_of_another_network_is_not_believed(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "network_of", lambda sock: 1 if sock.getsockname()[1] == 3128 else 2)

    assert inside(network, lambda: list(doubts(furnish(Wanted()), 2))) == ["the proxy socket is in another network"]


def test_the_host_looks_for_itself_where_each_socket_is(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.netns.joining.setns", lambda _: None)  # so the helper stays where it is
    monkeypatch.setattr(furnishing, "await_loopback", lambda: None)
    monkeypatch.setattr(helper, "doubts", lambda *_: ())
    # Who does not own this network may not even ask whose socket it is.
    says = "not in the sandbox's network: proxy" if os.geteuid() == 0 else "the sandbox's sockets cannot be looked at"
    refuses(network, says, Wanted(proxy_port=0, capture=Capture.OFF))


def test_doubts_stop_the_hand_over_and_end_the_sandbox(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "doubts", lambda *_: iter(["one thing", "another"]))
    with pytest.raises(HandoverError) as caught, handed_over(network, Wanted()):
        pass
    assert caught.value.what == "the sandbox's network does not hold: one thing; another"
    assert "--bridge relay" in caught.value.hint
    await_end(network.pid)


# What can go wrong.


def refuses(network: Sandbox, says: str, wanted: Wanted = WANTED) -> None:
    with pytest.raises(HandoverError, match=re.escape(says)), handed_over(network, wanted):
        pass


def test_a_sandbox_in_our_own_network_is_refused() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        refuses(Sandbox(process.pid), "has no network of its own")
        assert process.wait() == -signal.SIGKILL


def test_a_sandbox_that_is_gone_is_an_error() -> None:
    with bare_network() as sandbox:
        pass
    refuses(sandbox, "joining the sandbox's network: No such file or directory")


def test_a_process_in_another_network_than_bwrap_told_is_not_joined(network: Sandbox) -> None:
    refuses(network._replace(network=1), f"process {network.pid} is not in network 1")


def test_a_bwrap_that_fails_is_an_error() -> None:
    with Joiner(Wanted()) as joiner:
        bwrap = Bwrap(["--no-such-option"], joiner)
        with pytest.raises(HandoverError, match="expected its child-pid") as caught:
            joiner.join()
        assert bwrap.wait() == 1
        os.close(bwrap.output)
    assert "bwrap" in caught.value.hint


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted(host_ports=(3128,)), "port 3128 of the sandbox is wanted twice"),
        (Wanted(host_ports=(5432, 5432)), "port 5432 of the sandbox is wanted twice"),
        (Wanted(host_ports=(53,)), "port 53 of the sandbox is wanted twice"),
        (Wanted(host_ports=tuple(range(9000, 9051))), "51 ports of the host are wanted, expected at most 50"),
    ],
)
def test_ports_that_cannot_be_had_are_refused_before_the_start(wanted: Wanted, says: str) -> None:
    with pytest.raises(HandoverError, match=says):
        Joiner(wanted)


def test_a_port_that_is_taken_is_named(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_module, "objection", lambda _: None)
    refuses(network, "Address already in use: 127.0.0.1 port 3128", Wanted(host_ports=(3128,)))


def test_loopback_is_left_to_bwrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_PATIENCE", 0.05)
    with bare_network("true") as sandbox:
        with pytest.raises(TimeoutError):
            inside(sandbox, await_loopback)
        assert not inside(sandbox, furnishing._loopback_is_up)


# Whoever is killed, and when: the sandbox is ended and nothing is left.


@pytest.mark.parametrize("moment", ["be_alone", "Leash", "doubts", "hand_over"])
def test_a_helper_that_is_killed_is_an_error(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(helper, moment, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    with held("echo", "started") as (joiner, bwrap):
        with pytest.raises(HandoverError, match="ended without an answer"):
            joiner.join()
        assert os.read(bwrap.output, 10) == b""


def test_a_helper_that_hangs_is_given_up_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "doubts", lambda *_: signal.pause())
    monkeypatch.setattr(handover_module, "PATIENCE", 0.5)
    with held("echo", "started") as (joiner, bwrap):
        pid = joiner.pid
        with pytest.raises(HandoverError, match="gave no answer: timed out"):
            joiner.join()
        await_end(pid, joiner.sandbox)
        assert os.read(bwrap.output, 10) == b""


@pytest.mark.parametrize("wanted", [Wanted(), None], ids=["joined", "held"])
@pytest.mark.parametrize("moment", ["started", "ready", "released"])
def test_a_launcher_that_is_killed_takes_the_sandbox_with_it(moment: str, wanted: Wanted | None) -> None:
    reading, writing = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        be_a_launcher(moment, wanted, writing)
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.readline() == f"{moment}\n".encode()
        os.kill(launcher, signal.SIGKILL)
        os.waitpid(launcher, 0)
        # The pipe ends when every process that has it is gone, the command and bwrap too.
        assert file.read() == b""


def be_a_launcher(moment: str, wanted: Wanted | None, output: int) -> NoReturn:
    try:
        joiner = Joiner(wanted)
        os.dup2(output, 1)
        said = "echo released" if moment == "released" else "echo wrong"
        bwrap = Bwrap([*next(iter(STARTS.values())), *VIEW, "--", "sh", "-c", f"{said}; sleep 1000"], joiner, output=1)
        if moment != "started":
            joiner.join()
        if moment == "released":
            joiner.release()
        else:
            os.write(output, f"{moment}\n".encode())
        bwrap.wait()
    finally:
        os._exit(1)


def test_a_joiner_that_is_closed_without_a_release_ends_the_sandbox() -> None:
    with held("echo", "started") as (joiner, bwrap):
        close(joiner.join())
        joiner.close()
        assert os.read(bwrap.output, 10) == b""


def test_a_joiner_that_is_closed_before_it_joined_ends_the_sandbox() -> None:
    with held("echo", "started") as (joiner, bwrap):
        joiner.close()
        assert os.read(bwrap.output, 10) == b""


def test_a_joiner_that_is_closed_after_the_release_leaves_the_sandbox_alone() -> None:
    with held("echo", "started") as (joiner, bwrap):
        close(joiner.join())
        joiner.release()
        joiner.close()
        assert os.read(bwrap.output, 10) == b"started\n"


def test_a_sandbox_whose_network_is_not_wanted_is_held_and_released() -> None:
    with held("echo", "started", wanted=None) as (joiner, bwrap):
        assert joiner.join() == Handover((), 0, full=False, missing=())
        assert joiner.connector is None
        assert select.select([bwrap.output], [], [], 0)[0] == []
        joiner.release()
        assert os.read(bwrap.output, 10) == b"started\n"


def test_a_joiner_that_is_never_used_ends() -> None:
    with Joiner(Wanted()) as joiner:
        pid = joiner.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_hand_over_leaves_no_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    with held() as (joiner, _):
        close(joiner.join())
    assert os.listdir("/proc/self/fd") == before


# The connector.


def test_a_port_where_nobody_listens_is_refused(network: Sandbox) -> None:
    with handed_over(network, Wanted()) as (joiner, _), pytest.raises(ConnectionRefusedError):
        joiner.connector.connect(3000)


def test_sockets_come_in_order_and_tell_when_they_are_there(network: Sandbox) -> None:
    with handed_over(network, Wanted()) as (joiner, handover):
        joiner.connector.request()
        joiner.connector.request(ipv6=True)
        assert select.select([joiner.connector], [], [], 10)[0]
        with joiner.connector.take() as first, joiner.connector.take() as second:
            assert (first.family, second.family) == (socket.AF_INET, socket.AF_INET6)
            assert network_of(first) == network_of(second) == handover.network
            assert not first.getblocking()
            assert not first.get_inheritable()


def test_a_helper_without_descriptors_says_so(network: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(channel: socket.socket) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        connector.serve(channel)

    monkeypatch.setattr(helper, "serve", starved)
    says = "no socket to connect with: Too many open files"
    with handed_over(network, Wanted()) as (joiner, _), pytest.raises(ConnectionError, match=says):
        joiner.connector.connect(3000)


def test_a_helper_that_is_gone_says_so(network: Sandbox) -> None:
    with handed_over(network, Wanted()) as (joiner, _):
        os.kill(joiner.pid, signal.SIGKILL)
        with pytest.raises((ConnectionError, BrokenPipeError)):
            joiner.connector.connect(3000)


def links_in(folder: Path) -> Iterator[str]:
    for link in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # what it had just made may be closed meanwhile
            yield os.readlink(link)


def test_the_helper_holds_nothing_else_of_the_launcher(network: Sandbox) -> None:
    with open(__file__) as file, handed_over(network, Wanted()) as (joiner, _):
        joiner.connector.request()
        joiner.connector.take().close()  # once it serves, it has let go of all that it sent
        folder = Path(f"/proc/{joiner.pid}/fd")
        links = sorted(links_in(folder))
        assert file.name not in links
        kinds = sorted({link.partition(":")[0] for link in links})
        assert kinds == ["/dev/null", "anon_inode", "pipe", "socket"]
        sockets = sum(link.startswith("socket") for link in links)
        assert sockets <= 2  # its channel and what it has just made, and none of the eight that it sent
        assert os.getsid(joiner.pid) != os.getsid(0)
