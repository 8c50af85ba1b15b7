"""The relay bridge, run as it is run inside: a program between a command and a Unix socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher import relay as relay_module

RELAY = relay_module.__file__
BIG = os.urandom(1 << 20) * 8


class Gate:
    """A Unix socket; each connection is given to `converse` in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.converse: Callable[[socket.socket], None] = echo
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._serving: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was shut down
            while True:
                sock, _ = self._listener.accept()
                self._serving.append(threading.Thread(target=self._serve, args=[sock]))
                self._serving[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            self.converse(sock)

    def close(self) -> None:
        """When all conversations are over."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for thread in self._serving:
            thread.join()
        self._listener.close()


def echo(sock: socket.socket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


def answer_after_the_end(sock: socket.socket) -> None:
    """Half-close: the answer comes when the whole question is there."""
    total = 0
    while data := sock.recv(65536):
        total += len(data)
    sock.sendall(f"{total} bytes".encode())


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with contextlib.closing(Gate(tmp_path / "gate.sock")) as opened:
        yield opened


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def words(gate: Gate | Path, port: int, *command: str) -> list[str]:
    path = gate.path if isinstance(gate, Gate) else gate
    return [sys.executable, "-I", RELAY, str(path), str(port), "--", *command]


def run(gate: Gate | Path, *command: str, port: int | None = None) -> subprocess.CompletedProcess[str]:
    port = free_port() if port is None else port
    command = tuple(word.replace("PORT", str(port)) for word in command)
    return subprocess.run(words(gate, port, *command), capture_output=True, text=True, timeout=30, check=False)


def client(code: str) -> tuple[str, ...]:
    """A program that is connected as `s` before it does anything else."""
    opening = "import socket, sys, os; s = socket.create_connection(('127.0.0.1', PORT)); "
    return (sys.executable, "-c", opening + code)


def test_the_commands_first_connection_is_relayed(gate: Gate) -> None:
    done = run(gate, *client("s.sendall(b'hello'); print(s.recv(5).decode())"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_the_end_of_sending_is_relayed_and_the_answer_still_comes(gate: Gate) -> None:
    gate.converse = answer_after_the_end
    sends = "s.sendall(bytes(3000000)); s.shutdown(1); print(s.makefile().read())"
    assert run(gate, *client(sends)).stdout == "3000000 bytes\n"


def test_the_gates_end_of_sending_is_relayed_and_it_still_listens(gate: Gate) -> None:
    heard = []

    def converse(sock: socket.socket) -> None:
        sock.sendall(b"greeting")
        sock.shutdown(socket.SHUT_WR)
        heard.append(sock.makefile("rb").read())

    gate.converse = converse
    done = run(gate, *client("print(s.makefile().read()); s.sendall(b'late'); s.shutdown(1); s.recv(1)"))
    assert done.stdout == "greeting\n"
    gate.close()
    assert heard == [b"late"]


def test_much_data_goes_both_ways_whole(gate: Gate) -> None:
    code = (
        "import threading, hashlib; data = os.urandom(1 << 20) * 16; "
        "t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(1))); t.start(); "
        "back = s.makefile('rb').read(); t.join(); print(back == data)"
    )
    assert run(gate, *client(code)).stdout == "True\n"


def test_a_client_that_does_not_read_does_not_hold_up_another(gate: Gate) -> None:
    def converse(sock: socket.socket) -> None:
        if sock.recv(1) == b"b":
            with_nobody_reading(sock)
        else:
            sock.sendall(b"quick")

    def with_nobody_reading(sock: socket.socket) -> None:
        sock.settimeout(10)
        with pytest.raises(OSError):  # noqa: PT012  # it ends with the relay
            while True:
                sock.sendall(BIG)

    gate.converse = converse
    other = "t = socket.create_connection(('127.0.0.1', PORT)); t.sendall(b'q'); print(t.recv(5))"
    code = f"s.sendall(b'b'); s.recv(1); {other}"
    assert run(gate, *client(code)).stdout == "b'quick'\n"


def test_what_was_sent_just_before_the_end_still_arrives(gate: Gate) -> None:
    heard = []
    gate.converse = lambda sock: heard.append(len(sock.makefile("rb").read()))
    assert run(gate, *client("s.sendall(bytes(200000)); os._exit(4)")).returncode == 4
    gate.close()
    assert heard == [200000]


def test_many_connections_at_once(gate: Gate) -> None:
    code = (
        "all = [socket.create_connection(('127.0.0.1', PORT)) for _ in range(200)]; "
        "[c.sendall(b'%03d' % n) for n, c in enumerate(all)]; "
        "print(all and [c.recv(3) for c in all] == [b'%03d' % n for n in range(200)])"
    )
    assert run(gate, *client(code)).stdout == "True\n"


def test_a_gate_that_resets_ends_the_connection(gate: Gate) -> None:
    gate.converse = lambda sock: None  # closes with the question unread
    assert run(gate, *client("s.sendall(b'x'); print(s.recv(1))")).stdout in ("b''\n", "")


def test_without_a_gate_connections_end_and_the_command_goes_on(tmp_path: Path) -> None:
    done = run(tmp_path / "nothing.sock", *client("print(s.recv(1)); s.close()"))
    assert (done.returncode, done.stdout) == (0, "b''\n")


def test_it_listens_on_ipv4_loopback_and_nowhere_else(gate: Gate) -> None:
    port = free_port()
    done = run(gate, "ss", "--no-header", "--tcp", "--listening", "--numeric", f"sport = :{port}", port=port)
    assert [line.split()[3] for line in done.stdout.splitlines()] == [f"127.0.0.1:{port}"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM),
        (("sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL),
    ],
)
def test_the_commands_exit_code_is_given_on(gate: Gate, command: tuple[str, ...], code: int) -> None:
    assert run(gate, *command).returncode == code


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("no-such-command", 127, "'no-such-command' cannot be run: not found"),
        ("/etc/passwd", 126, "'/etc/passwd' cannot be run: Permission denied"),
    ],
)
def test_a_command_that_cannot_run_says_so(gate: Gate, command: str, code: int, says: str) -> None:
    done = run(gate, command)
    assert (done.returncode, done.stderr) == (code, f"egress: error: {says}\n")


def test_a_folder_of_the_path_that_cannot_be_entered_is_not_the_commands_fault(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'file'}:{os.environ['PATH']}")
    assert run(gate, "no-such-command").returncode == 127
    assert run(gate, "true").returncode == 0


def test_a_port_that_is_taken_stops_the_start(gate: Gate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(gate, "echo", "started", port=port)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["s", "1", "--"], ["s", "x", "--", "true"], ["s", "1", "true", "x"]])
def test_wrong_words_are_a_usage_error(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-I", RELAY, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected SOCKET PORT -- COMMAND" in done.stderr


def test_the_command_ignores_no_signal_that_python_does(gate: Gate) -> None:
    done = run(gate, "grep", "SigIgn", "/proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    assert ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 1 << signal.SIGINT - 1) == 0


def test_the_command_holds_no_descriptor_of_the_relay(gate: Gate) -> None:
    done = run(gate, sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    assert done.stdout == "[0, 1, 2]\n"


def signalled(number: signal.Signals, code: int) -> tuple[str, ...]:
    """A command that answers this signal in its own way."""
    answer = f"lambda *_: (print('got it', flush=True), os._exit({code}))"
    script = f"import os, signal; signal.signal({int(number)}, {answer}); print('ready', flush=True); signal.pause()"
    return (sys.executable, "-c", script)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_termination_goes_to_the_command_and_its_answer_counts(gate: Gate, number: signal.Signals) -> None:
    command = words(gate, free_port(), *signalled(number, 9))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "got it\n"
        assert process.wait() == 9


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_signal_of_the_terminal_is_the_commands_business(gate: Gate, number: signal.Signals) -> None:
    command = words(gate, free_port(), *signalled(number, 3))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, number)
        assert process.stdout.readline() == "got it\n"
        assert process.wait() == 3


def test_inside_a_sandbox_without_a_network_it_is_the_only_way_out(gate: Gate) -> None:
    code = client("s.sendall(b'from inside'); print(s.recv(20).decode())")
    sandbox = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    inside = words(gate, 3128, *(word.replace("PORT", "3128") for word in code))
    done = subprocess.run([*sandbox, *inside], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "from inside\n")
