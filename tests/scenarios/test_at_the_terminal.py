"""The sandbox at a real terminal: what a person sees and types, and how the terminal is left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateprocess import until
from launchkit import PEOPLE, Person, Tty, children, kill, processes, somebody, tty
from programs import need
from tmuxscreen import Screen, screen

pytestmark = pytest.mark.scenario

NAP = f"sleep {10**6 + int.from_bytes(os.urandom(3))}"  # not anybody else's
COUNT = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done"


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as made:
        yield made


@pytest.fixture
def terminal() -> Iterator[Tty]:
    with tty() as made:
        yield made


@pytest.fixture
def shown(person: Person) -> Iterator[Screen]:
    """A shell that, at the end, has no job and its terminal as it was."""
    need("tmux")
    with screen(person) as shell:
        mode = shell.do("stty -g").splitlines()[-2]
        shell.clear()
        yield shell
        if not shell.is_lost:  # that is told, and what runs there would take what we type
            shell.clear()
            assert shell.do("jobs; stty -g").splitlines()[-3:-1] == [f"P{shell.prompts - 1}> jobs; stty -g", mode]


def sleeps() -> bool:
    return f"{NAP} " in processes(NAP.split()[1]).values()


# Programs that fill the screen


def test_an_editor_works_is_suspended_and_comes_back(shown: Screen, person: Person) -> None:
    need("vim")
    shown.enter("launch -- vim -u NONE -i NONE -n note")
    shown.wait_for('"note" [New')
    shown.type("ihello there")
    shown.press("Escape")
    shown.wait_for("hello there")
    shown.press("C-z")
    assert "hello there" not in shown.wait_for_prompt()
    shown.enter("fg")
    shown.wait_for("hello there")
    shown.enter(":wq")
    shown.wait_for_prompt()
    assert (person.project / "note").read_text() == "hello there\n"
    (person.project / "note").unlink()


def test_a_program_follows_the_size_of_the_terminal(shown: Screen) -> None:
    need("vim")
    shown.enter("launch -- vim -u NONE -i NONE -n")
    shown.wait_for("~\n~\n")
    shown.resize(70, 20)
    try:
        shown.wait_until(lambda text: text.count("~") == 18)
        shown.enter(":set lines? columns?")
        text = shown.wait_for("columns=70")
        assert "lines=20" in text
    finally:
        shown.resize(100, 30)
    shown.press("Enter")
    shown.enter(":q")
    shown.wait_for_prompt()


def test_a_pager_works(shown: Screen) -> None:
    need("less")
    shown.enter("launch -- sh -c 'seq 1000 | less'")
    shown.wait_for("\n29\n:")
    shown.press("Space")
    shown.wait_for("\n58\n:")
    shown.press("q")
    shown.wait_for_prompt()


def test_a_monitor_works(shown: Screen) -> None:
    need("top")
    shown.enter("launch -- top")
    shown.wait_until(lambda text: "Tasks:" in text and "PID" in text and "top" in text.rpartition("PID")[2])
    shown.press("q")
    shown.wait_for_prompt()


# Keys and jobs


def test_an_interrupt_ends_the_child_and_not_the_shell_inside(shown: Screen) -> None:
    shown.enter("launch -- bash --norc --noprofile")
    shown.wait_for("bash-")
    shown.enter(f"{NAP}; echo code $?")
    until(sleeps)
    shown.press("C-c")
    shown.wait_until(lambda text: "^C" in text and text.endswith(("$", "#")))
    shown.enter("echo still $((6 * 7))")
    shown.wait_for("still 42")
    shown.enter("exit 3")
    shown.wait_for_prompt()
    assert "\n3\n" in shown.do("echo $?")


def test_many_lines_pasted_into_a_shell_inside_wait_for_enter(shown: Screen, person: Person) -> None:
    shown.enter("launch -- bash --norc --noprofile")
    shown.wait_for("bash-")
    shown.paste("".join(f"echo {number} >> pasted\n" for number in range(200)) + "echo all $((6 * 7))")
    shown.wait_for("all $((6 * 7))")
    assert not (person.project / "pasted").exists()
    shown.press("Enter")
    shown.wait_for_line("all 42")
    assert (person.project / "pasted").read_text() == "".join(f"{number}\n" for number in range(200))
    (person.project / "pasted").unlink()
    shown.enter("exit 0")
    shown.wait_for_prompt()


def test_a_shell_inside_has_its_own_jobs(shown: Screen) -> None:
    shown.enter("launch -- bash --norc --noprofile")
    shown.wait_for("bash-")
    shown.enter(NAP)
    until(sleeps)
    shown.press("C-z")
    shown.wait_for(f"[1]+  Stopped                 {NAP}")
    shown.enter("jobs -r; fg")
    shown.wait_for(f"jobs -r; fg\n{NAP}")
    shown.press("C-c")
    shown.enter("exit 0")
    shown.wait_for_prompt()


def test_a_suspended_command_is_a_job_of_the_shell_outside(shown: Screen) -> None:
    shown.enter(f"launch -- sh -c '{COUNT}'")
    shown.wait_for("line 3")
    shown.press("C-z")
    before = shown.wait_for_prompt()
    assert "Stopped" in before
    assert "Stopped" in shown.do("jobs")
    last = before.count("line ")
    shown.enter("fg")
    shown.wait_for(f"line {last + 2}")
    shown.press("C-c")
    shown.wait_for_prompt()
    assert "\n130\n" in shown.do("echo $?")


CONTINUED = """
import signal
times = []
signal.signal(signal.SIGCONT, lambda *_: times.append(1))
input("ready\\n")
print("continued", sum(times))
"""


def test_a_command_is_continued_once(shown: Screen, person: Person) -> None:
    """Not so with a second signal that comes when it draws its screen anew: vim handles it in the midst of that."""
    (person.project / "program").write_text(CONTINUED)
    shown.enter("launch -- python3 program")
    shown.wait_for_line("ready")
    shown.press("C-z")
    shown.wait_for_prompt()
    shown.enter("fg")
    shown.enter("")
    assert "continued 1\n" in shown.wait_for_prompt()
    (person.project / "program").unlink()


def test_a_suspended_command_goes_on_in_the_background(shown: Screen) -> None:
    shown.enter("launch -- sh -c 'while [ ! -e go ]; do sleep 0.02; done; rm go; echo it is done'")
    until(lambda: processes("it is done"))
    shown.press("C-z")
    shown.wait_for_prompt()
    shown.do("bg; touch go")
    shown.wait_for("> it is done")
    shown.wait_until(lambda _: "Done" in shown.do(":"))


def test_a_background_command_that_reads_waits_for_the_foreground(shown: Screen) -> None:
    shown.do("launch -- cat &")
    shown.wait_until(lambda _: "Stopped" in shown.do("jobs"))
    shown.clear()
    shown.enter("fg")
    shown.wait_for("-- cat")
    shown.enter("some words")
    shown.wait_until(lambda text: text.count("some words") == 2)
    shown.press("C-d")
    shown.wait_for_prompt()


def test_a_command_that_does_not_mind_ctrl_z_is_left_alone(shown: Screen) -> None:
    shown.enter("launch -- bash -c 'trap \"\" TSTP; echo ready; read line; echo $line is read'")
    shown.wait_for_line("ready")
    shown.press("C-z")
    shown.wait_for("^Z")
    shown.enter("word")
    shown.wait_for("word is read")
    shown.wait_for_prompt()


def test_a_shell_inside_that_suspends_itself_gives_the_terminal_back(shown: Screen) -> None:
    shown.enter("launch -- bash --norc --noprofile")
    shown.wait_for("bash-")
    shown.enter("suspend")
    shown.wait_for_prompt()
    shown.enter("fg")
    shown.enter("echo back $((6 * 7))")
    shown.wait_for("back 42")
    shown.enter("exit 0")
    shown.wait_for_prompt()


def test_an_interrupt_ends_the_loop_that_the_command_is_in(shown: Screen) -> None:
    shown.enter(f"for i in 1 2 3; do echo round $i; launch -- {NAP}; done")
    until(sleeps)
    shown.press("C-c")
    assert "round 2" not in shown.wait_for_prompt()


def test_an_interrupt_ends_the_script_that_the_command_is_in(shown: Screen, person: Person) -> None:
    (person.project / "script").write_text(f"launch -- {NAP}\necho goes on\n")
    shown.enter("bash script")
    until(sleeps)
    shown.press("C-c")
    assert "goes on" not in shown.wait_for_prompt()
    assert "\n130\n" in shown.do("echo $?")
    (person.project / "script").unlink()


def test_a_plain_shell_inside_that_does_not_manage_jobs_has_its_exit_code(shown: Screen) -> None:
    need("dash")
    shown.enter("launch -- dash -i +m")
    shown.wait_until(lambda text: text.endswith(("\n$", "\n#")))
    shown.enter("exit 3")
    shown.wait_for_prompt()
    assert "\n3\n" in shown.do("echo $?")


def test_a_shell_goes_on_when_its_launcher_is_killed(shown: Screen) -> None:
    shown.enter(f"launch -- {NAP}")
    until(sleeps)
    kill(min(processes("launcher.cli\0").keys() & processes(NAP.split()[1]).keys()))
    assert "Killed" in shown.wait_for_prompt()
    until(lambda: not sleeps())


# Where only some of the streams are the terminal


def test_a_pager_outside_has_the_keys(shown: Screen) -> None:
    need("less")
    shown.enter("launch -- seq 1000 | less")
    shown.wait_for("\n29\n:")
    shown.press("Space")
    shown.wait_for("\n58\n:")
    shown.press("q")
    shown.wait_for_prompt()


def test_a_pager_inside_has_them_at_the_end_of_a_pipeline(shown: Screen) -> None:
    need("less")
    shown.enter("seq 1000 | launch -- less")
    shown.wait_for("\n29\n:")
    shown.press("Space")
    shown.wait_for("\n58\n:")
    shown.press("q")
    shown.wait_for_prompt()


def test_a_command_whose_output_goes_elsewhere_can_still_ask(shown: Screen) -> None:
    shown.enter("launch -- sh -c 'read line; echo $line is read; read line; echo $line is read' | tr a-z A-Z")
    shown.enter("word")
    shown.wait_for("WORD IS READ")
    shown.enter("another")
    assert "ANOTHER IS READ" in shown.wait_for_prompt()


def test_a_command_whose_output_a_shell_takes_can_still_ask(shown: Screen) -> None:
    """Such a shell has its children ignore the signals of job control."""
    shown.enter("x=$(launch -- sh -c 'read line; echo $line is read'); echo so: $x")
    shown.enter("word")
    shown.wait_for_line("so: word is read")
    shown.wait_for_prompt()


def test_an_interrupt_reaches_a_command_whose_input_is_elsewhere(shown: Screen) -> None:
    shown.enter("launch -- bash -c 'trap \"echo caught; exit 5\" INT; echo ready; sleep 1000' < /dev/null")
    shown.wait_for_line("ready")
    shown.press("C-c")
    text = shown.wait_for_prompt()
    assert "caught\n" in text
    assert "\n5\n" in shown.do("echo $?")


@pytest.mark.parametrize(
    "streams", ["stdin", "stdout", "stderr", "stdin stdout", "stdout stderr", "stdin stdout stderr"]
)
def test_the_sandbox_never_holds_the_users_terminal(person: Person, terminal: Tty, streams: str) -> None:
    others = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr") if name not in streams}
    script = "import os; open('devices', 'w').write(' '.join(str(os.fstat(number).st_rdev) for number in range(3)))"
    terminal.start(person, "python3", "-c", script, **others)
    assert terminal.wait() == 0
    numbers = map(int, (person.project / "devices").read_text().split())
    devices = dict(zip(("stdin", "stdout", "stderr"), numbers, strict=True))
    (person.project / "devices").unlink()
    assert os.fstat(terminal.slave).st_rdev not in devices.values()
    assert {name for name, device in devices.items() if device == os.stat("/dev/null").st_rdev} == set(others)


# Bytes


def test_much_output_arrives_whole(person: Person, terminal: Tty) -> None:
    terminal.start(person, "seq", "200000")
    assert terminal.wait() == 0
    assert terminal.shown == b"".join(b"%d\r\n" % number for number in range(1, 200001))


def test_any_bytes_arrive_as_they_are(person: Person, terminal: Tty) -> None:
    data = os.urandom(12 << 20)
    (person.project / "bytes").write_bytes(data)
    terminal.start(person, "sh", "-c", "stty -opost; cat bytes")
    assert terminal.wait() == 0
    assert terminal.shown == data
    (person.project / "bytes").unlink()


def test_a_new_size_is_told(person: Person, terminal: Tty) -> None:
    script = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.02; done"
    terminal.start(person, "bash", "-c", script)
    terminal.wait_for(b"30 100")
    terminal.resize(24, 80)
    assert terminal.wait() == 0
    assert terminal.shown == b"30 100\r\n24 80\r\n"


def test_the_last_words_arrive(person: Person, terminal: Tty) -> None:
    """Also where nobody looks at the terminal before the command, and all of the sandbox, is gone."""
    token = f"token{os.urandom(6).hex()}"
    process = terminal.start(person, "sh", "-c", "head -c 30000 /dev/zero | tr '\\0' x; echo last words", token)
    until(lambda: len(processes(token)) <= 2 or process.poll() is not None)
    assert terminal.wait() == 0
    assert terminal.shown == b"x" * 30000 + b"last words\r\n"


@pytest.mark.parametrize("mode", ["", "raw"])
def test_a_long_paste_arrives_whole(person: Person, terminal: Tty, mode: str) -> None:
    text = b"".join(b"%070d\n" % number for number in range(100 * 1024 // 71))
    terminal.start(person, "sh", "-c", f"stty -echo {mode}; echo ready; head -c {len(text)} > pasted; echo pasted")
    terminal.wait_for(b"ready")
    terminal.type(text)
    terminal.wait_for(b"pasted")
    assert terminal.wait() == 0
    assert (person.project / "pasted").read_bytes() == text
    (person.project / "pasted").unlink()


def test_a_redirected_error_stream_is_passed_as_it_is(person: Person, terminal: Tty, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("wb") as errors:
        terminal.start(person, "sh", "-c", "echo out; echo err >&2", stderr=errors)
        assert terminal.wait() == 0
    assert (tmp_path / "errors").read_bytes() == b"err\n"
    assert terminal.shown == b"out\r\n"


# How it is left


def test_the_terminal_is_as_before_when_the_launcher_is_killed(person: Person, terminal: Tty) -> None:
    before = terminal.mode()
    process = terminal.start(person, "sh", "-c", "stty raw; echo ready; read line")
    terminal.wait_for(b"ready")
    until(terminal.is_raw)
    process.kill()
    assert terminal.wait() == -signal.SIGKILL
    until(lambda: terminal.mode() == before)


@pytest.mark.parametrize("end", ["exits", "is killed", "leaves it raw", "is told to end"])
def test_the_terminal_is_as_before_when_the_command(person: Person, terminal: Tty, end: str) -> None:
    before = terminal.mode()
    last = "stty raw -echo" if end == "leaves it raw" else ":"
    process = terminal.start(person, "sh", "-c", f"echo ready; read line; {last}")
    terminal.wait_for(b"ready")
    until(terminal.is_raw)
    if end == "is killed":
        kill(command(process.pid))
    elif end == "is told to end":
        process.terminate()
    else:
        terminal.type(b"\r")
    code = {"is killed": 137, "is told to end": 143}.get(end, 0)
    assert terminal.wait() == code
    assert terminal.mode() == before


def command(launcher: int) -> int:
    """Of launcher ── keeper ── bwrap ── pid 1 ── command."""
    keeper = children(launcher)[-1]
    return children(children(children(keeper)[0])[0])[0]


def test_a_terminal_that_is_closed_takes_the_command_with_it(person: Person, terminal: Tty) -> None:
    token = f"token{os.urandom(6).hex()}"
    process = terminal.start(
        person, "sh", "-c", "trap ': > hung-up; exit 0' HUP; echo ready; while :; do sleep 0.02; done", token
    )
    terminal.wait_for(b"ready")
    until(terminal.is_raw)
    terminal.hang_up()
    assert process.wait(20) == 0
    until(lambda: not processes(token))
    assert (person.project / "hung-up").exists()
    (person.project / "hung-up").unlink()


def test_a_command_that_outlives_its_terminal_goes_on_without(person: Person, terminal: Tty) -> None:
    script = "trap '' HUP; echo ready; read line; echo lost; echo $? > lost; while [ ! -e end ]; do sleep 0.02; done"
    process = terminal.start(person, "sh", "-c", script)
    terminal.wait_for(b"ready")
    until(terminal.is_raw)
    terminal.hang_up()
    until((person.project / "lost").exists)
    assert process.poll() is None
    (person.project / "end").touch()
    assert process.wait(20) == 0
    for name in ("lost", "end"):
        (person.project / name).unlink()


def test_a_terminal_that_is_not_of_our_session_will_do(person: Person, terminal: Tty) -> None:
    before = terminal.mode()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.slave)
    if person.identity:
        os.fchown(terminal.slave, person.identity["user"], -1)
    terminal.process = person.start(
        "sh", "-c", "stty size; read line; echo got $line", start_new_session=True, **streams
    )
    terminal.wait_for(b"30 100")
    terminal.type(b"word\r")
    assert terminal.wait() == 0
    assert b"got word" in terminal.shown
    assert terminal.mode() == before


def test_a_command_that_handles_an_interrupt_is_not_ended_by_it(person: Person, terminal: Tty) -> None:
    terminal.start(person, "bash", "-c", "trap 'echo caught' INT; echo ready; read line; read line; echo $line; exit 7")
    terminal.wait_for(b"ready")
    until(terminal.is_raw)
    terminal.type(b"\x03")
    terminal.wait_for(b"caught")
    terminal.type(b"\rword\r")
    assert terminal.wait() == 7


def test_a_group_that_signals_itself_does_not_take_the_sandbox_with_it(person: Person, terminal: Tty) -> None:
    terminal.start(person, "sh", "-c", "trap 'echo caught' TERM; kill 0; echo goes on; exit 4")
    assert terminal.wait() == 4
    assert terminal.shown == b"caught\r\ngoes on\r\n"


def test_what_we_say_ourselves_starts_at_the_left_edge(person: Person, terminal: Tty) -> None:
    terminal.start(person, "sh", "-c", "sleep 0.3; echo out", options=("--verbose",))
    assert terminal.wait() == 0
    assert b"egress: " in terminal.shown
    assert all(line.endswith(b"\r") for line in bytes(terminal.shown).split(b"\n")[:-1])


def test_signals_are_forwarded_at_a_terminal_too(person: Person, terminal: Tty) -> None:
    process = terminal.start(
        person, "sh", "-c", "trap 'echo caught; exit 6' USR1; echo ready; while :; do sleep 0.02; done"
    )
    terminal.wait_for(b"ready")
    process.send_signal(signal.SIGUSR1)
    assert terminal.wait() == 6
