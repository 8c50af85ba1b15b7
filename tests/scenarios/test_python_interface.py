"""Sandboxes held by a program: commands in them, how they end, and what is told of what was refused to them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from boxkit import begin, tell
from gateprocess import Rules, until
from launchkit import PEOPLE, Person, kill, processes, somebody
from servers import Web, greeting

pytestmark = pytest.mark.scenario


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as made:
        yield made


@pytest.fixture
def token() -> Iterator[str]:
    """A word on the command lines of a story's processes; none is left at the end."""
    word = f"token{os.urandom(6).hex()}"
    yield word
    try:
        until(lambda: not processes(word))
    finally:
        for pid in processes(word):
            kill(pid)


def test_commands_run_one_after_another_in_the_same_sandbox(person: Person) -> None:
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            box.run(["sh", "-c", "echo kept > /tmp/note"], check=True)
            done = box.run(["cat", "/tmp/note"])
            say(done.code, done.stdout, done.stderr, done.sandboxed, done.ok)
            say(box.run(["sh", "-c", "echo out; echo err >&2; exit 3"]))
            say(os.path.exists("/tmp/note"))
        """,
    )
    assert said[0] == [0, "kept\n", "", True, True]
    assert said[1][1:4] == [3, "out\n", "err\n"]
    assert said[2] is False


def test_the_same_goes_for_asyncio(person: Person) -> None:
    said = tell(
        person,
        """
        async def main():
            async with Sandbox(SETTINGS) as box:
                await box.run(["sh", "-c", "echo kept > /tmp/note"], check=True)
                done = await box.run(["cat", "/tmp/note"])
                say(done.code, done.stdout)
                try:
                    await box.run(["sh", "-c", "exit 7"], check=True)
                except CommandFailed as failed:
                    say(failed.done.code, failed.status)
        asyncio.run(main())
        """,
    )
    assert said == [[0, "kept\n"], [7, 7]]


LOOK = """
grep -E "^(Cap|NoNewPrivs|Seccomp|SigBlk|Uid|Gid|Groups)" /proc/self/status
env | grep -v "^_=" | sort; pwd; umask; ulimit -a; ls /proc/self/fd; cat /proc/self/oom_score_adj; nice; tty
"""
SPACES = 'for n in cgroup ipc mnt net pid user uts; do readlink "/proc/$0/ns/$n"; done'


def test_who_enters_later_is_as_who_was_there_first(person: Person) -> None:
    """A first command of one's own comes by a wrapped line; in the sandbox that is held, it is its holder."""
    said = tell(
        person,
        f"""
        import subprocess
        LOOK, SPACES = {LOOK!r}, {SPACES!r}
        sandbox = Sandbox(SETTINGS)
        first = subprocess.run(sandbox.wrap(["sh", "-c", LOOK]), stdin=subprocess.DEVNULL, capture_output=True)
        with sandbox as box:
            say(first.stdout, box.run(["sh", "-c", LOOK], input=b"").stdout)
            say(*(box.run(["sh", "-c", SPACES, who]).stdout for who in ("2", "self")))
        """,
    )
    assert said[0][0].splitlines() == said[0][1].splitlines()
    assert said[1][0] == said[1][1]
    assert len(said[1][0].splitlines()) == 7


def test_binary_input_and_large_output_pass_unchanged(person: Person) -> None:
    said = tell(
        person,
        """
        data = os.urandom(10_000_000)
        with Sandbox(SETTINGS) as box:
            say(box.run(["cat"], input=data).stdout == data)
            both = box.run(["sh", "-c", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"])
            say(len(both.stdout), len(both.stderr), both.truncated)
            say(box.run(["true"], input=data).code)
        async def main():
            async with Sandbox(SETTINGS) as box:
                say((await box.run(["cat"], input=data)).stdout == data)
        asyncio.run(main())
        """,
    )
    assert said == [True, [3_000_000, 3_000_000, False], 0, True]


def test_more_output_than_is_kept_is_cut_and_marked(person: Person) -> None:
    said = tell(
        person,
        """
        with Sandbox(SETTINGS, output_limit=1000) as box:
            done = box.run(["sh", "-c", "head -c 500000 /dev/zero; echo end >&2"])
            say(len(done.stdout), done.stderr, done.truncated, done.code)
        """,
    )
    assert said == [[1000, "end\n", True, 0]]


def test_twenty_commands_run_at_once(person: Person) -> None:
    """Each waits for all of the others, so they do."""
    said = tell(
        person,
        """
        MEET = 'mkdir -p /tmp/m; : > /tmp/m/$0; while [ $(ls /tmp/m | wc -l) -lt 20 ]; do sleep 0.02; done; echo $0'
        async def main():
            async with Sandbox(SETTINGS) as box:
                all = await asyncio.gather(*(box.run(["sh", "-c", MEET, str(n)], timeout=50) for n in range(20)))
                say([int(done.stdout) for done in all])
        asyncio.run(main())
        with Sandbox(SETTINGS) as box:
            found = {}
            def one(n):
                found[n] = int(box.run(["sh", "-c", MEET, str(n)], timeout=50).stdout)
            threads = [threading.Thread(target=one, args=(n,)) for n in range(20)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            say(sorted(found.values()))
        """,
    )
    assert said == [list(range(20))] * 2


def test_sandboxes_do_not_see_each_other(person: Person) -> None:
    said = tell(
        person,
        """
        async def main():
            async with Sandbox(SETTINGS) as one, Sandbox(SETTINGS) as other:
                await one.run(["touch", "/tmp/mine"])
                say((await other.run(["ls", "/tmp"])).stdout)
                say(one.session != other.session)
        asyncio.run(main())
        """,
    )
    assert said == ["", True]


def test_the_directory_and_variables_of_a_command_are_its_own(person: Person) -> None:
    (person.project / "below").mkdir(exist_ok=True)
    person.own()
    said = tell(
        person,
        """
        with Sandbox(SETTINGS, env={"SHARED": "1"}) as box:
            say(box.run(["sh", "-c", "pwd; echo $SHARED $OWN"], cwd="below", env={"OWN": "2"}).stdout)
            say(box.run(["sh", "-c", "pwd; echo $SHARED $OWN"], cwd="/tmp").stdout)
            say(box.env()["SHARED"], box.env()["HTTPS_PROXY"])
        """,
    )
    assert said == [f"{person.project}/below\n1 2\n", "/tmp\n1\n", ["1", "http://127.0.0.1:3128"]]


def test_what_cannot_be_run_is_told_with_its_cause(person: Person) -> None:
    (person.project / "text").write_text("no program")
    person.own()
    said = tell(
        person,
        """
        def why(*argv, **how):
            try:
                box.run(argv, **how)
            except CommandNotStarted as error:
                say(error.status, str(error))
        with Sandbox(SETTINGS) as box:
            why("no-such-program")
            why("./text")
            why("true", cwd="nowhere")
            say(box.run(["true"]).code)
        """,
    )
    assert [status for status, _ in said[:3]] == [127, 126, 127]
    assert "'no-such-program' cannot be run inside: No such file" in said[0][1]
    assert "Permission denied" in said[1][1]
    assert "/nowhere' cannot be used inside" in said[2][1]
    assert said[3] == 0


def test_a_command_whose_time_is_up_ends_with_its_family(person: Person, token: str) -> None:
    said = tell(
        person,
        """
        token = sys.argv[1]
        STUBBORN = f"trap '' TERM; (trap '' TERM; sleep 1000.0; : {token}) & while :; do sleep 0.1; done; : {token}"
        with Sandbox(SETTINGS) as box:
            done = box.run(["sh", "-c", f"sleep 1000 & sleep 1000; : {token}"], timeout=0.2)
            say(done.code, done.timed_out, done.ok)
            done = box.run(["sh", "-c", STUBBORN], timeout=0.2)
            say(done.code, done.timed_out)
            left = box.run(["ps", "-eo", "args"]).stdout.decode()
            say([line for line in left.splitlines() if "sleep 1000" in line])
            say(box.run(["sh", "-c", "sleep 0.1; echo in time"], timeout=50).stdout)
        """,
        token,
    )
    assert said == [[-signal.SIGTERM, True, False], [-signal.SIGKILL, True], [], "in time\n"]


def test_what_a_command_leaves_behind_is_not_waited_for_and_lives_on(person: Person) -> None:
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            say(box.run(["sh", "-c", "sleep 1000 & echo started"], timeout=50).stdout)
            say(b"sleep 1000" in box.run(["ps", "-eo", "args"]).stdout)
        """,
    )
    assert said == ["started\n", True]


def test_a_cancelled_task_ends_its_command(person: Person, token: str) -> None:
    said = tell(
        person,
        """
        token = sys.argv[1]
        async def main():
            async with Sandbox(SETTINGS) as box:
                task = asyncio.create_task(box.run(["sh", "-c", f"touch begun; sleep 1000; : {token}"]))
                while not os.path.exists("begun"):
                    await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                say(task.cancelled())
                while b"sleep 1000" in (await box.run(["ps", "-eo", "args"])).stdout:
                    pass
                os.unlink("begun")
                try:
                    async with asyncio.timeout(0.2):
                        await box.run(["sleep", "1000"])
                except TimeoutError:
                    say("timed out")
        asyncio.run(main())
        """,
        token,
    )
    assert said == [True, "timed out"]


def test_streams_of_a_started_command_are_the_callers(person: Person) -> None:
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            with box.popen(["cat"]) as process:
                process.stdin.write(b"to and fro\\n")
                process.stdin.flush()
                say(process.stdout.readline(), process.pid > 1)
                process.terminate()
                say(process.wait().code)
            with box.popen(["sh", "-c", "echo both; echo of them >&2"], stdin=DEVNULL, stderr=STDOUT) as process:
                say(process.stdout.read(), process.stderr, process.wait().code)
        async def main():
            async with Sandbox(SETTINGS) as box:
                async with await box.popen(["cat"]) as process:
                    process.stdin.write(b"to and fro\\n")
                    say(await process.stdout.readline(), process.pid > 1)
                    process.kill()
                    say((await process.wait()).code)
                async with await box.popen(["sleep", "1000"]):
                    pass
                while b"sleep 1000" in (await box.run(["ps", "-eo", "args"])).stdout:
                    pass
                try:
                    await box.popen(["no-such-program"])
                except CommandNotStarted as error:
                    say(error.status)
        asyncio.run(main())
        """,
    )
    assert said == [
        ["to and fro\n", True], -signal.SIGTERM, ["both\nof them\n", None, 0],
        ["to and fro\n", True], -signal.SIGKILL, 127,
    ]  # fmt: skip


def test_what_was_blocked_is_told_to_the_command_that_was_refused(person: Person) -> None:
    person.rules(Rules(allow={}))
    said = tell(
        person,
        """
        FETCH = "curl -sS -o /dev/null http://$0/; exit 0"
        async def main():
            async with Sandbox(SETTINGS) as box:
                both = await asyncio.gather(*(box.run(["sh", "-c", FETCH, f"{n}.test"]) for n in ("a", "b")))
                for done in both:
                    say([[it.host, it.port, it.reason, it.process.exe, it.process.command] for it in done.blocked])
                say((await box.run(["true"])).blocked)
                direct = await box.run(["curl", "-sS", "--noproxy", "*", "http://c.test/"])
                say([it.host for it in direct.blocked])
        asyncio.run(main())
        """,
    )
    for name, blocked in zip("ab", said[:2], strict=True):
        host, port, reason, exe, command = blocked[0]
        assert (len(blocked), host, port, reason) == (1, f"{name}.test", 80, "not_listed")
        assert exe.endswith("/curl")
        assert f"http://{name}.test/" in command
    assert said[2:] == [[], ["c.test"]]


def test_what_is_allowed_is_reached(person: Person) -> None:
    web = Web(greeting)
    person.rules(Rules(allow={"local.test": ""}, hosts={"local.test": web.port}))
    with web.running():
        said = tell(
            person,
            """
            with Sandbox(SETTINGS) as box:
                done = box.run(["curl", "-sS", "http://local.test/"])
                say(done.stdout, done.blocked)
            """,
        )
    assert said == [["hello from local.test\n", []]]


def test_a_program_that_has_gone_by_then_is_not_named(person: Person) -> None:
    """Without attribution every refusal is the sandbox's, and goes to whoever runs at the time."""
    said = tell(
        person,
        """
        with Sandbox(SETTINGS) as box:
            orphan = "setsid sh -c 'sleep 0.3; curl -sS -o /dev/null http://late.test/; touch done' >/dev/null 2>&1 &"
            box.run(["sh", "-c", orphan])
            done = box.run(["sh", "-c", "while [ ! -e done ]; do sleep 0.02; done; rm done"])
            say([[it.host, it.process] for it in done.blocked])
        """,
    )
    assert said == [[["late.test", None]]]


def test_an_excluded_command_is_refused_or_runs_outside_and_says_so(person: Person) -> None:
    for name in ("whereami", "evil"):
        program = person.home / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\necho "outside:${SANDBOX_ACTIVE:-yes}"\n')
        program.chmod(0o755)
    own = person.project / "whereami"
    own.write_text('#!/bin/sh\necho "inside:$SANDBOX_ACTIVE"\n')
    own.chmod(0o755)
    person.own()
    said = tell(
        person,
        """
        home = os.environ["HOME"]
        os.environ["PATH"] = f"{os.getcwd()}:{home}/bin:{os.environ['PATH']}"
        with Sandbox(SETTINGS, excluded=["whereami"]) as box:
            try:
                box.run(["whereami"])
            except ExcludedCommand as error:
                say(error.status, error.hint)
        with Sandbox(SETTINGS, excluded=["whereami"], allow_unsandboxed=True) as box:
            done = box.run(["whereami"])
            say(done.stdout, done.sandboxed, done.warnings)
            done = box.run(["./whereami"])
            say(done.stdout, done.sandboxed)
        """,
    )
    assert said[0] == [126, "allow_unsandboxed=True lets it run outside"]
    assert said[1] == [
        "outside:yes\n", False, ["'whereami' ran outside of the sandbox: it is excluded, and that was allowed"],
    ]  # fmt: skip
    assert said[2] == ["inside:1\n", True]


def test_a_wrapped_command_runs_in_a_sandbox_like_it_whatever_lies_in_its_directory(person: Person) -> None:
    (person.project / "launcher").mkdir(exist_ok=True)
    (person.project / "launcher" / "__init__.py").write_text("raise SystemExit('taken over')")
    (person.project / "signal.py").write_text("raise SystemExit('taken over')")
    person.own()
    try:
        said = tell(
            person,
            """
            import subprocess
            os.environ["SECRET"] = "from here"
            sandbox = Sandbox(SETTINGS, env={"SECRET": None})
            words = sandbox.wrap(["sh", "-c", "echo $SANDBOX_ACTIVE $SECRET; exit 4"])
            done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)
            say(done.returncode, done.stdout, done.stderr)
            with sandbox as box:
                say(box.run(["sh", "-c", "echo $SANDBOX_ACTIVE $SECRET"]).stdout)
            """.replace("            ", "        "),
        )
    finally:
        for path in (person.project / "launcher" / "__init__.py", person.project / "signal.py"):
            path.unlink()
        (person.project / "launcher").rmdir()
    assert said == [[4, "1 from here\n", ""], "1 from here\n"]


def test_a_sandbox_can_be_asked_before_it_is_made(person: Person) -> None:
    said = tell(
        person,
        """
        sandbox = Sandbox(SETTINGS, env={"GIVEN": "1"})
        say(sandbox.env()["GIVEN"], sandbox.plan().project == os.getcwd())
        say("the project" in sandbox.explain(["git", "status"]), "git status" in sandbox.explain(["git", "status"]))
        """,
    )
    assert said == [["1", True], [True, True]]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ('persona="nobody"', "nobody"),
        ('project="/nowhere/at/all"', "/nowhere/at/all"),
        ('read=["/nowhere/at/all"]', "/nowhere/at/all"),
        ('memory="much"', "'much' is not a size"),
        ('policy=["/nowhere.yaml"]', "/nowhere.yaml"),
        ('backend="none"', "a sandbox that is held is bubblewrap's"),
    ],
)
def test_a_sandbox_that_cannot_be_made_says_why_and_what_helps(person: Person, changes: str, complaint: str) -> None:
    said = tell(
        person,
        f"""
        try:
            Sandbox(SETTINGS, {changes}).open()
        except SandboxError as error:
            say(error.args[0], bool(error.hint), error.status)
        """,
    )
    assert complaint in said[0][0]
    assert said[0][1] is True


def test_limits_hold_for_commands_that_enter_later(person: Person) -> None:
    said = tell(
        person,
        """
        EAT = "import sys; x = bytearray(300 << 20); print('eaten')"
        with Sandbox(SETTINGS, memory="100M") as box:
            done = box.run(["/usr/bin/python3", "-c", EAT])
            say(done.code != 0, done.stdout)
            say(box.run(["/usr/bin/python3", "-c", "print('fits')"]).stdout)
        """,
    )
    assert said == [[True, ""], "fits\n"]


HELD = """
    token = sys.argv[1]
    def hold(box):
        say(os.getpid(), box.pid)
        box.run(["sh", "-c", f"touch begun; sleep 1000; : {token}"])
    with Sandbox(SETTINGS) as box:
        try:
            hold(box)
        except SandboxEnded as error:
            say("ended", error.hint)
"""
VICTIMS = ("caller", "host", "usher", "first command", "first process")


@pytest.mark.parametrize("victim", VICTIMS)
def test_whoever_is_killed_nothing_is_left(person: Person, token: str, victim: str) -> None:
    with begin(person, HELD, token) as story:
        assert story.stdout is not None
        caller, host = json.loads(story.stdout.readline())
        begun = person.project / "begun"
        until(begun.exists)
        begun.unlink()
        family = _family(host)
        kill({"caller": caller, "host": host, **_cast(host)}[victim])
        if victim != "caller":
            assert json.loads(story.stdout.readline()) == ["ended", "make another"]
        story.wait()
    until(lambda: not any(map(_command, family)))  # a zombie has no words, and is its new parent's to bury


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _family(pid: int) -> list[int]:
    return [pid, *(member for child in _children(pid) for member in _family(child))]


def _cast(host: int) -> dict[str, int]:
    """The usher is whose child runs in the sandbox; bwrap is known by its name."""
    names = {pid: _command(pid) for pid in _children(host)}
    outer = next(pid for pid, name in names.items() if b"bwrap" in name)
    inner = _children(outer)[0]
    usher = next(pid for pid in names if any(b"sleep 1000" in _command(child) for child in _children(pid)))
    return {"usher": usher, "first process": inner, "first command": _children(inner)[0]}


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ")
    except OSError:
        return b""


def test_after_its_end_a_sandbox_says_so(person: Person) -> None:
    said = tell(
        person,
        """
        box = Sandbox(SETTINGS).open()
        box.close()
        box.close()
        try:
            box.run(["true"])
        except SandboxEnded as error:
            say(str(error))
        """,
    )
    assert said == ["the sandbox has ended (hint: make another)"]


def test_the_callers_descriptors_and_children_stay_its_own(person: Person) -> None:
    said = tell(
        person,
        """
        def seen():
            return sorted(os.listdir("/proc/self/fd"))
        launcher.Sandbox(SETTINGS).open().close()
        before = seen()
        for n in range(3):
            with Sandbox(SETTINGS) as box:
                for _ in range(5):
                    box.run(["cat"], input=b"x")
                with box.popen(["cat"]) as process:
                    pass
        say(seen() == before)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            say("no children")
        """,
    )
    assert said == [True, "no children"]


def test_a_secret_is_a_placeholder_inside_and_inspected_hosts_are_trusted() -> None:
    """By whoever runs the tests: signing takes a library that the copy for others does not have."""
    with somebody(PEOPLE[0]) as person:
        person.policy.write_text(
            "version: 1\npersonas: {p: {allow: [{host: api.test, secret: {env: API_KEY, header: x-api-key}}]}}\n"
        )
        person.own()
        person.env["API_KEY"] = "the-real-value"
        said = tell(
            person,
            """
            say(Sandbox(SETTINGS).env()["API_KEY"])
            with Sandbox(SETTINGS) as box:
                say(box.env()["API_KEY"])
                say(box.run(["sh", "-c", "echo $API_KEY; head -c 10 $SSL_CERT_FILE; cat /proc/*/environ"]).stdout)
                done = box.run(["curl", "-sS", "https://other.test/"])
                say([it.reason for it in done.blocked])
            """,
        )
    assert said[0] == said[1] == "egress-placeholder-API_KEY"
    assert said[2].startswith("egress-placeholder-API_KEY\n-----BEGIN")
    assert "the-real-value" not in said[2]
    assert said[3] == ["not_listed"]
