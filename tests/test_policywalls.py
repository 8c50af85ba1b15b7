"""What a persona says of its room: `tools` and `sandbox`, read, put together, and taken by the launcher."""

from __future__ import annotations

import pytest

from egress.policyfile import parse_document
from egress.policylayers import bind
from egress.problems import PolicyError
from egress.surroundings import Filesystem, Tools, Walls
from launcher.options import Options, Resources, furnished

TEXT = """
version: 1
personas:
  base:
    env: [CI]
    filesystem: {hide: [secrets]}
    tools: {allow: [Read, "Bash(git log*)"], deny: ["Write(*)"]}
    sandbox: {backend: podman, image: "ubuntu:24.04", deny_calls: [ptrace], allow_calls: [read, write], memory: 4G}
  child:
    extends: base
    filesystem: {hide: [keys]}
    tools: {allow: [Glob, Read]}
    sandbox:
      backend: landlock
      fallback: warn
      sockets: [/run/x.sock]
      deny_calls: [mount]
      allow_calls: [read]
      cpus: 0.5
      pids: 256
      timeout: 300
"""


def persona(text: str, name: str):  # type: ignore[no-untyped-def]
    return bind([[parse_document(text, "p.yaml")]]).persona(name)


def problem(sandbox: str) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_document(f"version: 1\npersonas:\n  p:\n    {sandbox}\n", "p.yaml")
    return str(caught.value)


def test_a_persona_has_the_tools_and_walls_that_are_written() -> None:
    base = persona(TEXT, "base")
    assert base.tools == Tools(("Read", "Bash(git log*)"), ("Write(*)",))
    assert base.walls == Walls("podman", None, "ubuntu:24.04", (), ("ptrace",), ("read", "write"), "4G")


def test_lists_add_up_and_the_nearest_single_value_speaks() -> None:
    child = persona(TEXT, "child")
    assert child.filesystem == Filesystem(hide=("keys", "secrets"))
    assert child.tools == Tools(("Glob", "Read", "Bash(git log*)"), ("Write(*)",))
    calls = ("mount", "ptrace"), ("read",)
    limits = "4G", "0.5", "256", "300"
    assert child.walls == Walls("landlock", "warn", "ubuntu:24.04", ("/run/x.sock",), *calls, *limits)


def test_a_persona_with_other_rules_keeps_its_room() -> None:
    child = persona(TEXT, "child")
    other = child.replace(())
    assert (other.env, other.filesystem, other.tools, other.walls) == (
        *(child.env, child.filesystem),
        *(child.tools, child.walls),
    )


@pytest.mark.parametrize(
    ("sandbox", "said"),
    [
        ("sandbox: {backend: bwarp}", "'bwarp' is not known; did you mean 'bwrap'?"),
        ("sandbox: {backend: [bwrap]}", "expected one of bwrap, landlock, podman, docker, none, not a list"),
        ("sandbox: {fallback: silent}", "(known: error, warn)"),
        ("sandbox: {image: '--privileged'}", "expected an image such as ubuntu:24.04, not '--privileged'"),
        ("sandbox: {memory: 4GB}", "expected a size such as 512M or 4G, not '4GB'"),
        ("sandbox: {cpus: 0}", "expected a number such as 2 or 0.5, not '0'"),
        ("sandbox: {pids: 0}", "expected a number such as 256, not '0'"),
        ("sandbox: {timeout: -1}", "expected a number of seconds such as 300, not '-1'"),
        ("sandbox: {deny_calls: [PTRACE]}", "expected a system call such as ptrace, not 'PTRACE'"),
        ("sandbox: {allow_calls: []}", "an empty list"),
        ("sandbox: {sockets: [../x]}", "is not a path"),
        ("sandbox: {colour: red}", "unknown key 'colour' in `sandbox`"),
        ("tools: {allow: ['']}", "'' is not a tool"),
        ('tools: {deny: ["Bash(\\n)"]}', "is not a tool"),
        ("tools: [Read]", "`tools` is a mapping"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_its_line(sandbox: str, said: str) -> None:
    message = problem(sandbox)
    assert message.startswith("p.yaml:4: ")
    assert said in message


def test_a_flag_has_the_last_word_over_the_persona() -> None:
    asked = Options(("true",), sockets=("/run/a",), resources=Resources(cpus=2.0))
    got = furnished(asked, Walls(sockets=("/run/b",), memory="1G", cpus="0.5", pids="9", timeout="1.5"))
    assert got.resources == Resources(memory=1 << 30, cpus=2.0, pids=9, timeout=1.5)
    assert (got.sockets, got.usual_sockets) == (("/run/a",), ("/run/b",))


def test_a_persona_that_says_nothing_of_its_sandbox_changes_nothing() -> None:
    asked = Options(("true",))
    assert furnished(asked, Walls()) is asked
