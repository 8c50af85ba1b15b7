"""What a command is given, what it is sent, and how it ends, without a terminal; and that nothing stays."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gateprocess import until
from launchkit import PEOPLE, Person, kill, processes, somebody

pytestmark = pytest.mark.scenario

DEFAULT = {"HUP": 129, "INT": 130, "QUIT": 131, "USR1": 138, "USR2": 140, "TERM": 143}
STREAMS = "for n in 0 1 2; do readlink /proc/self/fd/$n; done"
INHERITED = """
    grep -E '^Sig(Ign|Blk)' /proc/self/status
    umask; ulimit -a; nice; cat /proc/self/oom_score_adj; pwd
"""


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as made:
        yield made


@pytest.fixture
def token(person: Person) -> Iterator[str]:
    """A word for the command line, by which all processes of a run are known; none is left at the end."""
    word = f"token{os.urandom(6).hex()}"
    yield word
    try:
        until(lambda: not processes(word))
    finally:
        for pid in processes(word):
            kill(pid)
    assert os.listdir(person.project) == []


# Files


def test_what_is_asked_to_be_hidden_is_not_seen(person: Person) -> None:
    inside, outside = person.project / "private", Path("/etc/hostname")
    inside.mkdir()
    (inside / "note").write_text("hidden")
    person.own()
    try:
        options = ("--hide", "private", "--hide", str(outside))
        done = person.run("sh", "-c", f"ls private; cat {outside}; echo seen", options=options)
        assert done.stdout == b"seen\n"
    finally:
        (inside / "note").unlink()
        inside.rmdir()


# Streams


def test_ten_megabytes_pass_both_ways_unchanged(person: Person) -> None:
    data = os.urandom(10 << 20)
    done = person.run("cat", input=data)
    assert done.stdout == data
    assert done.stderr == b""


def test_output_and_errors_stay_apart(person: Person) -> None:
    done = person.run("sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_streams_are_the_very_same_files(person: Person, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("in", "out", "err")]
    paths[0].write_bytes(b"12345")
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open(mode)) for path, mode in zip(paths, ("rb", "wb", "ab"), strict=True)]
        os.lseek(files[0].fileno(), 2, os.SEEK_SET)
        person.run("sh", "-c", "head -c 1 | cat", stdin=files[0], stdout=files[1], stderr=files[2])
        assert os.lseek(files[0].fileno(), 0, os.SEEK_CUR) > 2, "it shares the place in the file"
    assert paths[1].read_bytes() == b"3"


def test_a_closed_stream_gives_nothing_of_ours_to_the_command(person: Person) -> None:
    somewhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    cases = ["0", "1", "2", "01", "12", "012"]
    script = f"{{ {STREAMS}; }} > found$0"
    started = [person.start("sh", "-c", script, case, preexec_fn=closing(case), **somewhere) for case in cases]
    assert [process.wait() for process in started] == [0] * len(cases)
    for case in cases:
        found = person.project / f"found{case}"
        assert set(found.read_text().split()) <= {"/dev/null", str(found)}, case
        found.unlink()


def closing(numbers: str) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(int(number))

    return close


@pytest.mark.parametrize(("number", "use"), [(0, "cat"), (1, "echo x")])
def test_a_closed_stream_cannot_be_used(person: Person, number: int, use: str) -> None:
    process = person.start(
        "sh", "-c", use, preexec_fn=lambda: os.close(number), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, err = process.communicate()
    assert process.returncode != 0
    assert b"Bad file descriptor" in err or b"I/O error" in err


def test_a_reader_that_goes_ends_the_writer_by_sigpipe(person: Person) -> None:
    with person.start("yes", stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait() == 128 + signal.SIGPIPE


def test_a_pipeline_of_a_shell_ends_as_at_home(person: Person) -> None:
    line = f"{' '.join(person.words('yes'))} | head -n 2"
    done = subprocess.run(
        ["sh", "-c", line], check=False, env=person.env, cwd=person.project, capture_output=True, **person.identity
    )
    assert (done.stdout, done.stderr) == (b"y\ny\n", b"")


def test_nobody_reading_our_own_words_is_no_failure(person: Person) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = person.run("sh", "-c", "exit 4", options=("--verbose",), stderr=writer)
    os.close(writer)
    assert done.returncode == 4


# What is inherited


def limit_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), min(4096, hard)))


def be_nice() -> None:
    os.nice(5)


def ignore(*numbers: signal.Signals) -> Callable[[], None]:
    def set_up() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return set_up


def block_usr1() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


CIRCUMSTANCES: dict[str, Callable[[], object]] = {
    "plain": lambda: None,
    "umask": lambda: os.umask(0o027),
    "few files": limit_files,
    "low priority": be_nice,
    "nohup": ignore(signal.SIGHUP),
    "a background job of a script": ignore(signal.SIGINT, signal.SIGQUIT),
    "a blocked signal": block_usr1,
}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_the_command_inherits_what_it_would_at_home(person: Person, circumstance: str) -> None:
    how = {"preexec_fn": CIRCUMSTANCES[circumstance], "env": person.env, "cwd": person.project, **person.identity}
    at_home = subprocess.run(["sh", "-c", INHERITED], stdin=subprocess.DEVNULL, capture_output=True, check=True, **how)
    launched = person.run("sh", "-c", INHERITED, preexec_fn=CIRCUMSTANCES[circumstance])
    assert launched.stdout == at_home.stdout


def test_a_command_is_as_likely_to_be_killed_for_memory_as_its_launcher(person: Person) -> None:
    first = ["sh", "-c", 'echo 300 > /proc/$$/oom_score_adj && exec "$@"', "sh"]
    words = [*first, *person.words("cat", "/proc/self/oom_score_adj")]
    done = subprocess.run(words, env=person.env, cwd=person.project, capture_output=True, check=True, **person.identity)
    assert done.stdout == b"300\n"


def test_a_parent_that_ignores_its_children_does_not_cost_the_exit_code(person: Person) -> None:
    assert person.run("sh", "-c", "sh -c 'exit 3'; exit $?", preexec_fn=ignore(signal.SIGCHLD)).returncode == 3


# Signals


@contextlib.contextmanager
def running(person: Person, script: str, token: str, **how: object) -> Iterator[subprocess.Popen[bytes]]:
    """A script that has said `ready`."""
    with person.start("sh", "-c", script, token, stdout=subprocess.PIPE, **how) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            kill(process.pid)


def test_signals_reach_a_command_that_handles_them(person: Person, token: str) -> None:
    """With a program of its own that they do not disturb: it is of another group."""
    traps = "; ".join(f"trap 'echo {name}' {name}" for name in DEFAULT)
    script = f"{traps}; echo ready; while :; do setsid -w sleep 0.02; done"
    with running(person, script, token) as process:
        assert process.stdout
        for name in DEFAULT:
            process.send_signal(signal.Signals[f"SIG{name}"])
            assert process.stdout.readline() == f"{name}\n".encode()


def test_a_command_can_clean_up_when_it_is_told_to_end(person: Person, token: str) -> None:
    with running(person, "trap 'echo clean; exit 9' TERM; echo ready; while :; do sleep 0.02; done", token) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == b"clean\n"
        assert process.returncode == 9


def test_a_signal_that_kills_the_command_is_in_the_exit_code(person: Person, token: str) -> None:
    with contextlib.ExitStack() as stack:
        script = "ulimit -c 0; echo ready; exec sleep 1000"
        started = {name: stack.enter_context(running(person, script, token)) for name in DEFAULT}
        for name, process in started.items():
            process.send_signal(signal.Signals[f"SIG{name}"])
        assert {name: process.wait(20) for name, process in started.items()} == DEFAULT


def test_an_interrupt_is_for_the_whole_job(person: Person, token: str) -> None:
    """A shell that runs a program waits for it before it minds the interrupt."""
    with running(person, "echo ready; bash -c 'sleep 1000; exit 5'", token) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_a_signal_that_was_ignored_at_the_start_is_not_forwarded(person: Person, token: str) -> None:
    script = "env --default-signal=HUP sh -c 'echo ready; read line; echo alive'"
    with running(person, script, token, preexec_fn=ignore(signal.SIGHUP), stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGHUP)
        assert process.communicate(b"go\n", timeout=20)[0] == b"alive\n"


def test_a_signal_before_there_is_anyone_to_forward_it_is_not_lost(person: Person, token: str) -> None:
    """The command runs while the launcher still gets its gate ready: stopped there, it finds the signal later."""
    script = "trap 'echo got; exit 8' TERM; echo ready; while :; do sleep 0.02; done"
    with running(person, script, token) as process:
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=20)[0] == b"got\n"
        assert process.returncode == 8


def test_stopping_the_launcher_stops_the_command_and_continuing_goes_on(person: Person, token: str) -> None:
    script = "echo ready; while read line; do echo $line; done"
    with running(person, script, token, stdin=subprocess.PIPE, process_group=0) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGTSTP)
        until(lambda: state(process.pid) == "T")
        until(lambda: "T" in {state(pid) for pid in processes(token) if pid != process.pid})
        process.send_signal(signal.SIGCONT)
        assert process.communicate(b"two\n", timeout=20)[0] == b"two\n"


def state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return "-"


# Exit codes


def test_the_exit_code_is_the_commands_own(person: Person) -> None:
    codes = [0, 1, 2, 124, 125, 126, 127, 130, 255]
    started = [person.start("sh", "-c", f"exit {code}", stderr=subprocess.PIPE) for code in codes]
    assert [(process.communicate()[1], process.returncode) for process in started] == [(b"", code) for code in codes]


@pytest.mark.parametrize("word", ["missing-program", "./missing", "/nowhere/at/all"])
def test_what_is_not_found_is_127(person: Person, word: str) -> None:
    done = person.run(word)
    assert done.returncode == 127
    assert f"{word!r} was not found" in done.stderr.decode()


@pytest.mark.parametrize("word", ["/etc/passwd", "/usr", "./plain", "./script"])
def test_what_cannot_be_executed_is_126(person: Person, word: str) -> None:
    (person.project / "plain").write_text("text")
    script = person.project / "script"
    script.write_text("#!/nowhere/at/all\n")
    script.chmod(0o755)
    person.own()
    try:
        done = person.run(word)
    finally:
        script.unlink()
        (person.project / "plain").unlink()
    assert done.returncode == 126
    assert b"egress: error: " in done.stderr


def test_a_wrong_option_is_2(person: Person) -> None:
    assert person.run("true", options=("--no-such-option",)).returncode == 2


def test_a_bwrap_that_fails_is_125(person: Person, tmp_path: Path) -> None:
    done = person.run("true", env=person.env | {"PATH": f"{shadow(person, 'exit 1')}:{person.env['PATH']}"})
    assert done.returncode == 125
    assert b"egress: error: " in done.stderr


def shadow(person: Person, script: str) -> Path:
    """A directory with a bwrap of our own in it."""
    folder = person.home / "shadow"
    folder.mkdir(exist_ok=True)
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    person.own()
    return folder


def test_a_timeout_lets_the_command_clean_up(person: Person, token: str) -> None:
    script = "trap 'echo clean; exit 0' TERM; while :; do sleep 0.02; done"
    done = person.run("sh", "-c", script, token, options=("--timeout", "1"))
    assert (done.returncode, done.stdout) == (124, b"clean\n")


@pytest.mark.parametrize("person", PEOPLE[-1:], indirect=True)
def test_a_timeout_ends_the_tree_of_a_command_that_does_not_listen(person: Person, token: str) -> None:
    script = "trap '' TERM; (trap '' TERM; setsid sh -c 'sleep 1000' $0 & sleep 1000) & while :; do sleep 1; done"
    done = person.run("sh", "-c", script, token, options=("--timeout", "0.2"))
    assert done.returncode == 124
    assert b"ended after 0.2 s" in done.stderr


def test_what_the_command_leaves_running_ends_with_it(person: Person, token: str) -> None:
    assert person.run("sh", "-c", "setsid sh -c 'sleep 1000' $0 & exit 6", token).returncode == 6
