"""What `egress watch` makes of its news, line by line; and the sockets it finds gates by."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from auditkit import decision

from egress import controlsocket
from egress.auditread import Entry
from egress.commands.paper import Paper
from egress.commands.watchboard import ARMED_AFTER, Board
from egress.commands.watchsource import Asked, Ended, Events, Pending

PLAIN = Paper()
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def entries(*records: dict[str, Any]) -> list[Entry]:
    return msgspec.json.decode(json.dumps(records), type=list[Entry])


def question(number: int, host: str = "asked.test") -> Pending:
    return Pending(number, "p", host, 443, "not_listed", deadline=100.0, count=2)


def lines(board: Board, columns: int = 80, rows: int = 24, now: float = 0.0) -> list[str]:
    return board.lines(columns, rows, PLAIN, now, 60.0)


@pytest.mark.parametrize("columns", [20, 40, 59, 60, 80, 100, 200])
@pytest.mark.parametrize("rows", [1, 2, 5, 24])
def test_it_is_never_larger_than_the_terminal(columns: int, rows: int) -> None:
    board = Board()
    board.notice = "egress watch  session k3f9"
    board.take(entries(*(decision(f"{'long' * 40}.example", id=number) for number in range(50))), 0.0)
    board.take(Asked(True, [question(1, "x" * 200)]), 0.0)
    shown = lines(board, columns, rows, now=9.0)
    assert len(shown) <= rows
    assert max(map(len, shown)) <= columns


def test_a_long_name_is_cut_at_its_start() -> None:
    board = Board()
    board.take(entries(decision(f"{'a' * 100}.evil.example")), 0.0)
    assert any(".evil.example:443" in line and "~" in line for line in lines(board))


def test_a_question_can_be_answered_once_it_could_be_read() -> None:
    board = Board()
    board.take(Asked(True, [question(7)]), 10.0)
    assert board.armed(10.0) is None
    assert not any("y once" in line for line in lines(board, now=10.0))
    later = 10.0 + ARMED_AFTER
    assert board.armed(later) == question(7)
    shown = lines(board, now=later)
    assert any("? may p reach asked.test:443" in line and "1 of 1" in line for line in shown)
    assert any("2 connections wait, 40 s left" in line for line in shown)


def test_the_next_question_is_not_answered_by_a_key_that_was_meant_for_the_last() -> None:
    board = Board()
    board.take(Asked(True, [question(1), question(2)]), 0.0)
    board.take(Asked(True, [question(2)]), 5.0)
    assert board.armed(5.0) is None
    assert board.armed(6.0) == question(2)


def test_tab_goes_round_the_questions() -> None:
    board = Board()
    board.take(Asked(True, [question(1), question(2)]), 0.0)
    board.next_question(1.0)
    assert board.question == question(2)
    board.next_question(2.0)
    assert board.question == question(1)


def test_a_list_that_is_held_gets_what_came_meanwhile_afterwards() -> None:
    board = Board()
    board.hold()
    board.take(entries(decision("later.example")), 0.0)
    assert not any("later.example" in line for line in lines(board))
    board.hold()
    assert any("later.example" in line for line in lines(board))


def event(kind: str, data: Any) -> bytes:
    return f"event: {kind}\nid: 3\ndata: {json.dumps(data)}\n\n".encode()


def test_events_are_read_however_they_are_cut() -> None:
    stream = (
        HEAD + event("missed", 4) + event("records", [decision()]) + event("questions", {"asking": True, "pending": []})
    )
    whole = list(Events().feed(stream))
    events = Events()
    assert [news for byte in stream for news in events.feed(bytes((byte,)))] == whole
    assert whole == [entries(decision()), Asked(True, [])]


@pytest.mark.parametrize("stream", [b"HTTP/1.0 403 Forbidden\r\n\r\n", b"x\r\n\r\n", HEAD + event("records", {"x": 1})])
def test_what_is_no_gate_is_left(stream: bytes) -> None:
    with pytest.raises(Ended):
        list(Events().feed(stream))


def test_gates_are_found_the_youngest_first_and_dead_ones_taken_away(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert controlsocket.running(environ) == []
    paths = [controlsocket.make_path(name, environ) for name in ("old", "new", "dead")]
    opened = [socket.socket(socket.AF_UNIX) for _ in paths]
    try:
        for age, (sock, path) in enumerate(zip(opened, paths, strict=True)):
            sock.bind(path)
            sock.listen()
            os.utime(path, (age, age))
        opened[2].close()
        (tmp_path / "egress" / "note.txt").write_text("not a socket")
        assert [gate.session for gate in controlsocket.running(environ)] == ["new", "old"]
        assert not os.path.exists(paths[2])
    finally:
        for sock in opened:
            sock.close()


def test_without_a_runtime_directory_the_sockets_are_beside_the_log(tmp_path: Path) -> None:
    assert controlsocket.directory({"HOME": "/home/u"}) == "/home/u/.local/state/egress/run"
    assert controlsocket.directory({"HOME": "/home/u", "XDG_RUNTIME_DIR": "relative"}).startswith("/home/u/")
    assert controlsocket.directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == f"{tmp_path}/egress"
