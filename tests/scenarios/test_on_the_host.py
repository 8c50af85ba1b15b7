"""Commands on the host itself (`--backend none`, and landlock): the gate's port, signals, terminals, and their end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateprocess import until
from hostkit import PYTHON, House, house, probe
from launchkit import PEOPLE, Person, children, kill, processes
from programs import need
from tmuxscreen import Screen, screen

from launcher.backends.landlocked import examine
from launcher.backends.model import Fit

pytestmark = pytest.mark.scenario

NONE = ("--backend", "none")
BACKENDS = ("none", *(["landlock"] if isinstance(examine(), Fit) else []))
COUNT = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done"


@pytest.fixture(scope="module", params=PEOPLE)
def home(request: pytest.FixtureRequest) -> Iterator[House]:
    with house(request.param) as made:
        yield made


@pytest.fixture
def person(home: House) -> Person:
    return home.person


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def token() -> Iterator[str]:
    """A word by which all processes of a run are known; none is left at the end, and no directory of it."""
    word = f"token{os.urandom(6).hex()}"
    before = directories()
    yield word
    try:
        until(lambda: not processes(word))
        until(lambda: directories() <= before)
    finally:
        for pid in processes(word):
            kill(pid)


def directories() -> set[str]:
    return {name for name in os.listdir("/tmp") if re.fullmatch("egress-[0-9]+-[0-9a-f]{12}", name)}


# The gate's port


def test_what_is_missing_is_said_first_and_on_every_record(home: House) -> None:
    done = home.person.run("curl", "-sS", "http://denied.test/", options=(*NONE, "--quiet"))
    lacks = "network, files, processes, signals, calls, survivors"
    assert done.stderr.decode().splitlines() == [f"egress: warning: backend none does not enforce: {lacks}"]
    record = home.person.records()[-1]
    assert (record["backend"], record["lacks"], record["host"]) == ("none", lacks.split(", "), "denied.test")


def test_the_usual_backend_is_on_record_without_a_word(home: House) -> None:
    done = home.person.run("curl", "-sS", "http://denied.test/", options=("--quiet",))
    assert done.stderr == b""
    record = home.person.records()[-1]
    assert record["backend"] == "bwrap"
    assert "lacks" not in record


def test_the_port_is_for_who_has_the_password(home: House) -> None:
    script = "import os, sys; print(os.environ['HTTP_PROXY'], flush=True); sys.stdin.read()"
    with home.person.start(
        PYTHON, "-c", script, options=NONE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        assert process.stdin
        proxy = process.stdout.readline().decode().strip()
        bare = re.sub("//.*@", "//", proxy)
        wrong = bare.replace("//", "//egress:wrong@")
        codes = [through(each, "http://local.test/") for each in (proxy, bare, wrong)]
        own = through(proxy, f"http://127.0.0.1:{proxy.rpartition(':')[2]}/")
        process.stdin.close()
    assert codes == ["200", "407", "407"]
    assert own == "403"


def through(proxy: str, url: str) -> str:
    words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "", "-x", proxy, url]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout


def test_the_environment_is_made_from_nothing(home: House) -> None:
    home.person.env["HOST_SECRET"] = "value"
    found = probe(home.person, "os.environ.get('HOST_SECRET')", "os.environ['SANDBOX_ACTIVE']", options=NONE)
    assert list(found.values()) == [None, "0"]


@pytest.mark.parametrize(
    "words",
    [("--publish", "8080"), ("--host-port", "80"), ("--bridge", "relay"), ("--image", "x"), ("--seccomp", "debug")],
)
def test_what_cannot_be_done_here_is_refused(home: House, words: tuple[str, ...]) -> None:
    done = home.person.run("true", options=(*NONE, *words))
    assert done.returncode == 2
    assert words[0].encode() in done.stderr


def test_a_dry_run_shows_what_would_hold_and_makes_nothing(home: House, backend: str) -> None:
    options = ("--backend", backend, "--dry-run")
    with home.person.start("touch", "made", options=options, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        shown = run.communicate()[0].decode()
    assert f"backend {backend} does not enforce: " in shown
    assert "HTTPS_PROXY=http://egress:PASSWORD@127.0.0.1:PORT" in shown
    assert not [name for name in directories() if name.startswith(f"egress-{run.pid}-")]
    assert os.listdir(home.person.project) == []


def test_the_command_is_shown_as_a_line_that_runs(home: House) -> None:
    done = home.person.run("printf", "%s %s", "a b", "c", options=(*NONE, "--print-argv"))
    assert subprocess.run(["sh", "-c", done.stdout], stdout=subprocess.PIPE, check=True).stdout == b"a b c"


def test_a_persona_names_the_backend_and_whether_it_may_be_weaker(home: House) -> None:
    before = home.person.policy.read_text()
    home.person.policy.write_text(f"{before}    sandbox: {{backend: none}}\n")
    try:
        assert b"backend none" in home.person.run("true").stderr
        assert home.person.run("true", options=("--backend", "bwrap")).stderr == b""
    finally:
        home.person.policy.write_text(before)


def test_without_bubblewrap_something_weaker_is_taken_only_with_leave(home: House, tmp_path: Path) -> None:
    for name in ("true", "sh"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    tmp_path.chmod(0o755)
    env = home.person.env | {"PATH": str(tmp_path)}
    done = home.person.run("/usr/bin/true", env=env)
    assert done.returncode == 125
    assert b"bubblewrap is not installed" in done.stderr
    done = home.person.run("/usr/bin/true", options=("--fallback", "warn"), env=env)
    assert done.returncode == 0
    lines = done.stderr.decode().splitlines()
    assert re.match("egress: warning: backend (landlock|none) does not enforce: ", lines[0])
    assert "egress: not bwrap: bubblewrap is not installed (hint: apt-get install bubblewrap)" in lines


# Life and death


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_the_exit_code_is_the_commands(home: House, backend: str, script: str, code: int) -> None:
    assert home.person.run("sh", "-c", script, options=("--backend", backend)).returncode == code


def test_what_cannot_run_is_told_apart_from_what_is_not_there(home: House, backend: str) -> None:
    script = home.person.project / "script"
    script.write_text("#!/nowhere/at/all\n")
    script.chmod(0o755)
    home.person.own()
    options = ("--backend", backend)
    codes = [home.person.run(word, options=options).returncode for word in ("./script", "./missing")]
    script.unlink()
    assert codes == [126, 127]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_launcher_is_the_commands(home: House, backend: str, token: str, number: int) -> None:
    name = signal.Signals(number).name[3:]
    script = f"trap 'echo {name}; exit 3' {name}; echo ready; while :; do sleep 0.02; done"
    with home.person.start(
        "sh", "-c", script, token, options=("--backend", backend), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"{name}\n".encode()
    assert process.returncode == 3


def test_a_time_limit_ends_it_all(home: House, backend: str, token: str) -> None:
    done = home.person.run("sh", "-c", "sleep 1000 & wait", token, options=("--backend", backend, "--timeout", "0.3"))
    assert done.returncode == 124


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.fork()
    time.sleep(1000)
open("up", "w")
"""


def test_nothing_outlives_the_command_not_even_a_daemon(home: House, backend: str, token: str) -> None:
    done = home.person.run(
        PYTHON,
        "-c",
        DAEMON,
        token,
        options=("--backend", backend),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert done.returncode == 0
    (home.person.project / "up").unlink()
    assert processes(token) == {}


@pytest.mark.parametrize("victim", ["launcher", "minder", "command"])
def test_whoever_is_killed_nothing_is_left(home: House, backend: str, token: str, victim: str) -> None:
    script = f"{DAEMON}time.sleep(1000)"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with home.person.start(PYTHON, "-c", script, token, options=("--backend", backend), **quiet) as process:
        until((home.person.project / "up").exists)
        (minder,) = children(process.pid)
        family = {"launcher": process.pid, "minder": minder, "command": children(minder)[0]}
        kill(family[victim])
    assert process.returncode == (-signal.SIGKILL if victim == "launcher" else 137)
    (home.person.project / "up").unlink()


# The terminal, which is the user's own


@pytest.fixture
def shown(person: Person, backend: str) -> Iterator[Screen]:
    need("tmux")
    with screen(person) as shell:
        shell.do(f'job() {{ launch --quiet --backend {backend} -- "$@"; }}')
        shell.clear()
        yield shell


def test_a_suspended_command_is_a_job_of_the_shell(shown: Screen) -> None:
    shown.enter(f"job sh -c {shlex.quote(COUNT)}")
    shown.wait_for("line 3")
    shown.press("C-z")
    before = shown.wait_for_prompt()
    assert "Stopped" in before
    last = before.count("line ")
    shown.enter("fg")
    shown.wait_for(f"line {last + 2}")
    shown.press("C-c")
    shown.wait_for_prompt()
    assert "\n130\n" in shown.do("echo $?")


def test_a_command_that_stops_itself_stops_its_job(shown: Screen) -> None:
    shown.enter("job sh -c 'kill -STOP $$; echo back'")
    assert "Stopped" in shown.wait_for_prompt()
    shown.enter("fg")
    assert "\nback\n" in shown.wait_for_prompt()


INTERRUPTED = """
import signal
times = []
signal.signal(signal.SIGINT, lambda *_: times.append(1))
print("up")
input()
print("times", len(times))
"""


def test_ctrl_c_reaches_the_command_once(shown: Screen, person: Person) -> None:
    (person.project / "program").write_text(INTERRUPTED)
    person.own()
    shown.enter(f"job {PYTHON} program")
    shown.wait_for_line("up")
    shown.press("C-c")
    shown.wait_for("^C")
    shown.enter("")
    assert "times 1\n" in shown.wait_for_prompt()
    (person.project / "program").unlink()


def test_an_editor_follows_the_size_of_the_terminal(shown: Screen) -> None:
    need("vim")
    shown.enter("job vim -u NONE -i NONE -n")
    shown.wait_for("~\n~\n")
    shown.resize(70, 20)
    try:
        shown.wait_until(lambda text: text.count("~") == 18)
    finally:
        shown.resize(100, 30)
    shown.enter(":q")
    shown.wait_for_prompt()


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name == "landlock"], indirect=True)
def test_nothing_can_be_typed_for_the_user(shown: Screen, person: Person) -> None:
    (person.project / "type").write_text(
        "import fcntl\nfor c in b'echo typed\\n':\n fcntl.ioctl(0, 0x5412, bytes([c]))\n"
    )
    person.own()
    shown.enter(f"job {PYTHON} type")
    assert "Permission" in shown.wait_for_prompt()
    (person.project / "type").unlink()
