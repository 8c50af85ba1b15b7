"""The examples of docs/examples, run as they stand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from boxkit import tell
from launchkit import PATIENCE, PEOPLE, ROOT, Person, somebody

pytestmark = pytest.mark.scenario

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    with somebody(request.param) as made:
        yield made


def example(name: str) -> str:
    """Its text, as the beginning of a story."""
    return (EXAMPLES / name).read_text().partition('if __name__ == "__main__":')[0].replace("from __future__", "# from")


def told(person: Person, name: str, story: str, *args: str) -> list[object]:
    return tell(person, f"{example(name)}\n{story}", *args)


def test_workers_share_a_sandbox_per_project_until_nobody_uses_it(person: Person) -> None:
    for name in ("one", "two"):
        (person.home / name).mkdir()
    person.own()
    said = told(
        person,
        "worker_pool.py",
        """
async def story(one, two):
    async with Pool(SETTINGS, idle=0.5) as pool:
        jobs = [pool.run(project, ["sh", "-c", "echo x >> /tmp/count; pwd"]) for project in (one, two, one)]
        say([done.stdout for done in await asyncio.gather(*jobs)])
        say((await pool.run(one, ["wc", "-l", "/tmp/count"])).stdout, pool.projects == [one, two])
        while pool.projects:
            await asyncio.sleep(0.02)
        say((await pool.run(one, ["ls", "/tmp"])).stdout)
        ended = await pool.run(one, ["sh", "-c", "mkdir fresh 2>/dev/null && kill -9 2 && sleep 1000; echo again"])
        say(ended.stdout)
asyncio.run(story(*sys.argv[1:]))
""",
        str(person.home / "one"),
        str(person.home / "two"),
    )
    one, two = (f"{person.home}/{name}\n" for name in ("one", "two"))
    assert said == [[one, two, one], ["2 /tmp/count\n", True], "", "again\n"]


def test_the_backend_runs_a_shell_command_where_it_is_told(person: Person) -> None:
    said = told(
        person,
        "workflow_backend.py",
        """
backend = SandboxBackend(SETTINGS)
done = backend.run("pwd; curl -sS -o /dev/null http://no.test/; exit 3", os.getcwd(), timeout=30)
say(done.returncode, done.stdout, done.stderr)
try:
    backend.run("echo some; sleep 1000", os.getcwd(), timeout=0.3)
except subprocess.TimeoutExpired as late:
    say(late.stdout)
backend.close()
""",
    )
    assert said == [[3, f"{person.project}\n", "blocked: no.test:80 (not_listed)\n"], "some\n"]


def test_the_agent_sdk_starts_its_program_in_a_sandbox(person: Person) -> None:
    """The SDK starts what `cli_path` names with words of its own, talks to it by its streams, and asks its version."""
    program = person.home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "inside:$SANDBOX_ACTIVE $*"; cat\n')
    program.chmod(0o755)
    person.own()
    story = """
os.environ["PATH"] = f"{os.environ['HOME']}/bin:{os.environ['PATH']}"
import subprocess
with sandboxed_cli(Sandbox(SETTINGS)) as path:
    for words, given in ((["-v"], b""), (["--output-format", "stream-json", "a 'quoted' word"], b'{"type": "user"}')):
        done = subprocess.run([path, *words], input=given, capture_output=True)
        say(done.returncode, done.stdout)
say(os.path.exists(path))
"""
    said = told(person, "agent_sdk.py", story)
    assert said[0] == [0, "inside:1 -v\n"]
    assert said[1] == [0, 'inside:1 --output-format stream-json a \'quoted\' word\n{"type": "user"}']
    assert said[2] is False


@pytest.mark.parametrize(
    ("name", "words"),
    [("worker_pool.py", ["p", "."]), ("workflow_backend.py", ["p", "echo out; echo err >&2; exit 5"])],
)
def test_an_example_is_a_program_as_well(person: Person, tmp_path: Path, name: str, words: list[str]) -> None:
    """With the persona in the user's own policy, as it would be."""
    mine = person.home / ".config" / "egress"
    mine.mkdir(parents=True, exist_ok=True)
    (mine / "mine.yaml").write_text(person.policy.read_text())
    copy = person.home / name
    copy.write_text((EXAMPLES / name).read_text())
    person.own()
    done = subprocess.run(
        [person.installation.python, "-P", str(copy), *words],
        cwd=person.project,
        env=person.env,
        capture_output=True,
        timeout=3 * PATIENCE,
        check=False,
        **person.identity,
    )
    if name == "workflow_backend.py":
        assert (done.returncode, done.stdout, done.stderr) == (5, b"out\n", b"err\n")
    else:
        assert (done.returncode, done.stderr) == (0, b"")
        assert b", 0 blocked" in done.stdout


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{path.name}"' in text for path in EXAMPLES.glob("*.py"))
