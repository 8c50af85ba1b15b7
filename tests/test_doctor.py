"""The doctor: what it makes of bubblewrap's words, how it asks, and how it speaks."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from egress import places
from egress.commands import doctor as command
from launcher import doctor, ground
from launcher.checks import gate, machine, network, sandbox
from launcher.checks.model import Check, Finding, Status, fail, ok, warn
from launcher.diagnosis import ASK, TABLE, Diagnosis, Facts, diagnose
from launcher.doctor import Result, can_run, examine
from launcher.netns.handover import Handover
from launcher.netns.model import Capture, HandoverError

NO_PERMISSION = "bwrap: No permissions to create new namespace, likely because the kernel does not allow"
NO_SPACE = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
UBUNTU = Facts(apparmor=1, clone_allowed=1, most_namespaces=15000)

# bubblewrap's words, as it says them in the versions that are about; the facts; and what is made of both.
SYMPTOMS = [
    (NO_PERMISSION, Facts(is_sandboxed=True), "this is a sandbox already"),
    (NO_SPACE, Facts(is_sandboxed=True), "this is a sandbox already"),
    (NO_PERMISSION, Facts(clone_allowed=0), "only root may make user namespaces"),
    (NO_PERMISSION, Facts(is_chroot=True), "in a chroot"),
    (NO_PERMISSION, Facts(is_filtered=True), "a seccomp filter"),
    (NO_PERMISSION, UBUNTU, "AppArmor"),
    (NO_PERMISSION, Facts(), "the kernel refuses new user namespaces"),
    ("bwrap: No permissions to creating new namespace, likely because", Facts(clone_allowed=0), "only root"),
    ("bwrap: No permissions to create a new namespace, likely because", Facts(clone_allowed=0), "only root"),
    ("bwrap: Creating new namespace failed: Permission denied", UBUNTU, "AppArmor"),
    ("bwrap: setting up uid map: Permission denied", UBUNTU, "AppArmor"),
    ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", UBUNTU, "AppArmor"),
    (NO_SPACE, Facts(most_namespaces=0), "user namespaces are switched off"),
    (NO_SPACE, Facts(most_namespaces=900), "too many namespaces"),
    (
        "bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces.",
        Facts(),
        "this kernel has no user namespaces",
    ),
    ("bwrap: Creating new namespace failed: Resource temporarily unavailable", Facts(), "another process"),
    ("bwrap: Can't fork for pid 1: Resource temporarily unavailable", Facts(), "another process"),
    ("bwrap: setting up uid map: Operation not permitted", Facts(is_root=True, apparmor=1), "root lacks a capability"),
    ("bwrap: setting up uid map: Operation not permitted", Facts(), "hidepid"),
    ("bwrap: loopback: Failed RTM_NEWADDR: File exists", Facts(), "gVisor"),
    ("bwrap: loopback: Failed to create NETLINK_ROUTE socket: Operation not permitted", Facts(), "loopback cannot"),
    ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", Facts(), "parts of /proc are hidden"),
    (
        "bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system",
        Facts(),
        "parts of /proc are hidden or read-only",
    ),
    ("bwrap: cannot open /proc/sys/user/max_user_namespaces: Permission denied", Facts(), "as in LXC"),
    ("bwrap: unshare user ns: Operation not permitted", Facts(), "forbids unshare"),
    ("bwrap: pivot_root: Invalid argument", Facts(), "an initramfs, or a chroot"),
    ("bwrap: pivot_root: Operation not permitted", Facts(), "mounts are forbidden (pivot_root)"),
    ("bwrap: Failed to make / slave: Permission denied", Facts(), "mounts are forbidden (Failed to make / slave)"),
    ("bwrap: Failed to mount tmpfs: Permission denied", Facts(), "mounts are forbidden"),
    ("bwrap: Can't mount tmpfs on /newroot/a: Operation not permitted", Facts(), "(Can't mount tmpfs on /newroot/a)"),
    ("bwrap: Can't find source path /nfs/home: Permission denied", Facts(), "/nfs/home cannot be reached"),
    ("bwrap: Can't find source path /gone: No such file or directory", Facts(), "/gone is not there"),
    ("bwrap: Can't read /proc/sys/kernel/overflowuid: No such file or directory", Facts(), "/proc is not mounted"),
    ("bwrap: Unknown option --disable-userns", Facts(), "it does not know --disable-userns"),
    ("bwrap: Unexpected capabilities but not setuid, old file caps config?", Facts(), "started with capabilities"),
    (
        "bwrap: error while loading shared libraries: libcap.so.2: cannot open shared object file: No such file",
        Facts(),
        "lacks the library libcap.so.2",
    ),
    (
        "bwrap: error while loading shared libraries: libcap.so.2: cannot open shared object file: Error 24",
        Facts(),
        "no more open files",
    ),
    ("bwrap: eventfd(): Too many open files", Facts(), "no more open files"),
    ("bwrap: eventfd(): Too many open files in system", Facts(), "the system has no descriptors left"),
    ("bwrap: Can't bind mount /oldroot/a on /newroot/a: No space left on device", Facts(), "no more mounts"),
    ("bwrap: Can't create file at /x: No space left on device", Facts(), "a disk is full"),
    ("bwrap: Creating new namespace failed: Cannot allocate memory", Facts(), "no memory left"),
    ("bwrap: prctl(PR_SET_SECCOMP): Invalid argument", Facts(), "no seccomp filter"),
    ("bwrap: execvp claude: No such file or directory", Facts(), "claude is not to be found"),
    ("bwrap: execvp ./notes.txt: Permission denied", Facts(), "./notes.txt cannot be executed"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "facts", "cause"), SYMPTOMS)
def test_the_cause_is_found_in_bubblewraps_words(words: str, facts: Facts, cause: str) -> None:
    found = diagnose(f"something else\n{words}\n", facts)
    assert cause in found.what
    assert "{0}" not in found.what
    assert found.hint not in ("", ASK)


def test_every_row_of_the_table_is_somebodys_diagnosis() -> None:
    told = {diagnose(words, facts) for words, facts, _ in SYMPTOMS}
    reached = {
        row.what for row in TABLE for it in told if re.fullmatch(re.escape(row.what).replace(r"\{0\}", ".*"), it.what)
    }
    assert {row.what for row in TABLE} - reached == set()


def test_unknown_words_are_passed_on() -> None:
    assert diagnose("bwrap: a new thing\n", Facts()) == Diagnosis("bubblewrap failed: a new thing", ASK)
    assert diagnose("", Facts()) == Diagnosis("bubblewrap failed: without a word", ASK)


def test_the_profile_for_apparmor_names_the_program_that_is_used() -> None:
    hint = diagnose("setting up uid map: Permission denied", UBUNTU._replace(bwrap="/opt/bin/bwrap")).hint
    assert "profile egress-bwrap /opt/bin/bwrap flags=(unconfined) {\n  userns,\n}\nEOF\n" in hint
    assert hint.splitlines()[-1] == "sudo apparmor_parser -r /etc/apparmor.d/egress-bwrap"


@pytest.mark.parametrize(
    ("container", "cure"),
    [
        ("docker", "docker run --security-opt systempaths=unconfined …"),
        ("podman", "podman run --security-opt unmask=ALL …"),
        ("kubernetes", "securityContext: {procMount: Unmasked}"),
        ("lxc", "incus config set NAME security.nesting=true"),
        ("", "docker run --security-opt systempaths=unconfined …"),
    ],
)
def test_a_container_is_opened_in_the_words_of_its_engine(container: str, cure: str) -> None:
    said = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
    assert diagnose(said, Facts(container=container)).hint == cure


@pytest.mark.parametrize("facts", [Facts(), UBUNTU, Facts(container="podman"), Facts(container="kubernetes")])
def test_every_cure_fits_the_page(facts: Facts) -> None:
    hints = [row.hint if isinstance(row.hint, str) else row.hint(facts) for row in TABLE]
    hints += [machine._UNIFIED, machine._CONTAINER, machine._LINGER, machine._DELEGATE]
    assert [line for hint in hints for line in hint.splitlines() if len(line) > command.WIDTH - 4] == []


# The machine.


def test_the_machine_is_read_without_being_touched() -> None:
    facts = ground.look("/usr/bin/bwrap", {"SANDBOX_ACTIVE": "1"})
    assert facts.is_sandboxed
    assert facts.is_root is (os.geteuid() == 0)
    assert not facts.is_chroot
    assert facts.most_namespaces == int(Path("/proc/sys/user/max_user_namespaces").read_text())


def test_a_container_is_known_by_what_its_engine_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(os.path, "exists", lambda path: path in there)
    assert ground.engine({}) == ""
    assert ground.engine({"container": "lxc"}) == "lxc"
    there.add("/.dockerenv")
    assert ground.engine({}) == "docker"
    there.add("/run/.containerenv")
    assert ground.engine({}) == "podman"
    assert ground.engine({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "kubernetes"


# Examining.


def found(act: Callable[[], Finding], needed: bool = True, patience: float = 30) -> Finding:
    (result,) = examine([Check("it", act, needed)], patience)
    return result.finding


def test_a_finding_comes_back_whole() -> None:
    assert found(lambda: warn("größer", "do\nthis")) == Finding(Status.WARN, "größer", "do\nthis")


def test_what_a_check_does_to_itself_stays_with_it() -> None:
    def reckless() -> Finding:
        os.environ["RECKLESS"] = "1"
        os.chdir("/")
        os.closerange(3, 5)
        print("noise")
        return ok("done")

    before = os.getcwd()
    found(reckless)
    assert "RECKLESS" not in os.environ
    assert os.getcwd() == before


def test_a_check_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    assert found(lambda: ok(str(os.system("echo noise; echo noise >&2")))).what == "0"
    assert capfd.readouterr() == ("", "")


def test_a_check_that_hangs_is_ended_with_all_it_started() -> None:
    alive, held = os.pipe()
    inherited = os.dup(held)

    def hang() -> Finding:
        os.set_inheritable(inherited, True)
        os.system("cat <&0 & sleep 1000")
        return ok("never")

    finding = found(hang, patience=0.3)
    os.close(held)
    os.close(inherited)
    assert (finding.status, finding.what) == (Status.FAIL, "no answer within 0.3 seconds")
    assert os.read(alive, 1) == b""  # the last who could write has gone
    os.close(alive)


def test_a_check_that_breaks_is_a_failure_and_not_the_end() -> None:
    def broken() -> Finding:
        raise ValueError("7 of 9")

    assert found(broken)._replace(hint="") == fail("ValueError: 7 of 9", "")
    assert found(lambda: os._exit(3)).status is Status.FAIL
    assert found(lambda: os.kill(os.getpid(), signal.SIGKILL)).status is Status.FAIL


def test_what_is_not_needed_only_warns() -> None:
    results = list(examine([Check("a", lambda: fail("x", "y"), needed=False), Check("b", lambda: ok("z"))]))
    assert [result.finding.status for result in results] == [Status.WARN, Status.OK]
    assert can_run(results)


def test_what_is_needed_and_fails_keeps_it_from_running() -> None:
    assert not can_run(examine([Check("a", lambda: fail("x", "y")), Check("b", lambda: ok("z"))]))


def test_every_check_has_a_name_of_its_own_that_fits() -> None:
    names = [check.name for check in doctor.CHECKS]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 20


# The checks, where things are not as they should be.


@pytest.fixture
def fake_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A bubblewrap that says what it is told to."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(version: str = "bubblewrap 0.8.0", options: str = "", words: str = "", mode: int = 0o755) -> Path:
        path = tmp_path / "bwrap"
        path.write_text(
            f"#!/bin/sh\ncase $1 in --version) echo {version};; --help) echo '{options}';; "
            f'*) echo "{words}" >&2; exit 1;; esac\n'
        )
        path.chmod(mode)
        return path

    return make


EVERY = " ".join(sorted(sandbox.wanted_options()))


def test_without_bubblewrap_every_check_that_needs_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for check in (sandbox.installed, sandbox.sandboxes, network.handed_over, network.captured):
        finding = check()
        assert (finding.status, finding.hint) == (Status.FAIL, "sudo apt-get install bubblewrap")


def test_bubblewrap_must_know_every_option_that_a_plan_can_become(fake_bwrap: Callable[..., Path]) -> None:
    path = fake_bwrap("bubblewrap 0.7.0", EVERY.replace("--disable-userns", ""))
    assert sandbox.installed() == fail(
        f"0.7.0, {path}: does not know --disable-userns; 0.8 or later is needed",
        "sudo apt-get install --only-upgrade bubblewrap",
    )


def test_an_option_is_not_taken_for_a_longer_one(fake_bwrap: Callable[..., Path]) -> None:
    fake_bwrap(options=EVERY.replace("--bind ", "--bind-try "))
    assert "--bind;" in sandbox.installed().what


def test_bubblewrap_without_descriptors_will_do(fake_bwrap: Callable[..., Path]) -> None:
    fake_bwrap(options=EVERY.replace("--ro-bind-fd", "").replace("--bind-fd", ""))
    assert sandbox.installed().status is Status.WARN


def test_a_setuid_bubblewrap_is_warned_of(fake_bwrap: Callable[..., Path]) -> None:
    path = fake_bwrap(options=EVERY, mode=0o4755)
    assert path.stat().st_mode & stat.S_ISUID
    assert sandbox.installed() == warn(
        f"0.8.0, {path}: is setuid root, which is not needed and is a risk", f"sudo chmod u-s {path}"
    )


def test_the_options_that_are_looked_for_are_those_of_the_launcher() -> None:
    assert {"--args", "--unshare-all", "--disable-userns", "--ro-bind-data", "--add-seccomp-fd", "--block-fd"} <= set(
        EVERY.split()
    )
    assert set(EVERY.split()) >= sandbox.OPTIONAL


def test_a_sandbox_that_cannot_be_made_is_diagnosed(fake_bwrap: Callable[..., Path]) -> None:
    fake_bwrap(words="bwrap: pivot_root: Invalid argument")
    finding = sandbox.sandboxes()
    assert (finding.status, "initramfs" in finding.what) == (Status.FAIL, True)


def test_a_network_is_not_blamed_for_what_ails_the_sandbox(fake_bwrap: Callable[..., Path]) -> None:
    fake_bwrap(words="bwrap: pivot_root: Invalid argument")
    assert "initramfs" in network.handed_over().what


def test_capture_says_what_is_missing_and_which_modules_bring_it(monkeypatch: pytest.MonkeyPatch) -> None:
    partial = Handover((), 1, full=False, missing=("capture of every port (nftables: Protocol not supported)",))
    monkeypatch.setattr(network, "trial", lambda *_: partial)
    finding = network.captured()
    assert (finding.status, finding.hint.split()[:2]) == (Status.WARN, ["sudo", "modprobe"])
    assert "nftables" in finding.what


def test_a_handover_that_fails_in_a_good_sandbox_leads_to_the_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Handover:
        raise HandoverError("joining the sandbox's network: Operation not permitted", "")

    monkeypatch.setattr(network, "trial", refuse)
    monkeypatch.setattr(network, "ailment", lambda _: None)
    assert network.handed_over() == fail(
        "joining the sandbox's network: Operation not permitted", "egress-launch --bridge relay …"
    )


def test_the_two_network_checks_ask_for_different_things(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(network, "trial", lambda _, wanted: asked.append(wanted.capture) or Handover((), 1, True, ()))
    network.handed_over()
    network.captured()
    assert asked == [Capture.OFF, Capture.FULL]


def test_a_policy_with_a_mistake_is_shown_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "egress").mkdir()
    (tmp_path / "egress" / "mine.yaml").write_text("version: 1\npersonas: {a: {allow: ['*']}}\nwhat: 1\n")
    finding = gate.policy()
    assert (finding.status, finding.hint) == (Status.FAIL, "egress policy lint")
    assert f"{tmp_path}/egress/mine.yaml:" in finding.what


def test_doubtful_lines_of_a_policy_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "egress").mkdir()
    text = "version: 1\npersonas: {a: {allow: [github.com, github.com]}}\n"
    (tmp_path / "egress" / "mine.yaml").write_text(text)
    finding = gate.policy()
    assert finding.status is Status.WARN
    assert re.search(r"7 personas; [1-9] lines", finding.what)


def test_the_audit_log_is_tried_without_leaving_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "not" / "yet"))
    assert gate.audit() == ok(f"{tmp_path}/not/yet/egress/audit.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoil", ["a directory", "a link", "a file above"])
def test_an_audit_log_that_cannot_be_written_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    log = tmp_path / "egress" / "audit.jsonl"
    if spoil == "a file above":
        log.parent.write_text("")
    else:
        log.parent.mkdir()
        log.mkdir() if spoil == "a directory" else log.symlink_to(tmp_path / "elsewhere")
    finding = gate.audit()
    assert finding.status is Status.FAIL
    assert str(log) in finding.what
    assert "--audit FILE" in finding.hint


def test_an_audit_log_is_looked_for_where_the_gate_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert gate.audit() == ok(places.audit_log(os.environ))


def test_programs_are_told_of_and_never_wanting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.programs() == ok("none; not here: claude codex node python3 git ssh")
    for name in ("claude", "git"):
        (tmp_path / name).touch(mode=0o755)
    assert machine.programs().what.startswith("claude git; not here: ")


def test_a_terminal_that_cannot_be_had_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(os, "openpty", refuse)
    finding = machine.terminal()
    assert (finding.status, finding.hint.splitlines()[0].split()[:2]) == (Status.FAIL, ["sudo", "mount"])


def test_a_machine_without_a_filter_for_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n", "6.1", "v", "riscv64")))
    finding = sandbox.system_calls()
    assert (finding.status, finding.hint) == (Status.FAIL, "choose --seccomp off")


# Speaking.

MIXED = [
    Result("bubblewrap", True, ok("0.8.0, /usr/bin/bwrap")),
    Result("sandbox", True, fail("a long story " * 12, "sudo this\nsudo that")),
    Result("network", True, fail("the same", "sudo this\nsudo that")),
    Result("capture", False, warn("without it", "modprobe x")),
]


def test_the_table_fits_the_page_and_every_cure_is_told_once() -> None:
    lines = list(command.as_text(MIXED))
    assert max(map(len, lines)) <= command.WIDTH
    assert lines[0] == "bubblewrap  ok    0.8.0, /usr/bin/bwrap"
    assert lines[1].startswith("sandbox     fail  a long story")
    assert lines[2].startswith(" " * 18 + "story")
    text = "\n".join(lines)
    assert "\n\nto mend sandbox, network:\n    sudo this\n    sudo that\n\nto mend capture:\n    modprobe x" in text


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())

    def with_results(results: list[Result], *words: str) -> int:
        monkeypatch.setattr(doctor, "examine", lambda: iter(results))
        args = parser.parse_args(["doctor", *words])
        return int(args.run(args))

    return with_results


def test_the_exit_status_says_whether_sandboxes_can_run(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(MIXED[:1]) == 0
    assert capsys.readouterr().err == "egress: egress-launch can run here\n"
    assert run(MIXED) == 1
    assert capsys.readouterr().err == "egress: egress-launch cannot run here\n"


def test_json_has_everything_and_nothing_else_is_said(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(MIXED, "--json") == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (err, told["ok"], len(told["checks"])) == ("", False, 4)
    assert told["checks"][3] == {
        "name": "capture", "needed": False, "status": "warn", "what": "without it", "hint": "modprobe x"
    }  # fmt: skip


def test_the_page_about_it_has_a_row_for_every_check() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z ]+)` \|", page, re.MULTILINE)
    assert [check.name for check in doctor.CHECKS if check.name != "system"] == rows
    assert f"at most {doctor.PATIENCE:g} seconds" in page
