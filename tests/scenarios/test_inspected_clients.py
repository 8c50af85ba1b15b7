"""Programs that people use, unmodified, in the sandbox and with hosts that are inspected.

Each is tried with the variables that the sandbox sets, and with none but those that say whom to trust, where
it looks at no file of the distribution's. What a rule permits arrives, with the real credential in place of the
placeholder; of what it does not permit nothing arrives, and the program is told so.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from inspectedroom import REAL, SEARCH, SHAPE, Outcome, Room, equip
from launchkit import PEOPLE, children, somebody
from programs import need

pytestmark = pytest.mark.scenario

KEY = ("x-api-key", REAL["API_KEY"])
TOKEN = ("authorization", f"Bearer {REAL['RPC_TOKEN']}")
PASSWORD = ("authorization", "Basic " + b64encode(f"x-access-token:{REAL['GH_TOKEN']}".encode()).decode())
METHOD, PATH = "method_not_listed", "path_not_listed"


class Row(NamedTuple):
    """A program's command lines: one that is permitted and what it shows; one that is not, and what that shows.

    They may use the {host} and a {new} path.
    """

    name: str
    kind: str
    permitted: str
    shown: str  # a pattern
    refused: str
    told: str  # a pattern
    reason: str
    kept: tuple[str, ...] = ()  # variables that it needs in any case
    credential: tuple[str, str] | None = None  # as the server sees it
    via: frozenset[str] = frozenset({"connect"})  # with the variables that the sandbox sets

    def host(self, way: str, what: str) -> str:
        return f"{self.name.replace(' ', '-').replace('.', '')}-{way}-{what}.{self.kind}.test"


# --- what programs of a few lines are

REQUESTS = """
import os, requests, sys
answer = requests.request(*sys.argv[1:], headers={"x-api-key": os.environ["API_KEY"]})
print(answer.text)
sys.exit(answer.status_code != 200)
"""
AIOHTTP = """
import aiohttp, asyncio, os, sys
async def talk(url):
    async with aiohttp.ClientSession(trust_env=True, headers={"x-api-key": os.environ["API_KEY"]}) as session:
        async with session.ws_connect(url) as socket:
            for text in ("hello over", "a socket"):
                await socket.send_str(text)
                print(await socket.receive_str(), flush=True)
asyncio.run(talk(sys.argv[1]))
"""
GRPC = """
import grpc, os, queue, sys
host, method = sys.argv[1:]
with grpc.secure_channel(f"{host}:443", grpc.ssl_channel_credentials()) as channel:
    told = [("authorization", f"Bearer {os.environ['RPC_TOKEN']}")]
    said = channel.unary_unary(method)(b"hello by gRPC", metadata=told, timeout=20)
    print(said.decode(), flush=True)
    words = queue.SimpleQueue()
    words.put(b"one by one")
    replies = channel.stream_stream(method)(iter(words.get, None), metadata=told, timeout=20)
    print(next(replies).decode(), flush=True)  # while more is to be said
    words.put(None)
    assert list(replies) == []
"""
FETCH = """
const headers = {"x-api-key": process.env.API_KEY}
fetch(process.argv[3], {method: process.argv[2], headers}).then(async answer => {
    console.log(await answer.text())
    process.exitCode = answer.ok ? 0 : 1
})
"""
SOCKET = """
const socket = new WebSocket(process.argv[2])
socket.onopen = () => socket.send("hello over a socket")
socket.onmessage = event => { console.log(event.data); process.exit() }
socket.onerror = event => { console.error(event.message, event.error); process.exitCode = 1 }
"""
JAVA = """
import java.net.URI;
import java.net.http.*;

class Fetch {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[1])).header("x-api-key", System.getenv("API_KEY"));
        request.method(words[0], HttpRequest.BodyPublishers.noBody());
        var answer = HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.body());
        System.exit(answer.statusCode() == 200 ? 0 : 1);
    }
}
"""
FILES = {
    "by_requests.py": REQUESTS,
    "by_httpx.py": REQUESTS.replace("requests", "httpx"),
    "by_aiohttp.py": AIOHTTP,
    "by_grpc.py": GRPC,
    "by_pip.py": "import tinything; print(tinything.GREETING)",
    "fetch.js": FETCH,
    "socket.js": SOCKET,
    "Fetch.java": JAVA,
    "package.json": json.dumps({"name": "thing", "version": "1.0.0"}),
    "search.py": SEARCH,
}

# --- the programs

HELLO = "hello from {host}"
SAID = "egress: reason: {reason}"
CURL = "curl -sS --fail-with-body -w ' %{{http_version}}' -H \"x-api-key: $API_KEY\""
GIT = "git -c user.name=a -c user.email=a@a.test"
BY_URL = "git clone -q https://x-access-token:$GH_TOKEN@{host}/acme/it {new}"
HELPER = "!f() {{ echo username=x-access-token; echo password=$GH_TOKEN; }}; f"
BY_HELPER = f"git clone -q -c credential.helper='{HELPER}' https://{{host}}/acme/it {{new}}"
FETCHED = " && git -C {new} fetch -q && cat {new}/README"
PUSHED = f" && {GIT} -C {{new}} commit -q --allow-empty -m two && git -C {{new}} push"
PIP = (
    "PIP_CONFIG_FILE=/dev/null python -m pip install --no-input --no-cache-dir --disable-pip-version-check "
    "--retries 1 -i https://{host}/simple/ -t {new} tinything && PYTHONPATH={new} python by_pip.py"
)
UPLOAD = "curl -sS --fail-with-body -F :action=file_upload -F content=@by_pip.py https://{host}/legacy/"
NPM = "npm {verb} --cache {{new}}/cache --fetch-retries=0 --no-update-notifier --registry https://{{host}}/"
INSTALL = (
    NPM.format(verb="install --prefix {new} --no-audit --no-fund tinything")
    + " && node -p 'require(\"{new}/node_modules/tinything\")'"
)
PUBLISH = NPM.format(verb="publish") + " --//{host}/:_authToken=anything"
CAPTURED, EITHER = frozenset({"capture"}), frozenset({"capture", "connect"})  # older nodes heed no variable
SOCKET_JS = "node --experimental-websocket socket.js wss://{host}"
NODE = ("NODE_EXTRA_CA_CERTS",)


def fetching(program: str) -> tuple[str, str, str, str, str]:
    """By programs that take a method and a URL."""
    get, delete = (f"{program} {method} https://{{host}}/ok/1" for method in ("GET", "DELETE"))
    return get, HELLO, delete, SAID, METHOD


def of_python(module: str, *trust: str) -> Row:
    return Row(module, "api", *fetching(f"python by_{module}.py"), ("API_KEY", *trust), KEY)


def of_curl(version: str, kind: str, refused: str, reason: str) -> Row:
    line = f"{CURL} --http{version}"
    get, other = f"{line} https://{{host}}/ok/1", f"{line} {refused}"
    shown, told = f"{HELLO}(.|\n)* {version}", f"{SAID}(.|\n)* {version}"
    return Row(f"curl {version}", kind, get, shown, other, told, reason, ("API_KEY",), KEY)


def of_git(name: str, clone: str) -> Row:
    fetched, pushed = clone + FETCHED, clone + PUSHED
    return Row(name, "git", fetched, "a repository", pushed, "remote: egress: blocked: ", PATH, ("GH_TOKEN",), PASSWORD)


ROWS = [
    of_curl("1.1", "api", "-X DELETE https://{host}/ok/1", METHOD),
    of_curl("2", "h2", "https://{host}/other", PATH),
    of_git("git", BY_URL),
    of_git("git helper", BY_HELPER),
    Row("npm", "registry", INSTALL, "hello from the registry", PUBLISH, METHOD, METHOD, NODE),
    Row("pip", "index", PIP, "hello from the index", UPLOAD, SAID, METHOD),
    Row("node", "api", *fetching("node fetch.js"), ("API_KEY", *NODE), KEY, EITHER),
    of_python("requests", "REQUESTS_CA_BUNDLE"),
    of_python("httpx", "SSL_CERT_FILE"),
    Row("java", "api", *fetching("java Fetch.java"), ("API_KEY",), KEY, CAPTURED),
    Row(
        "grpc", "rpc", "python by_grpc.py {host} /test.Echo/Say", "hello by gRPC\none by one\n",
        "python by_grpc.py {host} /test.Other/Say", "reason: path_not_listed", PATH,
        ("RPC_TOKEN", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"), TOKEN,
    ),
    Row(
        "node websocket", "ws", f"{SOCKET_JS}/chat", "hello over a socket",
        f"{SOCKET_JS}/other", "network error or non-101", PATH, NODE, None, EITHER,
    ),
    Row(
        "aiohttp websocket", "ws", "python by_aiohttp.py wss://{host}/chat", "hello over\na socket\n",
        "python by_aiohttp.py wss://{host}/other", "403", PATH, ("API_KEY",), KEY, CAPTURED,
    ),
]  # fmt: skip
VARIABLES, BARE = "variables", "bare"
CASES = [(row, way) for row in ROWS for way in (VARIABLES, BARE)]
TRIED = pytest.mark.parametrize(("row", "way"), CASES, ids=[f"{row.name}-{way}" for row, way in CASES])
NEEDED = {"curl": ["curl"], "pip": ["curl"], "npm": ["npm", "node"], "node": ["node"], "java": ["java"]}
DISTRIBUTED = [(row, way) for row, way in CASES if row.name in ("curl 1.1", "curl 2", "git", "npm", "node", "java")]
OF_THE_DISTRIBUTION = pytest.mark.parametrize(
    ("row", "way"), DISTRIBUTED, ids=[f"{row.name}-{way}" for row, way in DISTRIBUTED]
)


@contextlib.contextmanager
def room_of(kind: str, *more: str) -> Iterator[Room]:
    need("bwrap", "git")
    names = {row.host(way, what): row.kind for row, way in CASES for what in ("yes", "no")}
    names |= {host: host.split(".")[1] for host in more}
    with somebody(kind) as person, tempfile.TemporaryDirectory(dir="/var/tmp") as outside:
        Path(outside).chmod(0o755)
        equip(person)
        room = Room(person, Path(outside), names)
        room.put(FILES)
        with room.serving():
            yield room


OTHERS = ("json.api.test", "key.api.test", "upload.api.test", "not-acme.git.test", "alone.api.test")


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with room_of(PEOPLE[0], *OTHERS) as made, made.waiting():
        yield made


@pytest.fixture(scope="module")
def ordinary() -> Iterator[Room]:
    """Who has programs of the distribution, and a sandbox for each."""
    with room_of("ordinary", *OTHERS) as made:
        yield made


def attempt(room: Room, row: Row, way: str, what: str) -> Outcome:
    need(*NEEDED.get(row.name.split()[0], ()))
    command = {"yes": row.permitted, "no": row.refused}[what]
    kept = ("PATH", "HOME", *row.kept) if way == BARE else None
    outcome = room.run(command, row.host(way, what), kept)
    assert outcome.vias, outcome.done
    assert outcome.vias <= (CAPTURED if way == BARE else row.via)
    assert not any(value in outcome.done.out + outcome.done.err for value in REAL.values())
    return outcome


@TRIED
def test_what_is_permitted_arrives_with_the_real_credential(room: Room, row: Row, way: str) -> None:
    arrives(row, way, attempt(room, row, way, "yes"))


@TRIED
def test_of_what_is_refused_nothing_arrives_and_the_program_is_told(room: Room, row: Row, way: str) -> None:
    is_refused(row, attempt(room, row, way, "no"))


@pytest.mark.skipif(len(PEOPLE) == 1, reason="the tests before are an ordinary user's already")
@OF_THE_DISTRIBUTION
def test_it_is_the_same_for_an_ordinary_user(ordinary: Room, row: Row, way: str) -> None:
    arrives(row, way, attempt(ordinary, row, way, "yes"))
    is_refused(row, attempt(ordinary, row, way, "no"))


def arrives(row: Row, way: str, outcome: Outcome) -> None:
    assert outcome.done.code == 0, outcome.done
    assert re.search(row.shown.format(host=row.host(way, "yes")), outcome.done.out), outcome.done
    assert {(it["verdict"], it["reason"]) for it in outcome.requests} == {("allow", "listed")}
    assert len(outcome.requests) == len(outcome.arrived)
    if row.credential is not None:
        name, value = row.credential
        assert {request.fields.get(name) for request in outcome.arrived} - {None} == {value}


def is_refused(row: Row, outcome: Outcome) -> None:
    assert outcome.done.code != 0, outcome.done
    assert re.search(row.told.format(reason=row.reason), outcome.done.out + outcome.done.err), outcome.done
    denied = [it for it in outcome.requests if it["verdict"] == "deny"]
    assert {it["reason"] for it in denied} == {row.reason}
    refused = {(it["method"], it["path"]) for it in denied}
    assert [it for it in outcome.arrived if (it.method, it.path) in refused] == []
    assert len(outcome.arrived) == len(outcome.requests) - len(denied)


# --- what is told, and what is not


def test_who_asks_for_json_is_told_in_json(room: Room) -> None:
    need("curl")
    command = "curl -sS -H 'accept: application/json' -X DELETE https://{host}/ok/1"
    outcome = room.run(command, "json.api.test")
    told = json.loads(outcome.done.out)["egress"]
    assert told["reason"] == METHOD
    assert told["why"] == "egress check 'DELETE https://json.api.test/ok/1' --persona p"
    assert told["rule"].endswith(" *.api.test")
    assert outcome.arrived == []


def test_git_shows_why_a_repository_is_refused(room: Room) -> None:
    outcome = room.run("git clone https://{host}/other/it {new}", "not-acme.git.test")
    assert outcome.done.code == 128
    assert f"remote: egress: reason: {PATH}" in outcome.done.err, outcome.done
    assert outcome.arrived == []


@pytest.mark.parametrize("field", ["x-api-key: somebody-elses", "authorization: Bearer somebody-elses"])
def test_a_key_of_ones_own_is_refused(room: Room, field: str) -> None:
    need("curl")
    outcome = room.run(f"curl -sS -H '{field}' https://{{host}}/ok/1", "key.api.test")
    assert "egress: reason: credential_mismatch" in outcome.done.out, outcome.done
    assert outcome.arrived == []
    assert "somebody-elses" not in room.person.audit.read_text()


def test_what_a_server_says_of_the_key_is_masked(room: Room) -> None:
    need("curl")
    outcome = room.run('curl -sS -H "x-api-key: $API_KEY" https://{host}/ok/1', "key.api.test")
    stars = "*" * len(REAL["API_KEY"])
    assert outcome.done.out == f"hello from key.api.test\nyour key is {stars}\n"


def test_an_upload_arrives_whole(room: Room) -> None:
    need("curl")
    size = 5_000_000
    command = f"head -c {size} /dev/zero | curl -sS -T - -X POST https://{{host}}/ok/1"
    outcome = room.run(command, "upload.api.test")
    assert [len(request.body) for request in outcome.arrived] == [size], outcome.done


# --- where the real values are


def test_the_real_values_are_nowhere_inside(room: Room) -> None:
    """The runner and the search have placeholders, which shows that it looks where it should."""
    need("curl")
    room.run('curl -sS -H "x-api-key: $API_KEY" https://{host}/ok/1', "alone.api.test")
    found = json.loads(room.ask("python search.py").out)
    assert found["real"] == []
    assert [path for path in found["placeholder"] if path.endswith("/environ")]


def test_the_real_values_are_nowhere_outside_but_in_the_launchers_environment(room: Room) -> None:
    need("curl")
    curl = 'curl -sS -H "x-api-key: $API_KEY" https://alone.api.test/ok/1'
    said = f"{curl}; {curl} -X PUT; read line"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with room.person.start("sh", "-c", said, options=room.options, env=room.env, **pipes) as process:
        assert process.stdout
        assert b"hello" in process.stdout.readline()
        holders = {it for it in all_below(process.pid) if mentions(f"/proc/{it}/environ")}
        assert {command_line(it) for it in holders} == {command_line(process.pid)}  # and what it forked
        assert not [it for it in all_below(process.pid) if mentions(f"/proc/{it}/cmdline")]
        assert any("egress.inspection.engine" in command_line(it) for it in all_below(process.pid))
        _, err = process.communicate(b"\n", timeout=20)
    assert process.returncode == 0, err
    assert b"1 blocked" in err
    assert not re.search(SHAPE.encode(), err)
    assert room.person.records()
    assert not mentions(str(room.person.audit))
    assert not mentions(str(room.said))


def all_below(pid: int) -> list[int]:
    return [pid, *(it for child in children(pid) for it in all_below(child))]


def command_line(pid: int) -> str:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it is over
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def mentions(path: str) -> bool:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it is over
        return re.search(SHAPE.encode(), Path(path).read_bytes()) is not None
    return False
