"""Claude Code outside of our sandbox, in its own, with the settings that `egress settings` wrote for it.

It is the real program that reads them: what it does not take, it would leave its sandbox for, or say so.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateprocess import until
from launchkit import PEOPLE, Person, somebody
from programs import Done, need
from servers import Authority
from standins import Call, Event, Messages, Say
from test_agents_inside import KEY, REPLY, _link_or_copy, acquaint, finish
from test_agents_inside import installed as installed  # noqa: PLC0414  # a fixture

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]  # the first run downloads it

POLICY = """\
version: 1
hosts: {{model.test: "127.0.0.1:{port}"}}
personas:
  p:
    allow: [{{host: model.test, private: true}}]
    env: [ANTHROPIC_API_KEY]
    tools: {{allow: [Bash], deny: ["Bash(rm *)"]}}
  maker:
    allow:
      - {{host: allowed.test, private: true}}
      - {{host: partial.test, ports: 80, private: true, methods: [GET]}}
    tools: {{allow: [Read, Write, Edit, Bash]}}
    filesystem: {{hide: [hidden], protect: [kept]}}
  looker:
    allow: [allowed.test]
    tools: {{allow: [Read, "Bash(git log*)"], deny: ["Write(*)", "Edit(*)"]}}
"""


class Tools(Messages):
    """Uses any tool: what one is given beside a command is written as JSON."""

    def _called(self, turn: Call) -> Iterator[Event]:
        if turn.tool == "Bash":
            return super()._called(turn)
        block = {"type": "tool_use", "id": f"toolu_{len(self.results)}", "name": turn.tool, "input": {}}
        return self._message("tool_use", block, iter([{"type": "input_json_delta", "partial_json": turn.command}]))


class Desk:
    """A person with Claude Code, a project, and a gate."""

    def __init__(self, person: Person, installed: Path) -> None:
        self.person = person
        authority = Authority(person.project, "localhost", "model.test")
        self.model = Tools(authority.context())
        acquaint(person)
        person.policy.write_text(POLICY.format(port=self.model.port))
        (person.home / ".ssh").mkdir()
        (person.home / ".ssh/id").write_text("a secret key")
        (person.project / "hidden").mkdir()
        (person.project / "hidden/text").write_text("a hidden word")
        (person.project / "kept").write_text("as it was")
        person.own()
        shutil.copytree(installed, person.home / ".npm-global", symlinks=True, copy_function=_link_or_copy)
        self.claude = str(person.home / ".npm-global/bin/claude")
        person.env |= {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": f"https://localhost:{self.model.port}",
            "NODE_EXTRA_CA_CERTS": str(authority.file),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def egress(self, *words: str) -> Done:
        return self._run(
            self.person.installation.python, "-m", "egress.cli", *words, "--policy", str(self.person.policy)
        )

    def ask(self, *commands: str) -> tuple[Done, str]:
        """Have the agent run commands; how it ended, and what came of them."""
        return self.have(*(Call("Bash", command) for command in commands))

    def have(self, *calls: Call) -> tuple[Done, str]:
        self.model.begin(*calls, Say((REPLY,)))
        done = self._run(self.claude, "-p", "hi")
        return done, "\n".join(self.model.results)

    def _run(self, *words: str) -> Done:
        person = self.person
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(words, cwd=person.project, env=person.env, **pipes, **person.identity) as process:
            return finish(process)


@pytest.fixture(scope="module", params=PEOPLE)
def desk(request: pytest.FixtureRequest, installed: Path) -> Iterator[Desk]:
    need("bwrap", "socat", "rg", "curl", "git")
    with somebody(request.param) as person:
        made = Desk(person, installed)
        with made.model.running():
            yield made


@contextlib.contextmanager
def gate(desk: Desk, persona: str) -> Iterator[int]:
    """The port of a running gate, which says where it is."""
    person = desk.person
    words = ["proxy", "--persona", persona, "--listen", "127.0.0.1:0", "--policy", str(person.policy)]
    line = [person.installation.python, "-m", "egress.cli", *words, "--audit", str(person.audit)]
    with subprocess.Popen(line, env=person.env, stdout=subprocess.PIPE, text=True, **person.identity) as process:
        try:
            assert process.stdout
            port = int(process.stdout.readline().split()[0].rpartition(":")[2])
            until(lambda: signposts(desk))
            yield port
        finally:
            process.terminate()
            process.wait()
    assert signposts(desk) == []


def signposts(desk: Desk) -> list[Path]:
    return list((desk.person.home / "runtime/egress").glob("*.gate"))


def test_commands_go_through_the_gate_that_runs(desk: Desk) -> None:
    with gate(desk, "maker") as port:
        done = desk.egress("settings", "--persona", "maker")
        assert (done.code, done.err) == (0, ""), done
        settings = json.loads((desk.person.project / ".claude/settings.json").read_text())
        assert settings["sandbox"]["network"]["httpProxyPort"] == port
        done, results = desk.ask("curl -sS http://denied.test/; curl -sS -X POST http://partial.test/")
    assert (done.code, done.out, done.err) == (0, f"{REPLY}\n", "")
    assert "blocked: denied.test:80 is not on the allowlist of persona maker" in results
    assert "reason: method_not_listed" in results


def test_without_a_gate_its_own_proxy_knows_the_hosts(desk: Desk) -> None:
    done = desk.egress("settings", "--persona", "maker", "--exact-hosts")
    assert "no gate of persona maker runs here" in done.err
    assert "tell their requests apart: partial.test" in done.err
    done, results = desk.ask(*(f"curl -sS -i http://{name}.test/" for name in ("denied", "partial", "allowed")))
    assert done.code == 0, done
    assert [word in results for word in ("blocked-by-allowlist", "502")] == [True, True], results


def test_files_are_hidden_and_kept_as_the_persona_says(desk: Desk) -> None:
    desk.egress("settings", "--persona", "maker")
    before = sorted(path.name for path in desk.person.project.iterdir())
    done, results = desk.ask(
        "cat ~/.ssh/id hidden/text; echo x > kept; touch .env .git/hooks; echo made > out; cat out"
    )
    assert done.code == 0, done
    assert "a secret key" not in results
    assert "a hidden word" not in results
    assert "kept: Read-only file system" in results
    assert "cannot touch '.env'" in results
    assert "made" in results
    assert (desk.person.project / "kept").read_text() == "as it was"
    assert sorted(path.name for path in desk.person.project.iterdir()) == sorted([*before, "out"])


def test_its_own_tools_keep_to_the_same_files(desk: Desk) -> None:
    desk.egress("settings", "--persona", "maker")
    home, project = desk.person.home, desk.person.project
    reads = [Call("Read", json.dumps({"file_path": str(path)})) for path in (home / ".ssh/id", project / "hidden/text")]
    write = Call("Write", json.dumps({"file_path": str(project / ".env"), "content": "x"}))
    done, results = desk.have(*reads, write)
    assert done.code == 0, done
    assert "a secret key" not in results
    assert "a hidden word" not in results
    assert results.count("denied") == 3, results
    assert not (project / ".env").exists()


def test_whoever_only_looks_and_wants_to_be_asked_runs_nothing_else(desk: Desk) -> None:
    (desk.person.project / ".claude").mkdir(exist_ok=True)
    own = desk.person.project / ".claude/settings.json"
    own.write_text('{"sandbox": {"autoAllowBashIfSandboxed": false}}')
    desk.egress("settings", "--persona", "looker")
    assert json.loads(own.read_text())["sandbox"]["autoAllowBashIfSandboxed"] is False
    done, results = desk.ask("echo x > written", "git log")
    assert done.code == 0, done
    assert not (desk.person.project / "written").exists()
    assert "not a git repository" in results  # which is git's own answer


def test_an_agent_that_we_launch_leaves_its_own_sandbox_off(desk: Desk) -> None:
    done = desk.egress("settings", "--persona", "p", "--inside")
    assert (done.code, done.err) == (0, "")
    desk.model.begin(Call("Bash", "echo ran here"), Call("Bash", "rm kept"), Say((REPLY,)))
    given = {"ANTHROPIC_BASE_URL": "https://model.test", "NODE_EXTRA_CA_CERTS": f"{desk.person.project}/ca.pem"}
    options = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    done_inside = desk.person.run(desk.claude, "-p", "hi", options=tuple(options))
    assert done_inside.returncode == 0, done_inside
    ran, refused = desk.model.results
    assert "ran here" in ran
    assert "denied" in refused
    assert (desk.person.project / "kept").exists()
