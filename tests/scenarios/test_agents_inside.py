"""Claude Code and Codex, as npm installs them below a home directory, in the sandbox and with a model to talk to.

The model is a stand-in at the real name, so an agent is configured as always: all that it is given besides is
the authority of the stand-in's certificate.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from gateprocess import Rules, until
from launchkit import PEOPLE, Person, somebody
from programs import Done, need
from servers import Authority
from standins import Call, Messages, Model, Responses, Say

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]  # the first run downloads them

PATIENCE = 50.0
KEY = "sk-of-the-persona"
REPLY = "Hello from the stand-in."
BLOCKED = "curl -sS http://denied.test/"
WHY = "egress: blocked: denied.test:80 is not on the allowlist of persona p"


class Agent(NamedTuple):
    """An agent, how to ask it something, and what is particular about its service."""

    name: str
    package: str
    version: str  # as it shows it
    ask: tuple[str, ...]
    streamed: tuple[str, ...]  # options that show pieces as they come
    unbound: tuple[str, ...]  # options that leave it to our sandbox what a command may do
    tool: str  # runs commands
    idle: str  # what a terminal shows when it is done
    leave: tuple[str, str]  # the command to leave, and what a terminal shows of that
    memory: str  # where it keeps conversations
    model: type[Model]
    hosts: frozenset[str]
    denied: str  # one of those that it would like to reach besides: for telemetry, news, updates
    key: str
    header: tuple[str, str]
    trust: str


AGENTS = {
    "claude": Agent(
        name="claude",
        package="@anthropic-ai/claude-code@2.1.197",
        version="2.1.197 (Claude Code)",
        ask=("claude", "-p", "hi"),
        streamed=("--output-format", "stream-json", "--include-partial-messages", "--verbose"),
        unbound=("--allowedTools", "Bash(curl:*)"),
        tool="Bash",
        idle="for shortcuts",
        leave=("/exit", "Exit the CLI"),
        memory=".claude/projects",
        model=Messages,
        hosts=frozenset({"api.anthropic.com"}),
        denied="raw.githubusercontent.com",
        key="ANTHROPIC_API_KEY",
        header=("x-api-key", KEY),
        trust="NODE_EXTRA_CA_CERTS",
    ),
    "codex": Agent(
        name="codex",
        package="@openai/codex@0.169.0",
        version="codex-cli 0.169.0",
        ask=("codex", "exec", "--skip-git-repo-check", "-m", "gpt-5", "hi"),
        streamed=("--json",),
        unbound=("--sandbox", "danger-full-access"),
        tool="exec_command",
        idle="Worked for",
        leave=("/quit", "exit Codex"),
        memory=".codex/sessions",
        model=Responses,
        hosts=frozenset({"api.openai.com", "chatgpt.com"}),  # the second has the list of models
        denied="ab.chatgpt.com",
        key="CODEX_API_KEY",
        header=("authorization", f"Bearer {KEY}"),
        trust="SSL_CERT_FILE",
    ),
}


@pytest.fixture(scope="session")
def installed() -> Path:
    """Both agents below a prefix, as `npm install --global` leaves them; downloaded once per machine."""
    need("npm", "node")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egress-tests" / "agents"
    prefix = cache / "+".join(agent.package.rpartition("/")[2] for agent in AGENTS.values())
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not prefix.exists():
            unfinished = cache / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _install(unfinished)
            unfinished.rename(prefix)
    return prefix


def _install(prefix: Path) -> None:
    packages = [agent.package for agent in AGENTS.values()]
    words = ["npm", "install", "--global", "--no-audit", "--no-fund", "--prefix", prefix, *packages]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"npm cannot install {', '.join(packages)}:\n{done.stderr}")


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def acquaint(person: Person) -> None:
    """What an agent remembers of somebody who has used it before, so that it has no questions left."""
    (person.home / ".claude").mkdir()
    (person.project / ".claude/commands").mkdir(parents=True)  # and no settings beside them
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {str(person.project): {"hasTrustDialogAccepted": True}},
    }
    (person.home / ".claude.json").write_text(json.dumps(known))
    (person.home / ".codex").mkdir()
    (person.home / ".codex/auth.json").write_text(
        json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": "sk-of-the-file"})
    )
    (person.home / ".codex/config.toml").write_text(f'[projects."{person.project}"]\ntrust_level = "trusted"\n')


class Desk:
    """A person with the agents installed at home, a persona for each, and the models in reach."""

    def __init__(self, person: Person, installed: Path) -> None:
        self.person = person
        authority = Authority(person.project, *(host for agent in AGENTS.values() for host in agent.hosts))
        self.models = {agent.name: agent.model(authority.context()) for agent in AGENTS.values()}
        self.trust = {agent.trust: str(authority.file) for agent in AGENTS.values()}
        hosts = {host: self.models[agent.name].port for agent in AGENTS.values() for host in agent.hosts}
        keys = [agent.key for agent in AGENTS.values()]
        person.policy.write_text(f"{Rules(dict.fromkeys(hosts, ''), hosts).text}    env: [{', '.join(keys)}]\n")
        acquaint(person)
        person.own()
        # Afterwards, and not theirs: these files are the cache's own.
        shutil.copytree(installed, person.home / ".npm-global", symlinks=True, copy_function=_link_or_copy)
        self._system = person.env["PATH"]
        person.env |= {"PATH": f"{person.home}/.npm-global/bin:{self._system}", **dict.fromkeys(keys, KEY)}

    @contextlib.contextmanager
    def looking_in(self, directory: str) -> Iterator[None]:
        """For programs, instead of where npm put them."""
        before = self.person.env["PATH"]
        self.person.env["PATH"] = f"{directory}:{self._system}"
        yield
        self.person.env["PATH"] = before

    @property
    def options(self) -> tuple[str, ...]:
        trust = [word for name, file in self.trust.items() for word in ("--env", f"{name}={file}")]
        return (*trust, "--rw", f"{self.person.home}/.codex")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        self.person.audit.unlink(missing_ok=True)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.person.start(*command, options=self.options, **pipes)

    def run(self, *command: str) -> Done:
        with self.start(*command) as process:
            return finish(process)

    def hosts(self, verdict: str) -> set[str]:
        return {record["host"] for record in self.person.records() if record.get("verdict") == verdict}

    def vias(self, verdict: str) -> set[str]:
        return {record["via"] for record in self.person.records() if record.get("verdict") == verdict}


def finish(process: subprocess.Popen[bytes]) -> Done:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except BaseException:
        process.kill()
        raise
    return Done(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="module", params=PEOPLE)
def desk(request: pytest.FixtureRequest, installed: Path) -> Iterator[Desk]:
    with somebody(request.param) as person, contextlib.ExitStack() as stack:
        made = Desk(person, installed)
        for model in made.models.values():
            stack.enter_context(model.running())
        yield made


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> Agent:
    return AGENTS[request.param]


def test_an_agent_starts_and_shows_its_version(desk: Desk, agent: Agent) -> None:
    done = desk.run(agent.name, "--version")
    assert (done.code, done.out) == (0, f"{agent.version}\n"), done


def _npm(installed: Path, prefix: Path) -> str:
    shutil.copytree(installed, prefix, symlinks=True, copy_function=_link_or_copy)
    return f"{prefix}/bin"


def _native(installed: Path, local: Path) -> str:
    """One file with all in it, and a link to it, as Claude's own installer leaves them."""
    (local / "bin").mkdir(parents=True)
    versions = local / "share/claude/versions"
    versions.mkdir(parents=True)
    _link_or_copy(str((installed / "bin/claude").resolve()), str(versions / "1"))
    (local / "bin/claude").symlink_to(versions / "1")
    return f"{local}/bin"


PLACES: dict[str, tuple[str, Callable[[Path, Path], str], str]] = {
    "nvm": ("codex", _npm, ".nvm/versions/node/v22.1.0"),
    "npm in .local": ("codex", _npm, ".local"),
    "native": ("claude", _native, ".local"),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_agent_is_found_wherever_it_was_installed(desk: Desk, installed: Path, place: str) -> None:
    name, install, below = PLACES[place]
    target = desk.person.home / below
    try:
        with desk.looking_in(install(installed, target)):
            done = desk.run(name, "--version")
    finally:
        shutil.rmtree(target)
    assert (done.code, done.out) == (0, f"{AGENTS[name].version}\n"), done


@pytest.mark.parametrize("bare", [False, True], ids=["with-proxy-variables", "without"])
def test_an_agent_answers_a_prompt(desk: Desk, agent: Agent, bare: bool) -> None:
    model = desk.models[agent.name]
    model.begin(Say((REPLY,)))
    given = {agent.key: KEY, **desk.trust}
    words = ["sh", "-c", 'exec env -i PATH="$PATH" HOME="$HOME" "$@"', "sh", *(f"{n}={v}" for n, v in given.items())]
    done = desk.run(*(words if bare else ()), *agent.ask)
    assert (done.code, done.out) == (0, f"{REPLY}\n"), done
    name, value = agent.header
    assert [request.fields[name] for request in model.questions] == [value]
    assert desk.hosts("allow") == agent.hosts
    assert desk.vias("allow") == {"capture" if bare else "connect"}


def test_what_an_agent_remembers_is_kept_and_nothing_else(desk: Desk, agent: Agent) -> None:
    home, project = desk.person.home, desk.person.project
    before = {*os.listdir(home), *os.listdir(project)}
    reply = f"{REPLY} {os.urandom(6).hex()}"
    desk.models[agent.name].begin(Say((reply,)))
    assert desk.run(*agent.ask).code == 0
    assert any(reply in file.read_text() for file in (home / agent.memory).rglob("*.jsonl"))
    assert {*os.listdir(home), *os.listdir(project)} <= before | {"audit.jsonl"}
    assert not (home / ".claude/settings.json").exists()  # what stood there during the run


def test_a_reply_is_shown_while_it_comes(desk: Desk, agent: Agent) -> None:
    model = desk.models[agent.name]
    model.begin(Say(("The beginning, ", "and the end.")), hold=True)
    with desk.start(*agent.ask, *agent.streamed) as process:
        assert process.stdout
        shown = b""
        while b"The beginning, " not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        assert b"and the end." not in shown
        model.go_on.set()
        done = finish(process)
    assert done.code == 0, done
    assert "and the end." in done.out


def test_an_agent_is_told_why_its_command_was_blocked(desk: Desk, agent: Agent) -> None:
    need("curl")
    model = desk.models[agent.name]
    model.begin(Call(agent.tool, BLOCKED), Say((REPLY,)))
    done = desk.run(*agent.ask, *agent.unbound)
    assert done.code == 0, done
    assert done.out.endswith(f"{REPLY}\n")
    (result,) = model.results
    assert WHY in result
    assert "denied.test" in desk.hosts("deny")
    assert "denied.test (1)" in done.err


class Screen:
    """A terminal with the launcher on it, that shows what a person would see."""

    def __init__(self, desk: Desk, *command: str) -> None:
        desk.person.audit.unlink(missing_ok=True)
        self._person = desk.person
        self._socket = desk.person.home / f"tmux-{os.urandom(4).hex()}"
        line = shlex.join(desk.person.words(*command, options=desk.options))
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", f"{line}; echo ended: $?; cat")

    def _tmux(self, *words: str) -> str:
        person = self._person
        command = ["tmux", "-S", self._socket, *words]
        done = subprocess.run(
            command, cwd=person.project, env=person.env, capture_output=True, text=True, check=True, **person.identity
        )
        return done.stdout

    @property
    def shown(self) -> str:
        return self._tmux("capture-pane", "-p")

    def type(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def wait_for(self, text: str) -> None:
        try:
            until(lambda: text in self.shown)
        except AssertionError:
            pytest.fail(f"{text!r} is not on the screen:\n{self.shown}")

    def close(self) -> None:
        self._tmux("kill-server")
        until(lambda: not self._answers())

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            return sock.connect_ex(str(self._socket)) == 0


def test_an_agent_works_on_a_terminal(desk: Desk, agent: Agent) -> None:
    need("tmux")
    desk.models[agent.name].begin(Say((REPLY,)))
    with contextlib.closing(Screen(desk, agent.name)) as screen:
        screen.wait_for("for shortcuts")
        screen.type("hi")
        screen.wait_for(" hi")
        screen.type("Enter")
        screen.wait_for(REPLY)
        screen.wait_for(agent.idle)
        command, offered = agent.leave
        screen.type(command)
        screen.wait_for(offered)  # an Enter that comes with the word is taken for a part of it
        screen.type("Enter")
        screen.wait_for("ended: 0")
    assert desk.hosts("allow") == agent.hosts
    assert agent.denied in desk.hosts("deny")
