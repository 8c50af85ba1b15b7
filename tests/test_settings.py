"""`egress settings`, as a command: what it writes, what it leaves alone, and what it says."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from egress import signpost
from egress.cli import main
from egress.signpost import Entrance

SHARED, LOCAL, MEMORY = Path(".claude/settings.json"), Path(".claude/settings.local.json"), Path("CLAUDE.md")
Run = Callable[..., tuple[int, str, str]]
POLICY = """\
version: 1
personas:
  p:
    allow:
      - a.test
      - "*.b.test"
      - {host: api.b.test, methods: [GET], paths: [/v1/**]}
      - c.test:22
      - {host: d.test, methods: [GET]}
      - "[fd00::7]"
    deny: [gist.b.test, "e.test:22"]
    filesystem: {write: [~/.cache/go, /opt/out/], read: [~/.config/gh], hide: [secrets, /srv/x], protect: [Makefile]}
    tools: {allow: [Read, "Bash(git log*)"], deny: ["Write(*)"]}
  q:
    allow: [q.test]
    tools: {allow: [Read, Bash]}
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("../p.yaml").write_text(POLICY)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["settings", *words])
        return code, *capsys.readouterr()

    return run


def of_p(*words: str) -> tuple[str, ...]:
    return ("--policy", "../p.yaml", "--persona", "p", *words)


def of_q(*words: str) -> tuple[str, ...]:
    return ("--policy", "../p.yaml", "--persona", "q", *words)


def written(path: Path = SHARED) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def put(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


# --- what is written


def test_the_values_are_the_persona_s(run: Run) -> None:
    assert run(*of_p("--proxy-port", "3128"))[:2] == (0, ".claude/settings.json\nCLAUDE.md\n")
    settings = written()
    assert settings["permissions"]["allow"] == ["Read", "Bash(git log*)"]
    assert settings["permissions"]["deny"][0] == "Write(*)"
    sandbox = settings["sandbox"]
    assert {key: value for key, value in sandbox.items() if isinstance(value, bool)} == {
        "enabled": True,
        "failIfUnavailable": True,
        "autoAllowBashIfSandboxed": True,
        "allowUnsandboxedCommands": False,
    }
    assert sandbox["network"] == {
        "allowedDomains": ["a.test", "*.b.test", "api.b.test", "d.test"],
        "deniedDomains": ["gist.b.test"],
        "allowLocalBinding": False,
        "httpProxyPort": 3128,
        "socksProxyPort": 3128,
    }
    files = sandbox["filesystem"]
    assert files["allowWrite"] == [".", "~/.cache/go", "/opt/out"]
    assert files["denyRead"][-2:] == ["secrets", "/srv/x"]
    assert {"~/.ssh", "~/.aws", "~/.gnupg"} <= {*files["denyRead"]}
    assert "~/.config/gh" not in files["denyRead"]  # which the persona may read
    assert {".env", "*.pem", ".claude/settings.json", ".cursor/mcp.json", ".git/hooks", "Makefile"} <= {
        *files["denyWrite"]
    }


def test_its_own_tools_are_told_of_the_same_files(run: Run) -> None:
    run(*of_p())
    denied = {*written()["permissions"]["deny"]}
    assert {"Read(~/.ssh)", "Read(/secrets)", "Read(//srv/x)"} <= denied
    assert {"Edit(.env)", "Edit(*.pem)", "Edit(/.git/hooks)", "Edit(Makefile)"} <= denied


def test_without_a_gate_hosts_that_only_a_gate_can_tell_apart_are_allowed_whole_and_that_is_said(run: Run) -> None:
    err = run(*of_p())[2]
    assert written()["sandbox"]["network"]["allowedDomains"] == ["a.test", "*.b.test", "api.b.test", "d.test"]
    assert written()["sandbox"]["network"]["deniedDomains"] == ["gist.b.test"]
    assert "warning: allowed with all requests, since only a gate can tell them apart: api.b.test, d.test\n" in err


def test_a_person_can_have_them_left_out(run: Run) -> None:
    err = run(*of_p("--exact-hosts"))[2]
    network = written()["sandbox"]["network"]
    assert network["allowedDomains"] == ["a.test", "*.b.test"]
    assert network["deniedDomains"] == ["gist.b.test", "api.b.test"]  # which the wildcard would take in
    assert "httpProxyPort" not in network
    assert "no gate of persona p runs here" in err
    assert "requests apart: api.b.test, d.test\n" in err


def test_that_rules_for_commands_do_not_hold_in_the_sandbox_is_said_once(run: Run) -> None:
    note = "note: commands in the sandbox run without asking"
    assert note in run(*of_p())[2]
    assert note not in run(*of_p())[2]


def test_whoever_may_run_anything_is_not_told(run: Run) -> None:
    assert "without asking" not in run(*of_q())[2]


def test_an_agent_inside_our_sandbox_is_told_of_its_tools_alone(run: Run) -> None:
    assert run(*of_p("--inside"))[2] == ""
    settings = written()
    assert settings["permissions"] == {"allow": ["Read", "Bash(git log*)"], "deny": ["Write(*)"]}
    assert settings["sandbox"] == {"enabled": False}


def test_a_running_gate_is_found(run: Run) -> None:
    others = [Entrance("q", "127.0.0.1", 1), Entrance("p", "192.0.2.1", 2), Entrance("p", "127.0.0.1", 3)]
    with signpost.posted(others, os.environ):
        assert "no gate" not in run(*of_p())[2]
    assert written()["sandbox"]["network"]["socksProxyPort"] == 3
    assert "no gate" in run(*of_p())[2]
    assert "httpProxyPort" not in written()["sandbox"]["network"]


def test_the_agent_is_told_in_words(run: Run) -> None:
    run(*of_p())
    text = MEMORY.read_text()
    assert text.startswith("<!-- egress: begin (persona p; ")
    assert text.endswith("\n<!-- egress: end -->\n")
    network, _, tools = text.partition("## Allowed tools")
    assert "- `a.test`\n- `*.b.test`\n" in network
    assert "- `api.b.test`: GET /v1/**\n- `c.test`: port 22\n- `d.test`: GET /**\n- `fd00::7`: port 80,443\n" in network
    assert "Never:\n\n- `gist.b.test`\n" in network
    assert "- `Read`\n- `Bash(git log*)`\n\n## Denied tools\n\nNever:\n\n- `Write(*)`\n" in tools


def test_what_the_agent_is_told_does_not_depend_on_the_gate(run: Run) -> None:
    run(*of_p())
    before = MEMORY.read_text()
    run(*of_p("--proxy-port", "3128"))
    assert MEMORY.read_text() == before


# --- what was there


def test_a_second_run_changes_nothing(run: Run) -> None:
    put(SHARED, {"model": "opus", "permissions": {"allow": ["Bash(make*)"]}})
    put(MEMORY, "# Mine\n")
    run(*of_p())
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (SHARED, MEMORY)}
    assert run(*of_p())[:2] == (0, "")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (SHARED, MEMORY)} == before


def test_what_a_person_wrote_stays_in_its_order(run: Run) -> None:
    put(SHARED, {"zebra": 1, "permissions": {"ask": ["x"], "allow": ["Bash(make*)", "Read"]}, "model": "opus"})
    run(*of_p())
    settings = written()
    assert list(settings) == ["zebra", "permissions", "model", "sandbox", "egress"]
    assert settings["permissions"]["ask"] == ["x"]
    assert settings["permissions"]["allow"] == ["Bash(make*)", "Read", "Bash(git log*)"]


def test_another_persona_takes_away_what_the_first_had_added_and_no_more(run: Run) -> None:
    put(SHARED, {"permissions": {"allow": ["Read"]}})
    run(*of_p())
    now = written()
    now["permissions"]["allow"].append("Bash(mine*)")
    now["sandbox"]["network"]["allowedDomains"].insert(0, "mine.test")
    put(SHARED, now)
    run(*of_q())
    settings = written()
    assert settings["permissions"]["allow"] == ["Read", "Bash(mine*)", "Bash"]
    assert settings["sandbox"]["network"]["allowedDomains"] == ["mine.test", "q.test"]
    assert "deniedDomains" not in settings["sandbox"]["network"]
    assert "a.test" not in MEMORY.read_text()
    run("--remove")
    assert written() == {
        "permissions": {"allow": ["Read", "Bash(mine*)"]},
        "sandbox": {"network": {"allowedDomains": ["mine.test"]}},
    }


OWN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "an empty list": {"permissions": {"allow": []}},
    "empty objects": {"permissions": {}, "sandbox": {"network": {}}},
    "the same values": {"sandbox": {"enabled": True, "network": {"allowedDomains": ["a.test"]}}},
    "weaker values": {"sandbox": {"enabled": False, "allowUnsandboxedCommands": True, "network": {"httpProxyPort": 9}}},
    "a stricter value": {"sandbox": {"autoAllowBashIfSandboxed": False}},
    "null": {"sandbox": {"enabled": None}},
}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("personas", [[of_p], [of_q], [of_p, of_q], [of_q, of_p, of_p]])
def test_ours_goes_and_leaves_what_was_there(
    run: Run, own: str, personas: list[Callable[..., tuple[str, ...]]]
) -> None:
    text = json.dumps(OWN[own], indent=2) + "\n"
    put(SHARED, text)
    for number, words in enumerate(personas):
        run(*words("--proxy-port", f"{3000 + number}"))
    assert run("--remove")[0] == 0
    assert SHARED.read_text() == text
    assert not MEMORY.exists()


def test_what_was_made_here_goes_whole(run: Run) -> None:
    run(*of_p())
    run(*of_p("--local"))
    assert run("--remove")[:2] == (0, f"{SHARED}\n{LOCAL}\n{MEMORY}\n")
    assert os.listdir() == []
    assert run("--remove") == (0, "", "egress: nothing to change\n")


def test_an_empty_file_of_a_person_stays(run: Run) -> None:
    put(MEMORY, "")
    assert run("--remove") == (0, "", "egress: nothing to change\n")
    assert MEMORY.exists()


@pytest.mark.parametrize(
    ("path", "theirs"),
    [
        (("enabled",), False),
        (("enabled",), 1),  # which is not true
        (("failIfUnavailable",), False),
        (("allowUnsandboxedCommands",), True),
        (("network", "allowLocalBinding"), True),
        (("network", "httpProxyPort"), 8080),
    ],
)
def test_a_weaker_value_is_replaced_and_that_is_said(run: Run, path: tuple[str, ...], theirs: Any) -> None:
    tree = theirs
    for key in reversed(path):
        tree = {key: tree}
    put(SHARED, {"sandbox": tree})
    err = run(*of_p("--proxy-port", "3128"))[2]
    assert f"warning: .claude/settings.json: sandbox.{'.'.join(path)} was {json.dumps(theirs)}, which " in err
    assert run(*of_p("--proxy-port", "3128"))[2] == "egress: nothing to change\n"  # and only once


def test_a_stricter_value_of_a_person_stays(run: Run) -> None:
    put(SHARED, {"sandbox": {"autoAllowBashIfSandboxed": False}})
    err = run(*of_q("--proxy-port", "3128"))[2]
    assert written()["sandbox"]["autoAllowBashIfSandboxed"] is False
    assert err == ""


def test_what_else_lets_things_through_is_told(run: Run) -> None:
    network = {"allowedDomains": ["mine.test", "a.test"], "allowAllUnixSockets": True}
    put(SHARED, {"sandbox": {"excludedCommands": ["docker *"], "network": network}})
    err = run(*of_p("--proxy-port", "1"))[2]
    assert "note: .claude/settings.json: sandbox.network.allowedDomains also has, from you: mine.test\n" in err
    assert "sandbox.excludedCommands is yours and stays, but these commands run outside of the sandbox" in err
    assert "sandbox.network.allowAllUnixSockets is yours" in err


def test_two_personas_in_two_files_are_told(run: Run) -> None:
    run(*of_p())
    err = run(*of_q("--local"))[2]
    assert "warning: .claude/settings.json has persona p, and what either allows is allowed" in err
    assert written(LOCAL)["egress"]["persona"] == "q"
    assert "has persona" not in run(*of_p("--local"))[2]


def test_the_layout_is_kept(run: Run) -> None:
    put(SHARED, '{\n\t"model": "opüs"\n}\n')
    run(*of_p())
    lines = SHARED.read_text().splitlines()
    assert lines[1] == '\t"model": "opüs",'
    assert [line[:12] for line in lines if line.startswith('\t"egress"')] == ['\t"egress": {']
    assert lines[-1] == "}"


def test_line_ends_are_kept(run: Run) -> None:
    SHARED.parent.mkdir()
    SHARED.write_bytes(b'{\r\n  "a": 1\r\n}\r\n')
    run(*of_p())
    assert SHARED.read_bytes().count(b"\n") == SHARED.read_bytes().count(b"\r\n") > 10


# --- CLAUDE.md


@pytest.mark.parametrize("text", ["# Mine\n", "# Mine\n\nwords\n", "# Mine\n\n\n"])
def test_a_person_s_memory_is_as_it_was_afterwards(run: Run, text: str) -> None:
    put(MEMORY, text)
    run(*of_p())
    assert MEMORY.read_text().startswith(f"{text}\n<!-- egress: begin")
    run("--remove")
    assert MEMORY.read_text() == text


def test_a_last_line_gets_its_end(run: Run) -> None:
    put(MEMORY, "# Mine")
    run(*of_p())
    run("--remove")
    assert MEMORY.read_text() == "# Mine\n"


def test_our_part_is_replaced_where_it_stands(run: Run) -> None:
    run(*of_p())
    put(MEMORY, f"# Above\n\n{MEMORY.read_text()}\n# Below\n")
    run(*of_q())
    text = MEMORY.read_text()
    assert text.startswith("# Above\n\n<!-- egress: begin (persona q; ")
    assert text.endswith("<!-- egress: end -->\n\n# Below\n")
    assert "a.test" not in text
    run("--remove")
    assert MEMORY.read_text() == "# Above\n\n# Below\n"


BEGIN, END = "<!-- egress: begin -->\n", "<!-- egress: end -->\n"


@pytest.mark.parametrize("text", [BEGIN, END, END + BEGIN, BEGIN + BEGIN + END, BEGIN + END + BEGIN + END])
def test_marks_that_do_not_fit_are_an_error_and_nothing_is_written(run: Run, text: str) -> None:
    put(MEMORY, text)
    code, _, err = run(*of_p())
    assert code == 2
    assert "error: CLAUDE.md: expected one `<!-- egress: begin` and then one" in err
    assert MEMORY.read_text() == text
    assert not SHARED.exists()


# --- looking before writing


def test_a_dry_run_shows_the_difference_and_makes_none(run: Run) -> None:
    put(SHARED, '{\n  "model": "opus"\n}\n')
    code, out, _ = run(*of_p("--dry-run"))
    assert code == 0
    assert out.startswith("--- .claude/settings.json\n+++ .claude/settings.json\n@@ -1,3 +1,")
    assert '\n-  "model": "opus"\n+  "model": "opus",\n' in out
    assert "\n+## Network access\n" in out
    assert written() == {"model": "opus"}
    assert not MEMORY.exists()


def test_a_check_fails_as_long_as_something_would_change(run: Run) -> None:
    code, out, err = run(*of_p("--check"))
    assert (code, out) == (1, "")
    assert err.endswith("egress: would change: .claude/settings.json\negress: would change: CLAUDE.md\n")
    assert os.listdir() == []
    run(*of_p())
    assert run(*of_p("--check"))[:2] == (0, "")
    assert run(*of_q("--check"))[0] == 1
    assert run("--remove", "--check")[0] == 1
    assert SHARED.exists()


# --- what is in the way

BROKEN = {
    "not JSON": ('{\n  "a": 1\n  "b": 2\n}', ".claude/settings.json:3:3: not JSON: expecting ',' delimiter"),
    "a comment": ("{\n  // mine\n}", ".claude/settings.json:2:3: not JSON: "),
    "a list": ("[]", ".claude/settings.json:1:1: expected an object in braces, not list"),
    "a key twice": ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
    "no number": ('{"a": NaN}', "NaN is no number"),
    "too deep": ("[" * 100_000, ".claude/settings.json"),
    "a word for a list": ('{"permissions": {"allow": "Read"}}', "permissions.allow is 'Read', expected a list"),
    "a list for an object": ('{"sandbox": []}', "sandbox is [], expected an object"),
    "somebody else's key": ('{"egress": {"mine": 1}}', "'egress' is not the record of an earlier run"),
    "a record of something": ('{"egress": {"added": []}}', "'egress' is not the record of an earlier run"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_cannot_be_understood_is_an_error_and_untouched(run: Run, case: str) -> None:
    text, complaint = BROKEN[case]
    put(SHARED, text)
    code, out, err = run(*of_p())
    assert (code, out) == (2, "")
    assert complaint in err
    assert "egress: hint: " in err
    assert SHARED.read_text() == text
    assert not MEMORY.exists()


def test_an_empty_file_has_no_settings_yet(run: Run) -> None:
    put(SHARED, "\n")
    assert run(*of_p())[0] == 0
    assert written()["sandbox"]["enabled"] is True


def test_a_link_is_not_followed_out_of_the_project(run: Run) -> None:
    Path("../elsewhere").mkdir()
    SHARED.parent.symlink_to("../elsewhere")
    code, _, err = run(*of_p())
    assert code == 2
    assert "error: .claude/settings.json: leads out of the directory, to " in err
    assert os.listdir("../elsewhere") == []


def test_a_link_within_the_project_is_followed(run: Run) -> None:
    put(Path("AGENTS.md"), "# Mine\n")
    MEMORY.symlink_to("AGENTS.md")
    run(*of_p())
    assert MEMORY.is_symlink()
    assert "## Network access" in Path("AGENTS.md").read_text()


def test_what_is_no_file_is_left_alone(run: Run) -> None:
    SHARED.parent.mkdir()
    os.mkfifo(SHARED)
    code, _, err = run(*of_p())
    assert (code, "error: .claude/settings.json: is not a regular file" in err) == (2, True)


def test_a_file_keeps_its_mode(run: Run) -> None:
    put(SHARED, {})
    SHARED.chmod(0o640)
    run(*of_p())
    assert stat.S_IMODE(SHARED.stat().st_mode) == 0o640
    assert sorted(os.listdir(".claude")) == ["settings.json"]


def test_another_directory_can_be_named(run: Run) -> None:
    Path("there").mkdir()
    assert run(*of_p("--out", "there"))[1] == "there/.claude/settings.json\nthere/CLAUDE.md\n"
    code, _, err = run(*of_p("--out", "nowhere"))
    assert (code, "error: --out 'nowhere' is not a directory" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--remove", "--persona", "p", "--local"], "has no use for --persona, --local"),
        (of_p("--inside", "--proxy-port", "1"), "--inside has no use for --proxy-port"),
        (of_p("--inside", "--exact-hosts"), "--inside has no use for --proxy-port or --exact-hosts"),
        (of_p("--proxy-port", "0"), "'0' is not a port, expected a number such as 3128"),
        (of_p("--proxy-port", "65536"), "'65536' is not a port"),
        ([], "no persona given"),
        (["--persona", "reviewr"], "did you mean 'reviewer'?"),
    ],
)
def test_options_that_do_not_fit_are_refused(run: Run, words: list[str], complaint: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert complaint in err
    assert os.listdir() == []


# --- the personas that ship

MODEL = ["api.anthropic.com"]
GITHUB = ["github.com", "api.github.com", "*.github.com"]
READ = [f"{name}.githubusercontent.com" for name in ("raw", "objects", "release-assets")]
MORE = ["*.githubusercontent.com", "proxy.golang.org", "sum.golang.org"]
LOOKING = ["Read", "Glob", "Grep", "Bash(git log*)"]
NO_CHANGES = ["Write(*)", "Edit(*)", "NotebookEdit(*)"]
MAKING = ["Read", "Write", "Edit", "Bash", "Glob", "Grep"]
SHIPPED = {
    "navigator": (MODEL, LOOKING, NO_CHANGES),
    "philosopher": (MODEL, LOOKING, NO_CHANGES),
    "auditor": (MODEL, LOOKING, NO_CHANGES),
    "reviewer": ([*MODEL, *GITHUB, *READ], LOOKING, NO_CHANGES),
    "implementer": ([*MODEL, *GITHUB, *MORE], MAKING, []),
    "craftsman": ([*MODEL, *GITHUB, *MORE], MAKING, []),
}


@pytest.mark.parametrize(("persona", "hosts", "allow", "deny"), [(n, *row) for n, row in SHIPPED.items()])
def test_a_shipped_persona_is_written_down(
    run: Run, persona: str, hosts: list[str], allow: list[str], deny: list[str]
) -> None:
    run("--persona", persona)
    settings = written()
    assert sorted(settings["sandbox"]["network"]["allowedDomains"]) == sorted(hosts)
    assert settings["sandbox"]["autoAllowBashIfSandboxed"] is True
    assert settings["permissions"]["allow"][:4] == allow[:4]
    assert settings["permissions"]["deny"][: len(deny)] == deny
    assert_known(settings, SCHEMA)


# What the published schema says of the keys that are written (json.schemastore.org/claude-code-settings.json), and
# what Claude Code's own reader does.
_WORDS, _YES_OR_NO, _NUMBER = [str], bool, int
SCHEMA: dict[str, Any] = {
    "permissions": {"allow": _WORDS, "deny": _WORDS},
    "sandbox": {
        **dict.fromkeys(
            ("enabled", "failIfUnavailable", "autoAllowBashIfSandboxed", "allowUnsandboxedCommands"), _YES_OR_NO
        ),
        "network": {
            **dict.fromkeys(("allowedDomains", "deniedDomains"), _WORDS),
            "allowLocalBinding": _YES_OR_NO,
            **dict.fromkeys(("httpProxyPort", "socksProxyPort"), _NUMBER),
        },
        "filesystem": dict.fromkeys(("allowWrite", "denyRead", "denyWrite"), _WORDS),
    },
    "egress": dict,  # others' keys are passed through at the top
}


def assert_known(value: Any, kind: Any) -> None:
    if isinstance(kind, dict):
        assert value.keys() <= kind.keys()
        for key, inner in value.items():
            assert_known(inner, kind[key])
    elif isinstance(kind, list):
        assert {type(entry) for entry in value} <= {*kind}
        assert len({*value}) == len(value)
    else:
        assert type(value) is kind
