"""Claude Code and Codex with a model whose host is inspected: it gets the real key, and they never have it.

For Claude Code the rules are those that ship, so this shows as well that they are enough for it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from gateprocess import ROOT
from inspectedroom import REAL, SEARCH, SHAPE, equip, link_or_copy
from launchkit import PEOPLE, Person, somebody
from programs import Done, need
from servers import Authority
from standins import Call, Say
from test_agents_inside import AGENTS, REPLY, Agent, acquaint, finish
from test_agents_inside import installed as installed  # noqa: PLC0414  # a fixture

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]  # the first run downloads them

FORMATS = {"x-api-key": "{}", "authorization": "Bearer {}"}
UNBOUND = {"claude": ("--allowedTools", "Bash(python3:*)")}
OPENAI: list[dict[str, Any]] = [
    {"host": "api.openai.com", "methods": ["GET", "POST"], "paths": ["/v1/**"]},
    {
        "host": "api.openai.com",
        "secret": {"env": "CODEX_API_KEY", "header": "authorization", "format": FORMATS["authorization"]},
    },
    {"host": "chatgpt.com", "inspect": True},
]


def shipped(group: str) -> Iterator[dict[str, Any]]:
    """The rules of a group."""
    groups = yaml.safe_load((ROOT / "policies/groups.yaml").read_text())["groups"]
    for entry in groups[group]:
        if isinstance(entry, dict):
            yield entry
        else:
            yield from shipped(entry.removeprefix("@"))


class Desk:
    """A person with the agents installed at home, and keys in the environment; the models are in reach."""

    def __init__(self, person: Person, outside: Path, installed: Path) -> None:
        self.person = person
        authority = Authority(outside, *(host for agent in AGENTS.values() for host in agent.hosts))
        self.models = {agent.name: agent.model(authority.context()) for agent in AGENTS.values()}
        hosts = {host: f"127.0.0.1:{self.models[agent.name].port}" for agent in AGENTS.values() for host in agent.hosts}
        rules = [{**rule, "private": True} for rule in (*shipped("anthropic-messages"), *OPENAI)]
        person.policy.write_text(json.dumps({"version": 1, "hosts": hosts, "personas": {"p": {"allow": rules}}}))
        acquaint(person)
        (person.project / "search.py").write_text(SEARCH)
        person.own()
        # Afterwards, and not theirs: these files are the cache's own.
        shutil.copytree(installed, person.home / ".npm-global", symlinks=True, copy_function=link_or_copy)
        path = f"{person.home}/.npm-global/bin:{person.env['PATH']}"
        self._env = {**person.env, "PATH": path, **{agent.key: REAL[agent.key] for agent in AGENTS.values()}}
        self._options = ("--upstream-ca", str(authority.file), "--rw", f"{person.home}/.codex")

    def run(self, *command: str) -> Done:
        self.person.audit.unlink(missing_ok=True)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.person.start(*command, options=self._options, env=self._env, **pipes) as process:
            done = finish(process)
        assert not re.search(SHAPE, done.out + done.err + self.person.audit.read_text())
        return done

    def decisions(self, via: str) -> list[dict[str, Any]]:
        return [it for it in self.person.records() if it["event"] == "decision" and it["via"] == via]


@pytest.fixture(scope="module", params=PEOPLE)
def desk(request: pytest.FixtureRequest, installed: Path) -> Iterator[Desk]:
    with contextlib.ExitStack() as stack:
        person = stack.enter_context(somebody(request.param))
        outside = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        outside.chmod(0o755)
        equip(person)
        made = Desk(person, outside, installed)
        for model in made.models.values():
            stack.enter_context(model.running())
        yield made


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> Agent:
    return AGENTS[request.param]


def credential(agent: Agent) -> tuple[str, str]:
    name, _ = agent.header
    return name, FORMATS[name].format(REAL[agent.key])


@pytest.mark.parametrize("bare", [False, True], ids=["with-proxy-variables", "without"])
def test_the_model_gets_the_real_key(desk: Desk, agent: Agent, bare: bool) -> None:
    model = desk.models[agent.name]
    model.begin(Say((REPLY,)))
    kept = " ".join(f'{name}="${name}"' for name in ("PATH", "HOME", agent.key, agent.trust))
    words = ("sh", "-c", f'exec env -i {kept} "$@"', "sh") if bare else ()
    done = desk.run(*words, *agent.ask)
    assert (done.code, done.out) == (0, f"{REPLY}\n"), done
    name, value = credential(agent)
    assert [request.fields[name] for request in model.questions] == [value]
    assert {it["verdict"] for it in desk.decisions("capture" if bare else "connect") if it["host"] in agent.hosts} == {
        "allow"
    }
    asked = [
        (it["method"], it["path"].partition("?")[0]) for it in desk.decisions("inspect") if it["verdict"] == "allow"
    ]
    assert ("POST", model.path) in asked


def test_the_real_key_is_nowhere_inside_while_an_agent_runs(desk: Desk, agent: Agent) -> None:
    """The agent has the placeholder, which shows that the search looks where it should."""
    need("python3")
    model = desk.models[agent.name]
    model.begin(Call(agent.tool, "python3 search.py"), Say((REPLY,)))
    done = desk.run(*agent.ask, *UNBOUND.get(agent.name, agent.unbound))
    assert done.code == 0, done
    (result,) = model.results
    assert re.search(r"real\W+: \[\], \W+placeholder", result), result
    assert re.search(r"placeholder\W+: \[\W+/proc/\d+/environ", result), result
    home = [file for file in desk.person.home.rglob("*") if file.is_file() and ".npm-global" not in file.parts]
    assert not [file for file in home if re.search(SHAPE.encode(), file.read_bytes())]


def test_a_key_of_the_agents_own_is_refused(desk: Desk) -> None:
    """Files would leave by it, to whoever it belongs to."""
    agent = AGENTS["claude"]
    model = desk.models[agent.name]
    model.begin(Say((REPLY,)))
    done = desk.run("env", f"{agent.key}=sk-of-somebody-else", *agent.ask)
    assert done.code != 0, done
    assert "Invalid API key" in done.out  # as it puts a 403
    assert [request for request in model.seen if "sk-of-somebody-else" in request.fields.values()] == []
    asked = {(it["method"], it["path"].partition("?")[0], it["reason"]) for it in desk.decisions("inspect")}
    assert ("POST", model.path, "credential_mismatch") in asked
    assert "api.anthropic.com (" in done.err
