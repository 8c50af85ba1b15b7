"""Attacks on whoever enters a sandbox, from inside of it.

For a moment a process of the host's is to be seen inside, with the host's memory and every capability of the
sandbox. A watcher inside, a program of the attacker's, waits for such processes and tries what it can.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxkit import begin, tell
from gateprocess import until
from launchkit import PEOPLE, Person, children, somebody

pytestmark = pytest.mark.scenario

CANARY = "c4n4ry-of-the-host"
# Numbers are given in order, so the next process is one of the next few. What it is is known by its words: they
# are the host's until the exec. `act` is done to it; what comes of that, and whether it was still itself, is told.
WATCHER = """
import json, os, resource, signal, sys
def words(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
def attempt(act):
    try:
        return act()
    except OSError as error:
        return None
def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 16).decode(errors="replace")
SEEN = {"entering": 0, "found": []}
def look(pid):
    found = [
        attempt(lambda: read(f"/proc/{pid}/environ")),
        attempt(lambda: read(f"/proc/{pid}/maps")),
        attempt(lambda: os.readlink(f"/proc/{pid}/exe")),
        attempt(lambda: os.readlink(f"/proc/{pid}/cwd")),
        *(attempt(lambda: [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]) or []),
    ]
    if attempt(lambda: open(f"/proc/{pid}/mem", "rb")) and b"launcher.host" in words(pid):
        found.append("memory")
    return [it for it in found if it]
def stop(pid):
    attempt(lambda: os.kill(pid, signal.SIGSTOP))
    return []
def kill(pid):
    attempt(lambda: os.kill(pid, signal.SIGKILL))
    return []
def starve(pid):
    for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        attempt(lambda: resource.prlimit(pid, what, (pid % 3, pid % 3)))
    return []
act = globals()[sys.argv[1]]
open("watching", "w").close()
last = os.getpid()
while not os.path.exists("enough"):
    for pid in range(last + 1, last + 6):
        if b"launcher.host" in words(pid):
            SEEN["entering"] += 1
            SEEN["found"] += act(pid)
            last = pid
        elif os.path.exists(f"/proc/{pid}"):
            last = pid
print(json.dumps(SEEN))
"""
WATCHED = """
    WATCHER, act = sys.argv[1:]
    watcher = box.popen(["/usr/bin/python3", "-c", WATCHER, act])
    while not os.path.exists("watching"):
        pass
    def seen():
        open("enough", "w").close()
        found = json.loads(watcher.stdout.read())
        os.unlink("enough"); os.unlink("watching")
        watcher.wait(); watcher.close()
        return found
"""


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as made:
        made.env["HOST_CANARY"] = CANARY
        yield made


def under_attack(person: Person, act: str, story: str) -> list[object]:
    lines = [f"    {line}" for line in (*WATCHED.strip().splitlines(), *story.strip().splitlines())]
    body = "\n".join(line[4:] if line.startswith("        ") else line for line in lines)
    return tell(person, f"box = Sandbox(SETTINGS).open()\nif True:\n{body}\nbox.close()", WATCHER, act)


def test_nothing_inside_looks_into_an_entering_process(person: Person) -> None:
    said = under_attack(
        person,
        "look",
        """
    for _ in range(150):
        box.run(["/bin/true"])
    say(seen())
    """,
    )
    seen = said[0]
    assert isinstance(seen, dict)
    assert seen["entering"] > 0, "the watcher never saw one: this proves nothing"
    leaked = [it for it in seen["found"] if _is_the_hosts(it)]
    assert leaked == []


def _is_the_hosts(text: str) -> bool:
    return CANARY in text or "python" in text or "memfd" in text or "socket:" in text or text == "memory"


def test_who_is_stopped_while_it_enters_is_ended_by_its_time(person: Person) -> None:
    said = under_attack(
        person,
        "stop",
        """
    codes = [box.run(["/bin/true"], timeout=0.5) for _ in range(8)]
    say([[done.code, done.timed_out] for done in codes])
    say(seen()["entering"])
    say(box.run(["echo", "fine"]).stdout)
    """,
    )
    assert said[1]
    assert [-9, True] in said[0] or [-15, True] in said[0]
    assert {tuple(it) for it in said[0]} <= {(0, False), (-9, True), (-15, True)}
    assert said[2] == "fine\n"


@pytest.mark.parametrize("act", ["kill", "starve"])
def test_who_is_disturbed_while_it_enters_comes_in_walled_or_not_at_all(person: Person, act: str) -> None:
    said = under_attack(
        person,
        act,
        """
    for _ in range(60):
        try:
            say("done", box.run(["/bin/grep", "-E", "^(CapBnd|CapEff|Seccomp|NoNewPrivs)", "/proc/self/status"]).stdout)
        except SandboxError as error:
            say("not", type(error).__name__)
    say("seen", seen()["entering"])
    say("then", box.run(["echo", "fine"]).stdout)
    """,
    )
    told: dict[str, list[str]] = {}
    for kind, what in said:  # type: ignore[misc]
        told.setdefault(kind, []).append(what)
    walled = ["0000000000000000", "0000000000000000", "1", "2", "1"]
    outputs = [out for out in told["done"] if out]
    assert told["seen"] != [0]
    assert all([line.split()[-1] for line in out.splitlines()] == walled for out in outputs if out.count("\n") == 5)
    assert set(told.get("not", [])) <= {"CommandNotStarted"}
    assert told["then"] == ["fine\n"]


HOLDING = """
    with Sandbox(SETTINGS) as box:
        say(box.pid)
        box.run(["sh", "-c", "touch begun; while [ ! -e enough ]; do sleep 0.02; done; rm enough begun"])
"""


def test_the_program_that_enters_cannot_be_written_by_whom_the_sandbox_runs_as(person: Person) -> None:
    """A script that begins with #!/proc/self/exe would become it, inside."""
    with begin(person, HOLDING) as story:
        assert story.stdout is not None
        host = int(story.stdout.readline())
        until((person.project / "begun").exists)
        ushers = [pid for pid in children(host) if any(_is_shell(child) for child in children(pid))]
        with open(f"/proc/{ushers[0]}/exe", "rb") as program:
            status = os.fstat(program.fileno())
            theirs = person.identity.get("user", os.geteuid())
            if status.st_uid == theirs:
                seals = fcntl.fcntl(program, fcntl.F_GET_SEALS)
                assert seals & fcntl.F_SEAL_WRITE
                assert seals & fcntl.F_SEAL_SEAL
            else:
                assert not status.st_mode & 0o022
        (person.project / "enough").touch()
        person.own()
        assert story.wait() == 0


def _is_shell(pid: int) -> bool:
    return b"while" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_script_that_names_its_starter_as_its_interpreter_gets_nothing_of_the_hosts(person: Person) -> None:
    script = person.project / "script"
    script.write_text("#!/proc/self/exe\nopen('/proc/self/exe', 'r+b').write(b'owned')\n")
    script.chmod(0o755)
    person.own()
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            try:
                done = box.run(["./script"])
                say(done.code != 0)
            except CommandNotStarted:
                say(True)
            say(box.run(["echo", "fine"]).stdout)
        """,
    )
    assert said == [True, "fine\n"]
    with open(person.installation.python, "rb") as program:
        assert program.read(4) == b"\x7fELF"


@pytest.mark.parametrize(
    "target", ["/proc/self/fd/3", "/proc/self/fd/0", "/proc/1/root/../..", "{home}/neighbour", "/proc/self/cwd/.."]
)
def test_a_link_leads_a_command_nowhere_outside(person: Person, target: str) -> None:
    neighbour = person.home / "neighbour"
    neighbour.mkdir(exist_ok=True)
    (neighbour / "note").write_text(CANARY)
    link = person.project / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(target.format(home=person.home))
    person.own()
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            try:
                say(box.run(["sh", "-c", "ls -a; cat note; ls .."], cwd="link").stdout)
            except CommandNotStarted as error:
                say(str(error))
        """,
    )
    link.unlink()
    assert CANARY not in str(said)
    assert "neighbour\n" not in str(said)


def test_nothing_of_the_hosts_environment_comes_in(person: Person) -> None:
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            say(box.run(["sh", "-c", "env; cat /proc/*/environ 2>/dev/null | tr '\\\\0' '\\\\n'"]).stdout)
            for wrong in ({"A=B": "x"}, {"": "x"}, {"A": "x\\0y"}):
                try:
                    box.run(["env"], env=wrong)
                except SandboxError as error:
                    say(error.status)
        """,
    )
    assert "SANDBOX_ACTIVE=1" in said[0]
    assert CANARY not in said[0]
    assert said[1:] == [2, 2, 2]


def test_a_directory_is_not_handed_over_as_a_stream(person: Person) -> None:
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            root = os.open("/", os.O_RDONLY)
            try:
                box.popen(["ls"], stdin=root)
            except SandboxError as error:
                say(error.args[0], error.status)
            os.close(root)
        """,
    )
    assert said[0][0].endswith(" is no stream")
    assert said[0][1] == 2


def test_the_process_in_the_door_ends_rather_than_load_anything() -> None:
    story = "import sys\nfrom launcher import enterusher\nsys.addaudithook(enterusher._refuse)\n{}\nprint('went on')"
    for act in (
        "import colorsys",
        "open('/etc/hostname')",
        "import os; os.listdir('/')",
        "import ctypes; ctypes.CDLL('x')",
    ):
        done = subprocess.run([sys.executable, "-c", story.format(act)], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (125, b""), act
    harmless = subprocess.run([sys.executable, "-c", story.format("import os; os.chdir('/')")], check=False)
    assert harmless.returncode == 0
