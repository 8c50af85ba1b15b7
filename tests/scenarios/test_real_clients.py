"""Programs that people use, unmodified, through the gate as people start it, to real servers of this machine.

Every name of the tests leads to a server, the denied ones too: if a client does not arrive, it was the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import aiohttp
import pytest
from gateprocess import GateProcess, Rules, egress
from packageservers import Index, Registry
from programs import Done, need, run
from servers import (
    Authority,
    Git,
    Http2,
    Server,
    Sshd,
    Web,
    WebSocketEcho,
    greeting,
    make_repository,
)

pytestmark = pytest.mark.scenario

PASSWORD = "a long password"
REFUSED = "Refused by egress: not_listed"


class World:
    """The servers, the gate in front of them, and a home for clients."""

    def __init__(self, home: Path, authority: Authority) -> None:
        self.home, self.authority = home, authority
        make_repository(home / "repositories" / "it")
        self.secure = Web(greeting, authority.context())
        self.plain = Web(greeting)
        self.h2 = Http2(authority)
        self.ws, self.wss = WebSocketEcho(), WebSocketEcho(authority.context())
        self.git = Git(home / "repositories", authority.context())
        self.index = Web(Index(), authority.context())
        self.registry = Web(Registry("registry.test"), authority.context())
        self.denied, self.denied_plain = Web(greeting, authority.context()), Web(greeting)
        self.servers: dict[str, Server] = {
            "secure.test": self.secure,
            "plain.test": self.plain,
            "h2.test": self.h2,
            "ws.test": self.ws,
            "wss.test": self.wss,
            "git.test": self.git,
            "index.test": self.index,
            "registry.test": self.registry,
            "denied.test": self.denied,
            "denied-plain.test": self.denied_plain,
        }
        self.rules = self.rules_for(self.servers)
        self.gate: GateProcess

    def rules_for(self, servers: dict[str, Server]) -> Rules:
        hosts = {name: server.port for name, server in servers.items()}
        allowed = {name: "ports: [22]" if name == "ssh.test" else "" for name in hosts if "denied" not in name}
        return Rules(allowed, hosts)

    def run(self, *words: str | Path, **env: str) -> Done:
        return run(self.home, *words, env=env)

    def allow(self, via: str, host: str, port: int) -> str:
        return f"{via} {host}:{port} allow listed by {self.rules.place(host)}"

    @property
    def reached(self) -> list[str]:
        """The names whose servers have had a connection."""
        return [name for name, server in self.servers.items() if server.connections]

    def forget(self) -> None:
        self.gate.forget()
        for server in self.servers.values():
            server.connections = 0
            server.seen.clear()  # type: ignore[attr-defined]  # all of these have one


@pytest.fixture(scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[World]:
    home = tmp_path_factory.mktemp("clients")
    world = World(home, authority)
    with contextlib.ExitStack() as stack:
        for server in world.servers.values():
            stack.enter_context(server.running())
        world.gate = GateProcess(home / "gate", world.rules)
        stack.callback(world.gate.stop)
        yield world


@pytest.fixture
def world(_world: World) -> World:
    _world.forget()
    return _world


# --- a page, by whatever fetches pages

REQUESTS = "import requests; answer = requests.get(URL); status, text = answer.status_code, answer.text"
HTTPX = "import httpx; answer = httpx.get(URL); status, text = answer.status_code, answer.text"
URLLIB = "import urllib.request as u; answer = u.urlopen(URL); status, text = answer.status, answer.read().decode()"
AIOHTTP = """
import aiohttp, asyncio
async def fetch():
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(URL) as answer:
        return answer.status, await answer.text()
status, text = asyncio.run(fetch())
"""
# Node's fetch heeds the variables from some version on. Before it, an agent of its own kind has to dial for it.
NODE = """
const [url, proxy] = [process.argv[1], new URL(process.env.HTTPS_PROXY)]
const connect = ({hostname, port}, done) => require('http')
  .request({host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: `${hostname}:${port || 443}`})
  .on('connect', (answer, socket) => {
    if (answer.statusCode !== 200) return done(new Error(`${answer.statusCode} ${answer.statusMessage}`))
    const tls = require('tls').connect({socket, servername: hostname}, () => done(null, tls)).on('error', done)
  })
  .on('error', done).end()
const main = async () => {
  const options = {}
  if (!process.execArgv.includes('--use-env-proxy')) {
    await fetch('data:,')  // which loads what it needs
    const Agent = globalThis[Symbol.for('undici.globalDispatcher.1')].constructor
    options.dispatcher = new Agent({connect})
  }
  process.stdout.write(await (await fetch(url, options)).text())
}
main()
"""


class Client(NamedTuple):
    """`words` before the URL; `refusals`: what it shows, and its exit status, for https and for http."""

    words: Callable[[World], list[str | Path]]
    refusals: dict[str, tuple[int, str]]
    via: Mapping[str, str] = MappingProxyType({"https": "connect", "http": "http"})


def python(code: str) -> Callable[[World], list[str | Path]]:
    def words(_: World) -> list[str | Path]:
        return [sys.executable, "-c", f"import sys; URL = sys.argv[1]\n{code}\nprint(text); sys.exit(status != 200)"]

    return words


def node(world: World) -> list[str | Path]:
    flag = "--use-env-proxy"
    has = world.run("node", "-p", f"process.allowedNodeEnvironmentFlags.has('{flag}')").out.strip() == "true"
    return ["node", *([flag] if has else []), "-e", NODE]


BLOCKED = "egress: blocked: denied-plain.test:80 is not on the allowlist of persona p"
RULESET = "Can't complete SOCKS5 connection to {host}. (2)"
CLIENTS = {
    "curl": Client(
        lambda w: ["curl", "-sS", "--fail-with-body", "--cacert", w.authority.file, "-x", w.gate.url],
        {"https": (56, "CONNECT tunnel failed, response 403"), "http": (22, BLOCKED)},
    ),
    "curl by socks": Client(
        lambda w: ["curl", "-sS", "--cacert", w.authority.file, "-x", f"socks5h://127.0.0.1:{w.gate.port}"],
        {"https": (97, RULESET), "http": (97, RULESET)},
        {"https": "socks5", "http": "socks5"},
    ),
    "wget": Client(
        lambda w: ["wget", "-O-", "--tries=1", "--ca-certificate", w.authority.file],
        {"https": (4, REFUSED), "http": (8, f"ERROR 403: {REFUSED}")},
    ),
    "requests": Client(
        python(REQUESTS), {"https": (1, f"Tunnel connection failed: 403 {REFUSED}"), "http": (1, BLOCKED)}
    ),
    "httpx": Client(python(HTTPX), {"https": (1, f"ProxyError: 403 {REFUSED}"), "http": (1, BLOCKED)}),
    "aiohttp": Client(python(AIOHTTP), {"https": (1, f"403, message='{REFUSED}'"), "http": (1, BLOCKED)}),
    "urllib": Client(
        python(URLLIB),
        {"https": (1, f"Tunnel connection failed: 403 {REFUSED}"), "http": (1, f"HTTP Error 403: {REFUSED}")},
    ),
    "node": Client(node, {"https": (1, REFUSED)}),
}
FETCHES = [(name, scheme) for name, client in CLIENTS.items() for scheme in client.refusals]


def fetch(world: World, name: str, url: str) -> Done:
    need(*({"curl by socks": ["curl"], "curl": ["curl"], "wget": ["wget"], "node": ["node"]}.get(name, [])))
    proxies = {f"{scheme}_proxy": world.gate.url for scheme in ("http", "https")}
    trust = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    env = {**proxies, "HTTPS_PROXY": world.gate.url, **{variable: str(world.authority.file) for variable in trust}}
    return world.run(*CLIENTS[name].words(world), url, **env)


@pytest.mark.parametrize(("name", "scheme"), FETCHES)
def test_an_allowed_page_is_fetched(world: World, name: str, scheme: str) -> None:
    host, port, server = ("secure.test", 443, world.secure) if scheme == "https" else ("plain.test", 80, world.plain)
    done = fetch(world, name, f"{scheme}://{host}/page?q=1")
    assert (done.code, done.out.strip()) == (0, f"hello from {host}"), done.err
    assert [(request.method, request.path, request.host) for request in server.seen] == [("GET", "/page?q=1", host)]
    assert scheme == "https" or not any(field.startswith("proxy-") for field in server.seen[0].fields)
    assert world.gate.decisions() == [world.allow(CLIENTS[name].via[scheme], host, port)]
    (end,) = world.gate.records(event="end")
    assert end["ip"] == "127.0.0.1"
    assert end["up"] > len("GET /page?q=1")
    assert end["down"] > len(done.out)


@pytest.mark.parametrize(("name", "scheme"), FETCHES)
def test_a_denied_page_is_refused_in_words_that_the_client_shows(world: World, name: str, scheme: str) -> None:
    host, port = ("denied.test", 443) if scheme == "https" else ("denied-plain.test", 80)
    code, words = CLIENTS[name].refusals[scheme]
    done = fetch(world, name, f"{scheme}://{host}/page")
    assert done.code == code, done
    assert words.format(host=host) in done.out + done.err
    assert world.reached == []
    assert world.gate.decisions() == [f"{CLIENTS[name].via[scheme]} {host}:{port} deny not_listed"]


# --- more of curl, and openssl


def curl(world: World, *words: str | Path) -> Done:
    need("curl")
    return world.run("curl", "-sS", "--cacert", world.authority.file, *words)


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_curl_speaks_either_version_of_http_through_a_tunnel(world: World, version: str) -> None:
    host = {"1.1": "secure.test", "2": "h2.test"}[version]
    done = curl(world, "-x", world.gate.url, "--http2", "-w", "%{http_version}", f"https://{host}/")
    assert (done.code, done.out) == (0, f"hello from {host}\n{version}")
    assert world.reached == [host]
    assert world.gate.decisions() == [world.allow("connect", host, 443)]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_by_socks_is_no_way_round_the_names(world: World, scheme: str) -> None:
    """curl looks the name up itself, as most programs do with plain socks5."""
    host, port = {"http": ("plain.test", 80), "https": ("secure.test", 443)}[scheme]
    local = ["--resolve", f"{host}:{port}:127.0.0.1"]
    done = curl(world, *local, "--socks5", f"127.0.0.1:{world.gate.port}", f"{scheme}://{host}/")
    assert done.code == 97
    assert RULESET.format(host=host) in done.err
    assert world.reached == []
    assert world.gate.decisions() == [f"socks5 127.0.0.1:{port} deny address_literal"]


def test_requests_on_one_connection_are_decided_one_by_one(world: World) -> None:
    urls = [f"http://{host}/" for host in ("plain.test", "denied-plain.test", "plain.test")]
    done = curl(world, "-v", "-x", world.gate.url, *urls)
    assert done.code == 0
    assert done.out.split("\n")[0] == "hello from plain.test"
    assert BLOCKED in done.out
    assert done.err.count("Re-using existing connection") == 2
    assert len(world.plain.seen) == 2
    assert world.reached == ["plain.test"]
    allow = world.allow("http", "plain.test", 80)
    assert world.gate.decisions() == [allow, "http denied-plain.test:80 deny not_listed", allow]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_large_upload_arrives_whole(world: World, scheme: str) -> None:
    """Above a megabyte curl waits to be told to go on (Expect: 100-continue)."""
    table = {"http": ("plain.test", 80, "http", world.plain), "https": ("secure.test", 443, "connect", world.secure)}
    host, port, via, server = table[scheme]
    data = b"0123456789abcdef" * 200_000
    (world.home / "upload").write_bytes(data)
    done = curl(world, "-x", world.gate.url, "--data-binary", f"@{world.home}/upload", f"{scheme}://{host}/")
    assert (done.code, done.out) == (0, f"hello from {host}\n")
    (request,) = server.seen
    assert hashlib.sha256(request.body).digest() == hashlib.sha256(data).digest()
    assert world.gate.decisions() == [world.allow(via, host, port)]
    assert world.gate.records(event="end")[0]["up"] > len(data)


def test_a_tunnel_whose_tls_names_another_host_is_cut(world: World) -> None:
    through = ["--connect-to", "denied.test:443:secure.test:443"]
    done = curl(world, "-x", world.gate.url, *through, "https://denied.test/")
    assert done.code == 35
    assert "alert" in done.err
    assert world.secure.seen == world.denied.seen == []
    rule = world.rules.place("secure.test")
    assert world.gate.decisions() == [
        world.allow("connect", "secure.test", 443),
        f"connect secure.test:443 deny sni_mismatch by {rule}",
    ]


@pytest.mark.parametrize("host", ["secure.test", "denied.test"])
def test_openssl_shakes_hands_with_the_allowed_only(world: World, host: str) -> None:
    need("openssl")
    words = ["-CAfile", world.authority.file, "-verify_return_error", "-verify_hostname", host, "-brief"]
    done = world.run("openssl", "s_client", "-proxy", f"127.0.0.1:{world.gate.port}", "-connect", f"{host}:443", *words)
    if host == "secure.test":
        assert done.code == 0
        assert "Verification: OK" in done.err
        assert world.reached == [host]
        assert world.gate.decisions() == [world.allow("connect", host, 443)]
    else:
        assert done.code == 1
        assert f"403 {REFUSED}" in done.err
        assert world.reached == []
        assert world.gate.decisions() == ["connect denied.test:443 deny not_listed"]


# --- who has a password


@pytest.fixture(scope="module")
def guarded(_world: World) -> Iterator[GateProcess]:
    """A gate that asks for a password: `ci` is persona p, `guest` is one that may reach nothing."""
    home = _world.home
    hashed = [
        egress(home, "users", "hash", name, "--persona", persona, text=f"{PASSWORD}\n").out
        for name, persona in (("ci", "p"), ("guest", "nobody"))
    ]
    (home / "users").write_text("".join(hashed))
    policy = f"{_world.rules.text}  nobody: {{}}\n"
    gate = GateProcess(home / "guarded", policy, "--listen", "127.0.0.1:0", "--users", home / "users")
    yield gate
    gate.stop()


KNOCKS = {
    "right": (f"ci:{PASSWORD}", "p", "allow listed by policy.yaml:6 secure.test"),
    "another persona's": (f"guest:{PASSWORD}", "nobody", "deny not_listed"),
    "wrong": ("ci:a long passwort", "", "deny credentials"),
    "unknown": (f"co:{PASSWORD}", "", "deny credentials"),
    "none": ("", "", "deny credentials"),
}
SHOWN = {
    ("connect", "right"): (0, ""),
    ("connect", "another persona's"): (56, "response 403"),
    ("connect", "wrong"): (56, "response 407"),
    ("connect", "unknown"): (56, "response 407"),
    ("connect", "none"): (56, "response 407"),
    ("socks5", "right"): (0, ""),
    ("socks5", "another persona's"): (97, "(2)"),
    ("socks5", "wrong"): (97, "User was rejected by the SOCKS5 server"),
    ("socks5", "unknown"): (97, "User was rejected by the SOCKS5 server"),
    ("socks5", "none"): (97, "No authentication method was acceptable"),
}


@pytest.mark.parametrize(("via", "knock"), SHOWN)
def test_a_password_says_who_one_is(world: World, guarded: GateProcess, via: str, knock: str) -> None:
    user, persona, verdict = KNOCKS[knock]
    guarded.forget()
    scheme = {"connect": "http", "socks5": "socks5h"}[via]
    words = ["--proxy-user", user] if user else []
    done = curl(world, "-x", f"{scheme}://127.0.0.1:{guarded.port}", *words, "https://secure.test/")
    code, shown = SHOWN[via, knock]
    assert done.code == code
    assert shown in done.err
    assert [request.host for request in world.secure.seen] == (["secure.test"] if knock == "right" else [])
    (decision,) = guarded.decisions()
    assert decision.startswith(f"{via} ")
    assert decision.endswith(verdict)
    assert [record["persona"] for record in guarded.records(event="decision")] == [persona]
    assert PASSWORD not in guarded.audit.read_text()


# --- git and ssh


def is_the_repository(clone: Path) -> bool:
    return (clone / "README").read_text() == "a repository\n"


@pytest.mark.parametrize("host", ["git.test", "denied.test"])
def test_git_clones_over_https_from_the_allowed_only(world: World, host: str, tmp_path: Path) -> None:
    need("git")
    env = {"https_proxy": world.gate.url, "GIT_SSL_CAINFO": str(world.authority.file)}
    done = world.run("git", "clone", f"https://{host}/it", tmp_path / "clone", **env)
    if host == "git.test":
        assert done.code == 0, done.err
        assert is_the_repository(tmp_path / "clone")
        assert {request.host for request in world.git.seen} == {host}
        assert set(world.gate.decisions()) == {world.allow("connect", host, 443)}
    else:
        assert done.code == 128
        assert "CONNECT tunnel failed, response 403" in done.err
        assert not (tmp_path / "clone").exists()
        assert world.reached == []
        assert world.gate.decisions() == ["connect denied.test:443 deny not_listed"]


class Ssh:
    def __init__(self, world: World, gate: GateProcess, server: Sshd) -> None:
        self.world, self.gate, self.server = world, gate, server

    def command(self, how: str, *words: str) -> list[str]:
        need("ssh", "sshd", how.partition(" ")[0])
        dial = PROXY_COMMANDS[how].format(port=self.gate.port)
        return ["ssh", "-F", "none", *self.server.client_options, "-o", f"ProxyCommand={dial}", *words]


PROXY_COMMANDS = {
    "socat": "socat - PROXY:127.0.0.1:%h:%p,proxyport={port}",
    "nc connect": "nc -X connect -x 127.0.0.1:{port} %h %p",
    "nc socks": "nc -X 5 -x 127.0.0.1:{port} %h %p",
}
NC_WORDS = "connection failed, SOCKSv5 error: Connection not allowed by ruleset"


@pytest.fixture(scope="module")
def _ssh(_world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    """Its own server and gate: without sshd, only these tests go without."""
    need("ssh", "sshd")
    server = Sshd(tmp_path_factory.mktemp("ssh"))
    rules = _world.rules_for({"ssh.test": server, "denied.test": server, "secure.test": _world.secure})
    with server.running():
        gate = GateProcess(_world.home / "ssh-gate", rules)
        yield Ssh(_world, gate, server)
        gate.stop()


@pytest.fixture
def ssh(_ssh: Ssh, world: World) -> Ssh:
    _ssh.gate.forget()
    _ssh.server.connections = 0
    return _ssh


@pytest.mark.parametrize("how", PROXY_COMMANDS)
def test_ssh_runs_a_command_on_an_allowed_host(ssh: Ssh, how: str) -> None:
    done = ssh.world.run(*ssh.command(how, f"{ssh.server.user}@ssh.test", "echo $((6 * 7))"))
    assert (done.code, done.out) == (0, "42\n"), done.err
    via = "socks5" if how == "nc socks" else "connect"
    assert ssh.gate.decisions() == [f"{via} ssh.test:22 allow listed by policy.yaml:6 ssh.test"]


@pytest.mark.parametrize("how", PROXY_COMMANDS)
def test_ssh_does_not_reach_a_denied_host(ssh: Ssh, how: str) -> None:
    done = ssh.world.run(*ssh.command(how, f"{ssh.server.user}@denied.test", "echo $((6 * 7))"))
    assert (done.code, done.out) == (255, "")
    assert (NC_WORDS if how == "nc socks" else REFUSED) in done.err
    assert ssh.server.connections == 0
    via = "socks5" if how == "nc socks" else "connect"
    assert ssh.gate.decisions() == [f"{via} denied.test:22 deny not_listed"]


def test_ssh_does_not_pass_where_tls_is_expected(ssh: Ssh) -> None:
    done = ssh.world.run(*ssh.command("socat", "-p", "443", "secure.test", "echo $((6 * 7))"))
    assert (done.code, done.out) == (255, "")
    rule = "policy.yaml:7 secure.test"
    assert ssh.gate.decisions() == [
        f"connect secure.test:443 allow listed by {rule}",
        f"connect secure.test:443 deny not_tls by {rule}",
    ]
    assert ssh.world.secure.seen == []


def test_git_clones_over_ssh(ssh: Ssh, tmp_path: Path) -> None:
    need("git")
    url = f"ssh://{ssh.server.user}@ssh.test{ssh.world.home}/repositories/it"
    done = ssh.world.run("git", "clone", url, tmp_path / "clone", GIT_SSH_COMMAND=shlex.join(ssh.command("socat")))
    assert done.code == 0, done.err
    assert is_the_repository(tmp_path / "clone")
    assert ssh.gate.decisions() == ["connect ssh.test:22 allow listed by policy.yaml:6 ssh.test"]


# --- packages


@pytest.mark.parametrize("host", ["index.test", "denied.test"])
def test_pip_installs_from_the_allowed_index_only(world: World, host: str, tmp_path: Path) -> None:
    quiet = ["--no-input", "--disable-pip-version-check", "--no-cache-dir", "--retries", "1"]
    where = ["--index-url", f"https://{host}/simple/", "--proxy", world.gate.url, "--cert", world.authority.file]
    words = [*quiet, *where, "--target", tmp_path / "site", "tinything"]
    done = world.run(sys.executable, "-m", "pip", "install", *words, PIP_CONFIG_FILE="/dev/null")
    if host == "index.test":
        assert done.code == 0, done.err
        assert "Successfully installed tinything-1.0" in done.out
        code = "import tinything; print(tinything.GREETING)"
        assert world.run(sys.executable, "-c", code, PYTHONPATH=str(tmp_path / "site")).out == "hello from the index\n"
        wheel = "/files/tinything-1.0-py3-none-any.whl"
        assert [request.path for request in world.index.seen] == ["/simple/tinything/", wheel]
        assert set(world.gate.decisions()) == {world.allow("connect", host, 443)}
    else:
        assert done.code == 1
        assert f"Tunnel connection failed: 403 {REFUSED}" in done.err
        assert world.reached == []
        assert set(world.gate.decisions()) == {"connect denied.test:443 deny not_listed"}


@pytest.mark.parametrize("host", ["registry.test", "denied.test"])
def test_npm_installs_from_the_allowed_registry_only(world: World, host: str, tmp_path: Path) -> None:
    need("npm", "node")
    settings = {
        "registry": f"https://{host}/",
        "https_proxy": world.gate.url,
        "cafile": str(world.authority.file),
        "cache": str(tmp_path / "cache"),
        "userconfig": str(tmp_path / "npmrc"),
        "globalconfig": str(tmp_path / "npmrc-of-all"),
        "fetch_retries": "0",
        "update_notifier": "false",
        "audit": "false",
        "fund": "false",
    }
    env = {f"npm_config_{name}": value for name, value in settings.items()}
    done = world.run("npm", "install", "--prefix", tmp_path, "tinything", **env)
    if host == "registry.test":
        assert done.code == 0, done.err
        code = f"console.log(require('{tmp_path}/node_modules/tinything'))"
        assert world.run("node", "-e", code).out == "hello from the registry\n"
        assert "/tinything/-/tinything-1.0.0.tgz" in [request.path for request in world.registry.seen]
        assert set(world.gate.decisions()) == {world.allow("connect", host, 443)}
    else:
        assert done.code == 1
        assert f"403 {REFUSED}" in done.err
        assert world.reached == []
        assert set(world.gate.decisions()) == {"connect denied.test:443 deny not_listed"}


# --- WebSockets


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_websocket_passes_to_an_allowed_host(world: World, scheme: str) -> None:
    server = {"ws": world.ws, "wss": world.wss}[scheme]
    url, trust = f"{scheme}://{scheme}.test/chat", world.authority.trusting()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, proxy=world.gate.url, ssl=trust) as socket,
    ):
        for text in ("one", "two " * 20_000):
            await socket.send_str(text)
            assert await socket.receive_str() == text
    assert "".join(server.seen) == "one" + "two " * 20_000
    via, port = {"ws": ("http", 80), "wss": ("connect", 443)}[scheme]
    decisions = await asyncio.to_thread(world.gate.decisions)  # the loop has closing to do
    assert decisions == [world.allow(via, f"{scheme}.test", port)]


@pytest.mark.parametrize(
    ("url", "decision"),
    [
        ("ws://denied-plain.test/chat", "http denied-plain.test:80 deny not_listed"),
        ("wss://denied.test/chat", "connect denied.test:443 deny not_listed"),
    ],
)
async def test_a_websocket_does_not_pass_to_a_denied_host(world: World, url: str, decision: str) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientResponseError, match=re.escape("403")) as caught:
            await session.ws_connect(url, proxy=world.gate.url, ssl=world.authority.trusting())
    assert caught.value.status == 403
    assert world.reached == []
    assert world.gate.decisions() == [decision]
