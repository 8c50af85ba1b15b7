from __future__ import annotations

import json
from pathlib import Path

import pytest

from egress.cli import main

POLICY = """\
version: 1
hosts: {fixed.test: "[fd00::7]:8443"}
personas:
  reader:
    description: reads
    allow:
      - a.test
      - {host: b.test, ports: [8443, 443], tls: true, private: true}
      - {host: c.test, methods: [HEAD, GET], paths: [/x/**], secret: {env: KEY, header: k}}
      - host: e.test
        headers: {require: {a: b, c: "*"}, forbid: [d]}
        upload_limit: {request: 1M, session: 20M}
        methods: [GET, HEAD]
        paths: [/x/**]
        secret: {env: KEY, header: k, command: [gh, auth], optional: true}
    deny: [gist.test, d.test:22]
    env: [A, B]
  worker:
    extends: reader
    filesystem: {write: [~/.cache, out], protect: [Makefile]}
    tools: {allow: [Read, "Bash(git log*)"], deny: ["Write(*)"]}
    sandbox: {backend: podman, memory: 4G, sockets: [/run/x.sock], allow_calls: [read, write]}
  empty: {}
"""
MORE_TERMS = "require=a:b,c:* forbid=d upload_limit=1M session_limit=20M secret=command:gh"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(POLICY)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["policy", *words])
        return code, *capsys.readouterr()

    return run


def test_show_lists_the_personas_with_their_descriptions(run) -> None:
    code, out, err = run("show", "--policy", "p.yaml")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in lines[:2]] == ["navigator", "philosopher"]
    assert [line.split() for line in lines[-3:]] == [["reader", "reads"], ["worker", "reads"], ["empty"]]


def test_show_lists_what_is_in_force_with_its_place(run) -> None:
    code, out, _ = run("show", "--policy", "p.yaml", "--persona", "reader", "--allow", "extra.test:99")
    assert code == 0
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "reader: reads",
        "env: A B",
        "host fixed.test [fd00::7]:8443 p.yaml:2",
        "allow extra.test 99 --allow",
        "allow a.test 80,443 p.yaml:7",
        "allow b.test 443,8443 p.yaml:8 tls private",
        "allow c.test 80,443 p.yaml:9 inspected methods=GET,HEAD paths=/x/** secret=KEY",
        f"allow e.test 80,443 p.yaml:10 inspected methods=GET,HEAD paths=/x/** {MORE_TERMS}",
        "deny gist.test any p.yaml:16",
        "deny d.test 22 p.yaml:16",
    ]


def test_show_tells_what_a_persona_says_of_its_room(run) -> None:
    _, out, _ = run("show", "--policy", "p.yaml", "--persona", "worker")
    assert out.splitlines()[2:10] == [
        "filesystem write: ~/.cache, out",
        "filesystem protect: Makefile",
        "tools allow: Read, Bash(git log*)",
        "tools deny: Write(*)",
        "sandbox backend: podman",
        "sandbox sockets: /run/x.sock",
        "sandbox allow_calls: read, write",
        "sandbox memory: 4G",
    ]
    told = json.loads(run("show", "--policy", "p.yaml", "--persona", "worker", "--json")[1])
    assert told["filesystem"] == {"write": ["~/.cache", "out"], "read": [], "hide": [], "protect": ["Makefile"]}
    assert told["tools"] == {"allow": ["Read", "Bash(git log*)"], "deny": ["Write(*)"]}
    assert (told["sandbox"]["backend"], told["sandbox"]["sockets"], told["sandbox"]["cpus"]) == (
        "podman",
        ["/run/x.sock"],
        None,
    )


def test_show_says_it_when_nothing_is_allowed(run) -> None:
    Path("e.yaml").write_text("version: 1\npersonas: {empty: {}}")
    assert run("show", "--policy", "e.yaml", "--persona", "empty")[1].splitlines()[-1] == "allow  nothing"


def test_show_speaks_json(run) -> None:
    _, out, _ = run("show", "--policy", "p.yaml", "--persona", "reader", "--json")
    told = json.loads(out)
    assert told["persona"] == "reader"
    assert told["env"] == ["A", "B"]
    assert told["hosts"] == [{"host": "fixed.test", "ip": "fd00::7", "port": 8443, "source": "p.yaml:2"}]
    assert (told["allow"][2]["headers"], told["allow"][2]["upload_limit"]) == (None, None)
    assert told["allow"][3] == {
        "host": "e.test",
        "ports": [80, 443],
        "tls": None,
        "private": False,
        "methods": ["GET", "HEAD"],
        "paths": ["/x/**"],
        "headers": {"require": {"a": "b", "c": None}, "forbid": ["d"]},
        "upload_limit": {"request": 1 << 20, "session": 20 << 20},
        "secret": {
            "header": "k",
            "format": "{}",
            "env": "KEY",
            "file": None,
            "command": ["gh", "auth"],
            "optional": True,
            "allow_other": False,
            "user": None,
        },
        "inspect": True,
        "source": "p.yaml:10",
    }
    assert told["deny"] == [
        {"host": "gist.test", "ports": None, "source": "p.yaml:16"},
        {"host": "d.test", "ports": [22], "source": "p.yaml:16"},
    ]
    _, out, _ = run("show", "--policy", "p.yaml", "--json")
    assert json.loads(out)[-3] == {"persona": "reader", "description": "reads", "source": "p.yaml:4"}


def test_show_of_an_unknown_persona_fails(run) -> None:
    code, out, err = run("show", "--persona", "reviewr")
    assert (code, out) == (2, "")
    assert "did you mean 'reviewer'?" in err


def test_lint_of_everything_in_force_is_clean_as_shipped(run) -> None:
    assert run("lint", "--strict") == (0, "", "egress: no warnings\n")


def test_lint_tells_errors_as_a_compiler_does(run) -> None:
    Path("bad.yaml").write_text("version: 1\ngroups: {g: ['*.com']}\npersonas: {p: {alow: []}}\n")
    code, out, err = run("lint", "bad.yaml")
    assert code == 1
    first, second = out.splitlines()
    assert first.startswith("bad.yaml:2: error: '*.com': anyone may register a name below com")
    assert second.startswith("bad.yaml:3: error: unknown key 'alow' in persona 'p'; did you mean 'allow'?")
    assert err == "egress: 2 errors\n"


def test_lint_passes_with_warnings_and_fails_with_them_when_strict(run) -> None:
    Path("doubtful.yaml").write_text("version: 1\npersonas: {p: {allow: [pastebin.com]}}\n")
    for option, expected in (((), 0), (("--strict",), 1)):
        code, out, err = run("lint", "doubtful.yaml", *option)
        assert code == expected
        assert out.startswith("doubtful.yaml:2: warning: pastebin.com: pastebin.com keeps what it is sent")
        assert err == "egress: 1 warning\n"


def test_lint_reads_files_over_what_is_in_force_and_speaks_of_them_alone(run) -> None:
    user = Path(".config/egress")
    user.mkdir(parents=True)
    (user / "mine.yaml").write_text("version: 1\npersonas: {mine: {allow: [pastebin.com]}}")
    Path("ok.yaml").write_text("version: 1\npersonas: {p: {extends: mine, allow: ['@github', transfer.sh]}}")
    code, out, _ = run("lint", "ok.yaml")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["ok.yaml"]
    assert str(user / "mine.yaml") in run("lint")[1]


def test_lint_of_a_missing_file_fails(run) -> None:
    code, out, _ = run("lint", "none.yaml")
    assert (code, out) == (1, "none.yaml: error: cannot be read: No such file or directory\n")


@pytest.mark.parametrize("words", [["policy"], ["policy", "show"], ["policy", "lint"]])
def test_the_example_in_the_help_works(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    example = capsys.readouterr().out.split("example:\n")[1].split()
    assert main(example[1:]) == 0
