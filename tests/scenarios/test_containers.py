"""The launcher with podman and docker as what makes its sandboxes: for real, in an image that is made here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest
from attachkit import Attached
from containerkit import CASES, IMAGE, Case, Unusable, engine_for
from gateprocess import Rules, until
from launchkit import IS_ROOT, kill, processes, tty
from servers import Web, greeting

pytestmark = pytest.mark.scenario

HELLO = b"hello from allowed.test\n"


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    web = Web(greeting)
    try:
        with engine_for(*request.param) as made, web.running():
            made.person.rules(Rules(allow={"allowed.test": ""}, hosts={"allowed.test": web.port}))
            yield made
    except Unusable as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _nothing_stays(case: Case) -> Iterator[None]:
    yield
    until(lambda: not case.containers())
    until(lambda: not _left_in_tmp(case))


def _left_in_tmp(case: Case) -> list[str]:
    """Directories of runs that are over: a launcher's number is in the name of its own."""
    names = [name for name in os.listdir("/tmp") if re.fullmatch(r"egress-[0-9]+-[0-9a-f]{12}", name)]
    over = [name for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}")]
    mine = case.person.identity.get("user", os.getuid())
    return [name for name in over if _owner(f"/tmp/{name}") == mine]


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except FileNotFoundError:  # just now
        return None


# The network


def test_what_no_rule_lists_is_refused_and_the_rest_arrives_with_and_without_a_proxy(case: Case) -> None:
    script = (
        "wget -q -O- http://allowed.test/; unset http_proxy; wget -q -O- http://allowed.test/; wget -O- http://x.test/"
    )
    done = case.shell(script)
    assert done.stdout == HELLO * 2
    assert b"403" in done.stderr
    seen = [(it["via"], it["host"], it["verdict"]) for it in case.person.records() if it["event"] == "decision"]
    assert seen[:2] == [("http", "allowed.test", "allow"), ("capture", "allowed.test", "allow")]
    assert ("capture", "x.test", "deny") in seen
    assert {it["backend"] for it in case.person.records()} == {case.backend}
    assert "lacks" not in case.person.records()[0]


def test_any_name_server_is_ours_and_datagrams_go_nowhere(case: Case) -> None:
    done = case.shell("nslookup -type=a allowed.test 9.9.9.9; echo x | nc -u -w 1 192.0.2.1 9; ip -o link")
    assert b"198.18." in done.stdout
    assert done.stdout.count(b"link/") == 1


def test_a_gate_is_attached_to_a_container_that_somebody_else_started(case: Case) -> None:
    name = case.engine("run", "--detach", "--network=none", IMAGE, "/bin/sleep", "1000")
    attached = Attached(case.person, int(case.engine("inspect", "--format", "{{.State.Pid}}", name)))
    try:
        assert case.engine("exec", name, "/bin/wget", "-q", "-O-", "http://allowed.test/") == HELLO.decode().strip()
        with pytest.raises(Unusable, match="403"):
            case.engine("exec", name, "/bin/wget", "-O-", "http://other.test/")
    finally:
        case.engine("kill", name)
        case.engine("rm", "--force", name)
        code, said = attached.ended()
    assert (code, "error" in said) == (0, False)


# What holds


def test_the_command_has_no_capability_and_the_usual_filter(case: Case) -> None:
    done = case.shell("cat /proc/self/status; mount -t tmpfs x /tmp; touch /bin/x")
    lines = dict(line.split(":\t", 1) for line in done.stdout.decode().splitlines() if ":\t" in line)
    assert (lines["CapEff"], lines["CapBnd"], lines["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert lines["Seccomp"] == "2"
    uid = str(case.person.identity.get("user", os.getuid()))
    assert lines["Uid"].split() == [uid] * 4
    assert b"mount: permission denied" in done.stderr
    assert b"Read-only file system" in done.stderr


def test_the_project_is_writable_and_what_is_protected_in_it_is_not(case: Case) -> None:
    project = case.person.project
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("[core]\n")
    for name in ("hidden", "hidden-too"):
        (project / name).mkdir()
        (project / name / "file").write_text("SECRET=1\n")
    (project / "key.txt").write_text("SECRET=1\n")
    case.person.own()
    text = case.person.policy.read_text()
    case.person.policy.write_text(f"{text}    filesystem: {{hide: [hidden, hidden-too, key.txt]}}\n")
    try:
        done = case.shell(
            "echo new > file; cat file hidden/* hidden-too/* key.txt; echo x >> .git/config; touch .mcp.json hidden/x"
        )
        assert done.stdout.startswith(b"new\n")
        assert (project / "file").stat().st_uid == case.person.identity.get("user", os.getuid())
        assert (project / ".git" / "config").read_text() == "[core]\n"
        assert b"SECRET" not in done.stdout
        assert sorted(path.name for path in project.iterdir()) == [".git", "file", "hidden", "hidden-too", "key.txt"]
        assert [path.name for path in (project / "hidden").iterdir()] == ["file"]
    finally:
        case.person.policy.write_text(text)
        subprocess.run(["rm", "-rf", *project.iterdir()], check=True)


def test_nothing_else_of_the_host_is_there(case: Case) -> None:
    outside = case.person.home / "private"
    outside.write_text("x")
    case.person.own()
    done = case.shell(f"cat {outside}; cat {case.person.audit}; cat {case.person.policy}; ls /etc; ls /usr; env")
    assert b"private: No such file" in done.stderr.replace(b"'", b"")
    assert b"passwd-" not in done.stdout
    assert b"PYTHONPATH" not in done.stdout
    outside.unlink()


def test_grants_are_mounted_as_they_were_given(case: Case) -> None:
    for name in ("readable", "writable"):
        (case.person.home / name).mkdir()
    case.person.own()
    script = f"touch {case.person.home}/writable/x; touch {case.person.home}/readable/x"
    done = case.shell(script, "--ro", f"{case.person.home}/readable", "--rw", f"{case.person.home}/writable")
    assert b"Read-only file system" in done.stderr
    assert (case.person.home / "writable" / "x").exists()
    assert not (case.person.home / "readable" / "x").exists()


def test_values_of_variables_arrive_whole_and_are_on_no_command_line(case: Case) -> None:
    value = "a #b \"c\" 'd' $e = f"
    done = case.shell('echo "$TOKEN"; ps', "--env", f"TOKEN={value}")
    assert done.stdout.startswith(f"{value}\n".encode())


# Its life


@pytest.mark.parametrize("code", [0, 3, 127])
def test_the_exit_code_is_the_commands(case: Case, code: int) -> None:
    assert case.shell(f"exit {code}").returncode == code


def test_a_program_that_is_not_in_the_image_is_said_not_to_be_found(case: Case) -> None:
    done = case.run("no-such-program")
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr


def test_standard_streams_are_ours(case: Case) -> None:
    done = case.run("cat", input=b"through and through\n")
    assert done.stdout == b"through and through\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_the_commands(case: Case, number: int) -> None:
    script = f"trap 'echo told; exit 9' {signal.Signals(number).name[3:]}; echo ready; while :; do sleep 0.1; done"
    with case.person.start("sh", "-c", script, options=case.options(), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == b"told\n"
        assert process.wait() == 9


def test_a_command_that_takes_too_long_is_ended(case: Case) -> None:
    done = case.shell("sleep 100", "--timeout", "1")
    assert done.returncode == 124
    assert b"the command was ended after 1 s" in done.stderr


@pytest.mark.parametrize("moment", ["running", "being made"])
def test_a_launcher_that_is_killed_leaves_no_container(case: Case, moment: str) -> None:
    token = f"token{os.urandom(6).hex()}"
    command = ("sh", "-c", f"echo ready; sleep 1000 # {token}")
    with case.person.start(*command, options=case.options(), stdout=subprocess.PIPE) as process:
        assert process.stdout
        if moment == "running":
            assert process.stdout.readline() == b"ready\n"
        else:
            until(case.containers)
        kill(process.pid)
    until(lambda: not processes(token))
    until(lambda: not case.containers())


def test_programs_trust_the_certificate_of_a_persona_that_is_looked_into(case: Case) -> None:
    if case.person.kind == "ordinary" and IS_ROOT:
        pytest.skip("the interpreter that is copied for an ordinary user has no mitmproxy")
    text = case.person.policy.read_text()
    try:
        case.person.rules(Rules(allow={"allowed.test": "methods: [GET]"}))
        done = case.shell("head -n 1 $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS /etc/ssl/certs/ca-certificates.crt")
    finally:
        case.person.policy.write_text(text)
    assert done.stdout.count(b"-----BEGIN CERTIFICATE-----") == 3, done.stderr


def test_a_relay_needs_a_python_in_the_image(case: Case) -> None:
    """Here it is the host's, mounted."""
    without = case.shell("echo ran", "--bridge", "relay")
    assert (without.returncode, without.stdout) == (127, b"")
    assert b"python3" in without.stderr
    done = case.shell(
        "wget -q -O- http://allowed.test/; wget -O- http://192.0.2.1/", "--bridge", "relay", "--ro", "/usr"
    )
    assert done.stdout == HELLO, done.stderr
    assert case.person.records()[-1]["lacks"] == ["capture"]


def test_a_directory_will_do_for_an_image(case: Case) -> None:
    root = case.person.home / "root"
    subprocess.run(["mkdir", root], check=True)
    subprocess.run(["tar", "-xf", case.person.home / "image.tar", "-C", root], check=True)
    case.person.own()
    listed = sorted(root.rglob("*"))
    options = ("--backend", case.backend, "--rootfs", str(root))
    done = case.person.run("sh", "-c", "echo ran; wget -q -O- http://allowed.test/", options=options)
    if case.backend == "docker":
        assert (done.returncode, b"docker runs images, not directories" in done.stderr) == (2, True)
    else:
        assert done.stdout == b"ran\n" + HELLO, done.stderr
    assert sorted(root.rglob("*")) == listed
    subprocess.run(["rm", "-rf", root], check=True)


def test_a_terminal_is_a_terminal_inside(case: Case) -> None:
    with tty(rows=31, columns=91) as terminal:
        terminal.start(case.person, "sh", "-c", "tty; stty size; echo ready; cat", options=case.options())
        terminal.wait_for(b"31 91")
        terminal.wait_for(b"ready")
        assert terminal.is_raw()
        terminal.type(b"\x03")
        assert terminal.wait() != 0
        assert not terminal.is_raw()


def test_a_project_is_held_by_its_limits_or_it_is_said(case: Case) -> None:
    done = case.shell("echo done", "--pids", "100", "--memory", "64M")
    assert done.stdout == b"done\n"
    if case.backend == "podman" and case.person.identity and not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        assert b"warning: memory: not held, the engine has no cgroup for it" in done.stderr
        assert b"warning: pids: not held" in done.stderr


# What cannot be


def test_an_image_that_is_not_here_is_not_fetched(case: Case) -> None:
    done = case.person.run("true", options=("--backend", case.backend, "--image", "no-such-image:1"))
    assert done.returncode == 125
    assert b"error: the image 'no-such-image:1' is not on this machine" in done.stderr
    assert f"hint: {case.backend} pull no-such-image:1".encode() in done.stderr


def test_without_an_image_there_is_no_container(case: Case) -> None:
    done = case.person.run("true", options=("--backend", case.backend))
    assert done.returncode == 2
    assert f"backend {case.backend} needs an image".encode() in done.stderr


def test_a_dry_run_shows_it_and_makes_nothing(case: Case) -> None:
    shown = case.run("true", options=("--dry-run",)).stdout.decode()
    assert f"image\n  {IMAGE}\n" in shown
    assert "--network=none" in shown
    line = case.run("true", options=("--print-argv",)).stdout.decode()
    assert line.startswith(f"{case.backend} create --name=")
    assert "--cap-drop=ALL" in line


def test_a_network_that_does_not_hold_is_no_start(case: Case) -> None:
    done = case.shell("echo ran", "--host-port", "3128")
    assert done.returncode in (2, 125)
    assert done.stdout == b""
