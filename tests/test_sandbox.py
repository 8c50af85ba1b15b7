"""The Python interface without a sandbox: what is asked for, in which words, and what is refused before it starts."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import launcher
from egress.auditrecords import DecisionRecord, Process
from egress.model import Verdict, Via
from egress.refusals import Reason
from launcher import (
    Availability,
    Blocked,
    CommandFailed,
    Done,
    ExcludedCommand,
    Problem,
    Sandbox,
    SandboxError,
    Settings,
    hostdenials,
    hostfamily,
    hostsealed,
    hoststart,
    hostwords,
    sandboxrequest,
)
from launcher.enterchild import Command, pack, paths, unpack
from launcher.hostdenials import Denials
from launcher.hostfamily import Kin, ancestry
from launcher.options import options, read
from launcher.sandboxsettings import NAMES, Fields

ROOT = Path(__file__).resolve().parent.parent
DOCS = (ROOT / "docs" / "python.md").read_text()


def test_importing_the_package_loads_nothing_of_the_interface() -> None:
    script = (
        "import sys, launcher; print(*(n for n in sys.modules if n.startswith(('launcher.', 'asyncio', 'dataclass'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == []


def test_every_name_of_the_interface_is_there_and_no_other() -> None:
    assert all(getattr(launcher, name).__module__ for name in launcher.__all__ if not name.isupper())
    with pytest.raises(AttributeError, match="has no 'Sandboxes', expected one of"):
        _ = launcher.Sandboxes


def test_settings_can_be_given_by_the_names_that_they_have() -> None:
    assert set(Fields.__annotations__) == NAMES
    changed = Sandbox(Settings(persona="a", project="x"), project="y").settings
    assert (changed.persona, changed.project) == ("a", "y")
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.persona = "b"  # type: ignore[misc]


def test_settings_become_the_words_of_the_command_line() -> None:
    settings = Settings(
        persona="p", project="/p", policy=["/a.yaml", Path("/b.yaml")], allow=["x.test:8443"], write=["/w"],
        read=["/r"], hide=["/h"], sockets=["/s"], env={"A": "1=2", "B": None}, host_ports=[5432], memory="4G",
        cpus=0.5, pids=9, timeout=7, seccomp="debug", audit="/log", dns_server="192.0.2.1", upstream="env",
        upstream_ca=["/ca"], backend="podman", fallback="warn", image="i",
    )  # fmt: skip
    values = read(settings.words())
    assert values is not None
    asked = options(values, ["true"])
    assert asked.policy == ("/a.yaml", "/b.yaml")
    assert (asked.write, asked.read, asked.hide, asked.sockets) == (("/w",), ("/r",), ("/h",), ("/s",))
    assert asked.env == ("A=1=2", "B")
    assert asked.host_ports == (5432,)
    assert tuple(asked.resources) == (4 << 30, 0.5, 9, 7.0)
    assert (asked.persona, asked.project, asked.allow) == ("p", "/p", ("x.test:8443",))
    assert (asked.seccomp, asked.audit, asked.dns_server, asked.upstream) == ("debug", "/log", "192.0.2.1", "env")
    assert asked.upstream_ca == ("/ca",)
    assert (asked.backend, asked.fallback, asked.image) == ("podman", "warn", "i")


def test_paths_are_made_absolute_where_the_caller_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"--project={tmp_path}/below" in Settings(project="below").words()
    assert f"--ro={Path.home()}/x" in Settings(read=["~/x"]).words()


@pytest.mark.parametrize("settings", [Settings(persona=""), Settings(allow=["a\0b"])])
def test_a_value_that_is_none_is_refused(settings: Settings) -> None:
    with pytest.raises(SandboxError, match="is no value for --"):
        settings.words()


@pytest.mark.parametrize(
    ("argv", "how", "complaint"),
    [
        ("git status", {}, "is text, expected a list of words"),
        ([], {}, "no command was given"),
        ([""], {}, "no command was given"),
        (["a\0b"], {}, "NUL"),
        (["true"], {"cwd": "a\0b"}, "NUL"),
        (["true"], {"env": {"A=B": ""}}, "'A=B' is not the name of a variable"),
        (["true"], {"env": {"A": "\0"}}, "NUL"),
        (["true"], {"timeout": 0}, "expected more than 0"),
    ],
)
def test_what_makes_no_command_is_refused(argv: list[str], how: dict[str, object], complaint: str) -> None:
    with pytest.raises(SandboxError, match=complaint) as refused:
        sandboxrequest.request(argv, "/p", **how)  # type: ignore[arg-type]
    assert refused.value.status == 2
    assert refused.value.hint


def test_a_directory_is_seen_from_the_sandboxs_own() -> None:
    def where(cwd: str | None) -> bytes:
        return sandboxrequest.request(["true"], "/p", cwd).start.directory

    assert [where(None), where("below"), where("/tmp")] == [b"/p/", b"/p/below", b"/tmp"]


def test_words_need_not_be_text() -> None:
    assert sandboxrequest.request([os.fsdecode(b"\xff")], "/").start.argv == [b"\xff"]


def test_a_command_survives_being_packed() -> None:
    for command in (
        Command(b"/p", [b"a", b"", b"b\n"], {b"A": b"1=2", b"B": b""}),
        Command(b"/p", [b"a"], {}),
    ):
        assert unpack(pack(command)) == command


def test_a_program_is_looked_for_along_absolute_paths_alone() -> None:
    env = {b"PATH": b"/a::.:b:/c"}
    assert paths(b"x", env) == [b"/a/x", b"/c/x"]
    assert paths(b"./x", env) == [b"./x"]
    assert paths(b"x", {}) == []


def test_an_excluded_program_is_known_by_its_exact_first_word() -> None:
    settings = Settings(excluded=["docker"])
    for inside in ("./docker", "/usr/bin/docker", "dockerd", "sh"):
        assert not sandboxrequest.is_outside([inside, "docker"], settings)
    with pytest.raises(ExcludedCommand) as refused:
        sandboxrequest.is_outside(["docker"], settings)
    assert refused.value.hint == "allow_unsandboxed=True lets it run outside"


def test_outside_no_program_counts_that_a_sandbox_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: tmp_path / name for name in ("project", "write", "good")}
    for place in places.values():
        place.mkdir()
        (place / "tool").touch(0o755)
    link = tmp_path / "link"
    link.symlink_to(places["project"])
    monkeypatch.chdir(places["project"])
    monkeypatch.setenv("PATH", f":.:{link}:{places['project']}:{places['write']}:{places['good']}")
    settings = Settings(project=places["project"], write=[places["write"]], excluded=["tool"], allow_unsandboxed=True)
    assert sandboxrequest.find_outside("tool", settings) == str(places["good"] / "tool")
    assert Sandbox(settings).wrap(["tool", "x"]) == [str(places["good"] / "tool"), "x"]
    with pytest.raises(SandboxError, match="'absent' was not found on the host"):
        sandboxrequest.find_outside("absent", settings)


def test_a_wrapped_command_comes_after_its_options_and_runs_no_module_of_its_directory() -> None:
    words = Sandbox(persona="p", project="/p").wrap(["--persona", "x"])
    assert words[:4] == [sys.executable, "-P", "-m", "launcher.cli"]
    assert words[words.index("--") :] == ["--", "--persona", "x"]


def test_the_hosts_python_finds_nothing_by_relative_paths() -> None:
    found = hoststart.environment({"PYTHONPATH": ":.:x:/abs", "LD_LIBRARY_PATH": "/l"}, "/lib")
    assert found["PYTHONPATH"] == f"{ROOT}:/abs"
    assert found["LD_LIBRARY_PATH"] == "/lib:/l"
    assert "LD_LIBRARY_PATH" not in hoststart.environment({}, None)


def test_a_python_of_ours_is_run_from_a_sealed_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostsealed, "_is_ours", lambda _: True)
    path = hostsealed.program()
    assert Path(path).read_bytes() == Path(os.path.realpath(sys.executable)).read_bytes()
    with pytest.raises(OSError), open(path, "r+b", 0) as copy:
        copy.write(b"x")
    monkeypatch.setattr(hostsealed, "_is_ours", lambda _: False)
    assert hostsealed.program() == os.path.realpath(sys.executable)


def test_done_is_well_or_says_how_not() -> None:
    assert Done(("true",), 0).check().ok
    with pytest.raises(CommandFailed, match="'false' ended with 1") as failed:
        Done(("false",), 1).check()
    assert failed.value.done.code == 1
    with pytest.raises(CommandFailed, match="its time was up"):
        Done(("true",), 0, timed_out=True).check()


def test_availability_is_true_or_has_its_problems() -> None:
    assert Availability()
    assert not Availability((Problem("no bwrap", "apt-get install bubblewrap"),))


def test_this_machine_can_be_asked() -> None:
    found = Sandbox.available()
    assert bool(found) is (found.problems == ())


# Whose is a refusal

EVERYBODY = {10: Kin(5, 10), 11: Kin(10, 10), 12: Kin(11, 12), 20: Kin(5, 20), 21: Kin(1, 20), 30: Kin(1, 30)}


def test_a_process_belongs_to_its_ancestors_and_its_session() -> None:
    assert set(ancestry(12, EVERYBODY)) == {12, 11, 10}
    assert set(ancestry(21, EVERYBODY)) == {21, 20}
    assert set(ancestry(99, EVERYBODY)) == set()


def denial(process: int | None, **more: object) -> DecisionRecord:
    told = {} if process is None else {"process": Process(pid=process, exe="/bin/x")}
    values = {"via": Via.CONNECT, "verdict": Verdict.DENY, **told, **more}
    return DecisionRecord(
        ts="", session="s", persona="p", id=1, host="h.test", port=443, reason=Reason.NOT_LISTED, rule=None, **values
    )  # type: ignore[arg-type]


@pytest.fixture
def denials(monkeypatch: pytest.MonkeyPatch) -> Denials:
    monkeypatch.setattr(hostfamily, "census", lambda _: EVERYBODY)
    monkeypatch.setattr(hostfamily, "_number_inside", lambda pid: pid + 100)
    made = Denials(os.getpid(), set())
    made.follow(10)
    made.follow(20)
    return made


def test_a_refusal_goes_to_the_command_whose_family_it_was(denials: Denials) -> None:
    denials.read(denial(112))
    assert [it.process and it.process.exe for it in denials.leave(10)] == ["/bin/x"]
    assert denials.leave(20) == []


@pytest.mark.parametrize("process", [None, 130, 999])
def test_a_refusal_of_nobody_known_goes_to_all_without_a_program(denials: Denials, process: int | None) -> None:
    denials.read(denial(process))
    for pid in (10, 20):
        assert [(it.host, it.process) for it in denials.leave(pid)] == [("h.test", None)]


def test_what_was_allowed_or_only_asked_of_the_nameserver_is_no_refusal(denials: Denials) -> None:
    denials.read(denial(None, verdict=Verdict.ALLOW))
    denials.read(denial(None, via=Via.DNS))
    assert denials.leave(10) == []


def test_refusals_are_bounded(denials: Denials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostdenials, "_MOST", 3)
    for _ in range(9):
        denials.read(denial(None))
    assert len(denials.leave(10)) == 3


def test_what_is_said_between_caller_and_host_arrives() -> None:
    for message in (
        hostwords.Ended(9, True, [hostwords.Denial("h", None, "r", hostwords.Program(1, "e", "c"))], ["w"]),
        hostwords.Refused("X", 2),
        hostwords.Started(7),
    ):
        assert hostwords.to_caller(hostwords.encode(message)) == message


# The page


def test_the_page_names_every_setting_every_error_and_every_field_of_a_result() -> None:
    named = set(re.findall(r"`([a-z_]+)`", DOCS))
    assert named >= NAMES
    assert {name for name in Done._fields if name != "argv"} <= named
    assert all(
        f"`{name}`" in DOCS for name in launcher.__all__ if name.endswith(("Error", "Ended", "Failed", "Started"))
    )
    assert f"`{Blocked.__name__}({', '.join(Blocked._fields)})`" in DOCS


def test_every_example_on_the_page_is_there_and_the_other_way_round() -> None:
    listed = set(re.findall(r"\(examples/([a-z_]+\.py)\)", DOCS))
    assert listed == {path.name for path in (ROOT / "docs" / "examples").glob("*.py")}


def test_limits_that_are_ours_anyway_are_not_handed_on() -> None:
    from launcher import enter

    assert enter._limits(os.getpid()) == ()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    child = subprocess.Popen(["sleep", "1000"])
    try:
        resource.prlimit(child.pid, resource.RLIMIT_DATA, (1 << 30, hard))
        assert enter._limits(child.pid) == ((resource.RLIMIT_DATA, (1 << 30, hard)),)
    finally:
        child.kill()
        child.wait()
    assert soft != 1 << 30
