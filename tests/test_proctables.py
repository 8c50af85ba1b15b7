"""The kernel's tables as text, and what one line of them says."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from gatekit import tcp_pair

from egress import proctables
from egress.proctables import owner, spell, tables

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
GATE, CLIENT = ("127.0.0.1", 3128), ("127.0.0.1", 40000)


def line(near: bytes, far: bytes, inode: int, number: int = 0) -> str:
    return (
        f"{number:4d}: {near.decode()} {far.decode()} 01 00000000:00000000 00:00000000 00000000  1000        0"
        f" {inode} 1 0000000000000000 20 4 30 10 -1\n"
    )


def table(*rows: tuple[tuple[str, int], tuple[str, int], int], name: str = "tcp") -> bytes:
    lines = [line(spell(near, name), spell(far, name), inode, at) for at, (near, far, inode) in enumerate(rows)]
    return (HEAD + "".join(lines)).encode()


@pytest.mark.parametrize(
    ("end", "name", "spelled"),
    [
        (("127.0.0.1", 3128), "tcp", b"0100007F:0C38"),
        (("198.18.0.5", 80), "tcp", b"050012C6:0050"),
        (("::1", 443), "tcp6", b"00000000000000000000000001000000:01BB"),
        (("2001:db8::9", 1), "tcp6", b"B80D0120000000000000000009000000:0001"),
        (("127.0.0.1", 65535), "tcp6", b"0000000000000000FFFF00000100007F:FFFF"),
        (("::ffff:127.0.0.1", 65535), "tcp6", b"0000000000000000FFFF00000100007F:FFFF"),
        (("::ffff:127.0.0.1", 65535), "tcp", b"0100007F:FFFF"),
        (("fe80::1%lo", 1), "tcp6", b"000080FE000000000000000001000000:0001"),
    ],
)
def test_an_address_is_spelled_as_the_kernel_does(
    monkeypatch: pytest.MonkeyPatch, end: tuple[str, int], name: str, spelled: bytes
) -> None:
    monkeypatch.setattr(sys, "byteorder", "little")
    assert spell(end, name) == spelled


def test_the_other_byte_order_is_spelled_as_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    assert spell(("127.0.0.1", 3128), "tcp") == b"7F000001:0C38"


@pytest.mark.parametrize(
    ("ip", "where"),
    [("192.0.2.1", ("tcp", "tcp6")), ("::ffff:192.0.2.1", ("tcp", "tcp6")), ("2001:db8::1", ("tcp6",))],
)
def test_a_version_4_address_may_stand_in_both_tables(ip: str, where: tuple[str, ...]) -> None:
    assert tables(ip) == where


@pytest.mark.parametrize("name", ["tcp", "tcp6"])
def test_the_clients_end_is_found_and_not_the_gates(name: str) -> None:
    assert owner(table((GATE, CLIENT, 7), (CLIENT, GATE, 8), name=name), name, CLIENT, GATE) == 8


def test_a_client_that_was_redirected_is_known_by_its_own_end() -> None:
    name = ("198.18.0.5", 40000)
    assert owner(table((name, ("198.18.0.5", 443), 9)), "tcp", name, ("127.0.0.1", 9999)) == 9


def test_of_two_with_one_end_it_is_the_one_that_leads_here() -> None:
    rows = table((CLIENT, ("127.0.0.1", 80), 1), (CLIENT, GATE, 2))
    assert owner(rows, "tcp", CLIENT, GATE) == 2


def test_of_two_with_one_end_that_lead_elsewhere_it_is_neither() -> None:
    rows = table((CLIENT, ("127.0.0.1", 80), 1), (CLIENT, ("127.0.0.1", 81), 2))
    assert owner(rows, "tcp", CLIENT, GATE) is None


def test_a_socket_that_nobody_has_any_more_has_no_owner() -> None:
    assert owner(table((CLIENT, GATE, 0)), "tcp", CLIENT, GATE) is None


def test_a_port_that_begins_alike_is_another() -> None:
    longer = table((("127.0.0.1", 0x1234), GATE, 5)).replace(b":1234", b":12345")
    assert owner(longer, "tcp", ("127.0.0.1", 0x1234), GATE) is None


def test_one_is_found_among_thousands() -> None:
    others = [(("127.0.0.1", port), GATE, port) for port in range(1024, 30000)]
    assert owner(table(*others, (CLIENT, GATE, 8), *others), "tcp", CLIENT, GATE) == 8


def test_a_line_that_was_cut_is_none() -> None:
    whole = table((CLIENT, GATE, 123456))
    cut = whole[: whole.index(b"123456") + 3]
    assert owner(whole, "tcp", CLIENT, GATE) == 123456
    assert owner(cut, "tcp", CLIENT, GATE) is None


@pytest.mark.parametrize("text", [b"", b"\n\n", b"0100007F:9C40", b"x " * 50, b"0: 0100007F:9C40 x 1 2 3 4 5 6 no 8"])
def test_what_is_no_table_has_no_owner(text: bytes) -> None:
    assert owner(text, "tcp", CLIENT, GATE) is None


def test_a_socket_of_this_process_is_found_in_the_kernels_own_table() -> None:
    with tcp_pair() as (near, far):
        text = Path("/proc/self/net/tcp").read_bytes()
        ends = near.getsockname(), near.getpeername()
        assert owner(text, "tcp", *ends) == os.fstat(near.fileno()).st_ino
        assert owner(text, "tcp", *reversed(ends)) == os.fstat(far.fileno()).st_ino


def test_a_mapped_socket_of_this_process_is_found_in_the_other_table() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        far, near = server.accept()
        with far:
            found = {name: Path(f"/proc/self/net/{name}").read_bytes() for name in tables(near[0])}
            owners = [owner(text, name, near, server.getsockname()) for name, text in found.items()]
        assert owners == [None, os.fstat(client.fileno()).st_ino]


def test_a_process_has_a_number_in_each_namespace() -> None:
    status = b"Name:\tx\nPid:\t4711\nPPid:\t12\nNSpid:\t4711\t7\t1\nVmPeak:\t1\n"
    assert proctables.pids(status) == (4711, 7, 1)
    assert proctables.parent(status) == 12
    assert proctables.pids(b"Name:\tx\n") == ()
    assert proctables.parent(b"Name:\tx\n") == 0


def test_a_name_that_imitates_the_rest_does_not_change_when_a_process_began() -> None:
    rest = " ".join(["S", *map(str, range(4, 53))])
    assert proctables.started(f"7 (x) {rest}".encode()) == 22
    assert proctables.started(f"7 (a) S 1 2) {rest}".encode()) == 22
    assert proctables.started(b"7 (x) S 1") is None
    assert proctables.started(Path("/proc/self/stat").read_bytes()) is not None


def test_children_are_numbers() -> None:
    assert proctables.children(b"12 13 \n") == [12, 13]
    assert proctables.children(b"") == []
