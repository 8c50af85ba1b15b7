"""`egress proxy --workers N`: one gate of several processes, whatever happens to any of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dnslib import DNSRecord
from gateprocess import PATIENCE, PLAIN, GateProcess, Rules, egress, until
from servers import Echo, Web, greeting

pytestmark = pytest.mark.scenario

Start = Callable[..., GateProcess]
TWO = (*PLAIN, "--workers", "2")


@pytest.fixture(scope="module")
def _servers() -> Iterator[tuple[Web, Echo]]:
    web, echo = Web(greeting), Echo()
    with web.running(), echo.running():
        yield web, echo


@pytest.fixture
def rules(_servers: tuple[Web, Echo]) -> Rules:
    web, echo = _servers
    hosts = {"plain.test": web.port, "other.test": web.port, "echo.test": echo.port}
    return Rules({"plain.test": "", "echo.test": "ports: [7], tls: false"}, hosts)


def children(pid: int) -> list[int]:
    """In the order of their birth."""
    try:
        return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def workers(gate: GateProcess) -> list[int]:
    return children(gate.process.pid)


def dialled(gate: GateProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gate.port), PATIENCE)


def get(gate: GateProcess, host: str) -> str:
    """The status of an answer, or that there was none."""
    try:
        with dialled(gate) as sock:
            sock.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: sock.recv(65536), b"")).decode().partition(" ")[2][:3]
    except OSError:
        return ""


@contextlib.contextmanager
def tunnel(gate: GateProcess) -> Iterator[socket.socket]:
    with dialled(gate) as sock:
        sock.sendall(b"CONNECT echo.test:7 HTTP/1.1\r\nHost: echo.test:7\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"a word")
        assert sock.recv(65536) == b"a word"
        yield sock


def is_cut(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def worker_of(gate: GateProcess, record: dict[str, Any]) -> int:
    """By the number of what it wrote."""
    return (int(record["id"]) - 1) % len(workers(gate))


def seen(gate: GateProcess) -> Counter[int]:
    return Counter(worker_of(gate, record) for record in gate.records(event="decision"))


def ask_until_all_have_answered(gate: GateProcess, host: str = "plain.test") -> list[str]:
    """Many at a time, so that no worker can take them all."""
    answers: list[str] = []

    def more() -> bool:
        answers.extend(at_once(gate, host, 16))
        return len(seen(gate)) == len(workers(gate))

    until(more)
    return answers


def at_once(gate: GateProcess, host: str, count: int) -> list[str]:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(get(gate, host))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class Control(http.client.HTTPConnection):
    """Over the socket of `egress watch`."""

    def __init__(self, gate: GateProcess) -> None:
        super().__init__("egress", timeout=PATIENCE)
        (self._path,) = (gate.home / "run" / "egress").glob("*.sock")

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(self._path))


def asked(gate: GateProcess, path: str, method: str = "GET", body: Any = None) -> str:
    with contextlib.closing(Control(gate)) as control:
        control.request(method, path, None if body is None else json.dumps(body))
        return control.getresponse().read().decode()


def metric(gate: GateProcess, name: str) -> float:
    lines = asked(gate, "/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.split(" ")[0].startswith(name))


def watched(start_gate: Start, tmp_path: Path, rules: Rules, *more: str) -> GateProcess:
    home = tmp_path / "gate0"  # where the first is started
    (home / "run").mkdir(parents=True, mode=0o700)
    return start_gate(rules, *TWO, *more, XDG_RUNTIME_DIR=str(home / "run"))


# --- what it says, and who does the work


def test_several_workers_have_one_port_and_say_it_once(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *PLAIN, "--workers", "3")
    assert len(gate.facts) == 1
    assert len(workers(gate)) == 3
    gate.stop()
    assert gate.said == ["egress: 3 workers carry the connections", "egress: every decision goes to audit.jsonl"]


def test_one_worker_is_one_process(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *PLAIN, "--workers", "1")
    assert workers(gate) == []
    gate.stop()
    assert gate.said == ["egress: every decision goes to audit.jsonl"]


def test_auto_is_one_for_each_core_that_it_may_use(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *PLAIN, "--workers", "auto")
    cores = len(os.sched_getaffinity(0))
    assert len(workers(gate)) == (cores if cores > 1 else 0)
    gate.stop()


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "257", "²", ""])
def test_a_number_of_workers_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    done = egress(tmp_path, "proxy", "--persona", "reviewer", f"--workers={text}")
    assert done.code == 2
    assert done.err.splitlines() == [
        f"egress: error: --workers {text!r} is not a number from 1 to 256, or auto",
        "egress: hint: --workers auto",
    ]


def test_a_log_that_cannot_be_written_stops_the_start_as_it_does_with_one(tmp_path: Path) -> None:
    words = ("proxy", "--persona", "reviewer", "--listen", "127.0.0.1:0", "--audit", str(tmp_path))
    one, two = egress(tmp_path, *words), egress(tmp_path, *words, "--workers", "2")
    assert (two.code, two.out, two.err) == (one.code, one.out, one.err) == (2, "", two.err)


def test_all_workers_serve_the_same_unix_socket(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, "--persona", "p", "--unix", "gate.sock", "--workers", "2")
    path = gate.home / "gate.sock"
    assert gate.facts == ["unix:gate.sock p"]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(str(path))
        sock.sendall(b"GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
    gate.stop()
    assert not path.exists()


# --- one log


def test_numbers_are_unique_and_every_decision_has_its_end(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)
    answers = ask_until_all_have_answered(gate)
    answers += at_once(gate, "plain.test", 100)
    assert set(answers) == {"200"}
    until(lambda: len(gate.records(event="end")) == len(answers))
    decided = [record["id"] for record in gate.records(event="decision")]
    assert len(set(decided)) == len(decided) == len(answers)
    assert sorted(record["id"] for record in gate.records(event="end")) == sorted(decided)
    assert len({record["session"] for record in gate.records()}) == 1
    assert set(seen(gate)) == {0, 1}
    gate.stop()


def test_a_new_worker_numbers_on_from_where_the_dead_one_was(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)
    ask_until_all_have_answered(gate)
    old = workers(gate)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(workers(gate)) == 2 and not set(workers(gate)) & set(old))
    until(lambda: get(gate, "plain.test") == "200")
    ask_until_all_have_answered(gate)
    numbers = [record["id"] for record in gate.records(event="decision")]
    assert len(set(numbers)) == len(numbers)
    gate.stop()


# --- one policy


@pytest.mark.parametrize("how", ["by itself", "by a signal"])
def test_an_edit_is_taken_up_by_all_workers(start_gate: Start, rules: Rules, how: str) -> None:
    gate = start_gate(rules, *TWO)
    assert set(ask_until_all_have_answered(gate)) == {"200"}
    gate.policy.write_text(rules._replace(deny=["plain.test"]).text)
    if how == "by a signal":
        gate.process.send_signal(signal.SIGHUP)
    until(lambda: gate.records(event="policy", error=None))
    until(lambda: set(at_once(gate, "plain.test", 32)) == {"403"})
    gate.forget()
    assert set(ask_until_all_have_answered(gate)) == {"403"}
    gate.stop()
    assert sum(line.startswith("egress: policy reloaded, generation 2, ") for line in gate.said) == 1


def test_an_edit_ends_what_it_no_longer_allows_in_every_worker(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(tunnel(gate))]
        while len(seen(gate)) < 2:
            tunnels.append(stack.enter_context(tunnel(gate)))
        gate.policy.write_text(rules._replace(deny=["echo.test"]).text)
        assert all(map(is_cut, tunnels))
    until(lambda: len(gate.records(event="end", outcome="revoked")) == len(tunnels))
    gate.stop()


def test_a_bad_edit_changes_no_worker_also_none_that_is_started_after_it(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)
    gate.policy.write_text(rules._replace(deny=["other.test"]).text.replace("plain.test", "more.test"))
    until(lambda: gate.records(event="policy", generation=2))
    gate.policy.write_text("version: 1\npersonas: nonsense\n")
    until(lambda: [each for each in gate.records(event="policy") if each["error"]])
    old = workers(gate)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(workers(gate)) == 2 and not set(workers(gate)) & set(old))
    until(lambda: set(at_once(gate, "plain.test", 16)) == {"403"})
    gate.forget()
    assert set(ask_until_all_have_answered(gate)) == {"403"}
    gate.stop()


def test_an_edit_while_the_worker_that_reads_is_dead_is_not_missed(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)
    lead = workers(gate)[0]
    os.kill(lead, signal.SIGSTOP)  # it sees nothing any more, and is not yet replaced
    gate.policy.write_text(rules._replace(deny=["plain.test"]).text)
    os.kill(lead, signal.SIGKILL)
    until(lambda: gate.records(event="policy", error=None))
    until(lambda: set(at_once(gate, "plain.test", 32)) == {"403"})
    gate.stop()


# --- one limit


def test_connections_are_limited_over_all_workers(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO, "--limit", "connections=6")
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(tunnel(gate))
        assert set(at_once(gate, "plain.test", 12)) == {"503"}
    until(lambda: get(gate, "plain.test") == "200")
    gate.stop()


def test_connections_of_a_worker_that_was_killed_count_no_longer(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO, "--limit", "connections=4")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(tunnel(gate))
        assert get(gate, "plain.test") == "503"
        for pid in workers(gate):
            os.kill(pid, signal.SIGKILL)
        until(lambda: get(gate, "plain.test") == "200")
    gate.stop()


def test_what_a_session_may_upload_is_counted_over_all_workers(start_gate: Start, rules: Rules) -> None:
    more = {"plain.test": "methods: [GET, POST], upload_limit: {session: 1000}"}
    gate = start_gate(rules._replace(allow={**rules.allow, **more}), *TWO)
    answers = [post(gate, b"ten bytes.") for _ in range(150)]
    assert answers == ["200"] * 100 + ["413"] * 50
    assert set(seen(gate)) == {0, 1}
    gate.stop()


def post(gate: GateProcess, body: bytes) -> str:
    with dialled(gate) as sock:
        head = f"POST http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nContent-Length: {len(body)}\r\n"
        sock.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode().partition(" ")[2][:3]


# --- deaths


def test_a_worker_that_is_killed_under_load_is_replaced_and_the_others_serve_on(
    start_gate: Start, rules: Rules
) -> None:
    gate = start_gate(rules, *TWO)
    ask_until_all_have_answered(gate)
    dead = workers(gate)[1]
    answers: list[str] = []

    def load() -> None:
        answers.extend(get(gate, "plain.test") for _ in range(60))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    os.kill(dead, signal.SIGKILL)
    for thread in threads:
        thread.join()
    until(lambda: len(workers(gate)) == 2)
    assert answers.count("200") >= 240 - 4  # all but those that it had in hand
    gate.forget()
    ask_until_all_have_answered(gate)
    gate.stop()
    assert "egress: error: worker 1 was killed by SIGKILL; another is being started" in gate.said


def test_a_worker_that_dies_at_once_again_and_again_ends_the_gate(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)

    def kill() -> bool:
        if len(found := workers(gate)) == 2:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[-1], signal.SIGKILL)  # the youngest, so always the same worker's place
        return gate.process.poll() is not None

    until(kill)
    gate.ended(1)
    assert "egress: hint: see what it says with --workers 1" in gate.said
    assert any("the 6th time at once: the gate ends" in line for line in gate.said)


def test_when_the_parent_is_killed_the_workers_end_in_good_order(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, "--persona", "p", "--listen", "127.0.0.1:0", "--unix", "gate.sock", "--workers", "2")
    orphans = workers(gate)
    with tunnel(gate) as sock:
        gate.process.kill()
        assert is_cut(sock)
        until(lambda: all(map(is_gone, orphans)))
    gate.process.communicate(timeout=PATIENCE)
    assert [record["outcome"] for record in gate.records(event="end")] == ["stopped"]
    assert not (gate.home / "gate.sock").exists()
    assert get(gate, "plain.test") == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_all_workers_end_what_they_carry(start_gate: Start, rules: Rules, number: int) -> None:
    gate = start_gate(rules, *TWO)
    old = workers(gate)
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(tunnel(gate))]
        while len(seen(gate)) < 2:
            tunnels.append(stack.enter_context(tunnel(gate)))
        gate.stop(number)
        assert all(map(is_cut, tunnels))
    assert [record["outcome"] for record in gate.records(event="end")] == ["stopped"] * len(tunnels)
    assert all(map(is_gone, old))


def test_a_worker_that_is_told_to_stop_takes_the_others_with_it(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO)
    old = workers(gate)
    os.kill(old[1], signal.SIGTERM)
    gate.ended()
    assert all(map(is_gone, old))


# --- one view


def test_metrics_and_watchers_see_what_every_worker_does(start_gate: Start, rules: Rules, tmp_path: Path) -> None:
    gate = watched(start_gate, tmp_path, rules, "--ui")
    answers = ask_until_all_have_answered(gate)
    until(lambda: len(gate.records(event="end")) == len(answers))
    until(lambda: metric(gate, "egress_decisions_total") == len(answers))
    until(lambda: metric(gate, "egress_ended_total") == len(answers))
    until(lambda: metric(gate, "egress_decision_seconds_count") == len(answers))
    with contextlib.closing(Control(gate)) as control:
        control.request("GET", "/api/events")
        stream = control.getresponse()
        while not (line := stream.readline()).startswith(b"data: ["):
            pass
    shown = [record["id"] for record in json.loads(line[6:]) if record["event"] == "decision"]
    assert sorted(shown) == sorted(record["id"] for record in gate.records(event="decision"))
    gate.stop()
    assert list((gate.home / "run" / "egress").iterdir()) == []


def test_open_connections_are_counted_over_all_workers(start_gate: Start, rules: Rules, tmp_path: Path) -> None:
    gate = watched(start_gate, tmp_path, rules, "--ui")
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(tunnel(gate))]
        while len(seen(gate)) < 2:
            tunnels.append(stack.enter_context(tunnel(gate)))
        assert metric(gate, "egress_tunnels_open") == len(tunnels)
    gate.stop()


def test_no_worker_leads_anybody_to_the_page(start_gate: Start, rules: Rules, tmp_path: Path) -> None:
    gate = watched(start_gate, tmp_path, rules, "--ui")
    link = next(line for line in gate.said if "the live page is at" in line)
    port = int(link.partition(".localhost:")[2].partition("/")[0])
    hosts = {**rules.hosts, "page.test": port}
    gate.policy.write_text(rules._replace(allow={**rules.allow, "page.test": ""}, hosts=hosts).text)
    until(lambda: gate.records(event="policy", error=None))

    def all_know_of_it() -> bool:
        gate.forget()
        ask_until_all_have_answered(gate, "page.test")
        return not gate.records(event="decision", reason="not_listed")

    until(all_know_of_it)
    refused = {record["id"]: record["reason"] for record in gate.records(event="decision", verdict="deny")}
    assert set(refused.values()) == {"own_listener"}
    assert refused.keys() == {record["id"] for record in gate.records(event="decision")}  # the page says 403 itself
    gate.stop()


def test_the_page_is_there_again_after_the_worker_that_has_it_died(
    start_gate: Start, rules: Rules, tmp_path: Path
) -> None:
    gate = watched(start_gate, tmp_path, rules, "--ui")
    os.kill(workers(gate)[0], signal.SIGKILL)
    assert metric(gate, "egress_info") == 1  # it waited in the socket, which had outlived its worker
    gate.stop()


def test_what_any_worker_asks_is_one_question_and_its_answer_is_for_all(
    start_gate: Start, rules: Rules, tmp_path: Path
) -> None:
    gate = watched(start_gate, tmp_path, rules, "--ask")
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(get(gate, "other.test"))) for _ in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: pending(gate) == [24])
    assert json.loads(asked(gate, "/api/answer", "POST", {"id": 1, "choice": "no"})) == {"taken": True}
    for thread in threads:
        thread.join()
    assert answers == ["403"] * 24
    assert {record["reason"] for record in gate.records(event="decision")} == {"declined"}
    assert set(at_once(gate, "other.test", 24)) == {"403"}  # settled, for each of them
    assert set(seen(gate)) == {0, 1}
    gate.stop()


def pending(gate: GateProcess) -> list[int]:
    """How many connections wait, for each question."""
    with contextlib.closing(Control(gate)) as control:
        control.request("GET", "/api/events")
        stream = control.getresponse()
        while stream.readline() != b"event: questions\n":
            pass
        return [question["count"] for question in json.loads(stream.readline()[6:])["pending"]]


def test_observing_holds_in_every_worker_and_is_said_once(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO, "--observe")
    ask_until_all_have_answered(gate, "other.test")
    assert {record["would_deny"] for record in gate.records(event="decision", verdict="allow")} == {"not_listed"}
    gate.stop()
    assert sum("NOTHING is blocked" in line for line in gate.said) == 1


def test_dns_is_answered_by_one_of_them_also_by_its_successor(start_gate: Start, rules: Rules) -> None:
    gate = start_gate(rules, *TWO, "--dns", "127.0.0.1:0")
    port = int(gate.facts[0].split()[0].rpartition(":")[2])

    def asked_for(host: str) -> str:
        return str(DNSRecord.parse(DNSRecord.question(host).send("127.0.0.1", port, timeout=PATIENCE)).get_a().rdata)

    assert asked_for("plain.test") == "127.0.0.1"
    os.kill(workers(gate)[0], signal.SIGKILL)
    assert asked_for("plain.test") == "127.0.0.1"
    gate.stop()
