"""Whom real programs trust: each TLS library with our certificates, and programs in a sandbox with our files.

The sandbox here is bwrap with what `launcher.trust` says, put in through pipes. bwrap makes its mounts before
it waits at --block-fd, so a file that it is to copy must be there by then, or be a pipe: from that it reads to
the end, however late that comes, while its namespaces exist already.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import select
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from programs import PATH, Done, environment, need, run
from servers import Git, Server, Web, greeting, make_repository

from egress.inspection.authority import Authority
from egress.inspection.bundle import bundle, certificates, roots
from egress.inspection.keystore import PASSWORD, keystore
from launcher.trust import BUNDLE, STORE, Content, Given, given, variables

pytestmark = pytest.mark.scenario

PATIENCE = 40.0  # Java and Go compile first
PACKAGES = {"certtool": "gnutls-bin", "certutil": "libnss3-tools", "go": "golang-go", "keytool": "default-jre-headless"}


def need_also(program: str) -> None:
    if shutil.which(program, path=PATH) is None:
        pytest.skip(f"{program} is missing: apt-get install -y {PACKAGES[program]}")


# ---- libraries

NAMES = {
    "names": ("api.example.com", "*.wild.test"),
    "addresses": ("127.0.0.1", "::1"),
    "both": ("api.example.com", "*.wild.test", "127.0.0.1", "::1"),
}
HOSTS = ("api.example.com", "a.b.wild.test", "127.0.0.1", "::1", "evil.test", "evilwild.test", "127.0.0.2", "::2")


class Case(NamedTuple):
    names: str
    host: str
    authority: Path
    leaf: Path  # without its authority
    chain: Path
    permitted: bool

    @property
    def is_address(self) -> bool:
        return self.host[-1].isdigit()

    @property
    def words(self) -> tuple[str, str, str]:
        return str(self.authority), str(self.chain), self.host

    def __str__(self) -> str:
        return f"{self.names}: {self.host}"


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Every host signed by every authority, also where its constraints forbid it."""
    top = tmp_path_factory.mktemp("cases")
    found = []
    for kind, names in NAMES.items():
        authority = Authority.make(names)
        (ca := top / f"{kind}.pem").write_bytes(authority.certificate_pem)
        for number, host in enumerate(HOSTS):
            permitted = authority.covers(host)
            chain, leaf = top / f"{kind}{number}.chain", top / f"{kind}{number}.leaf"
            unbound = Authority.load(authority.key_pem, authority.certificate_pem)
            unbound.names = None
            pem = unbound.leaf(host)[1]
            chain.write_bytes(pem)
            leaf.write_bytes(pem.removesuffix(authority.certificate_pem))
            found.append(Case(kind, host, ca, leaf, chain, permitted))
    return found


def openssl(case: Case) -> list[str]:
    check = "-verify_ip" if case.is_address else "-verify_hostname"
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", check, case.host]
    return [*words, "-CAfile", str(case.authority), str(case.leaf)]


def gnutls(case: Case) -> list[str]:
    words = ["certtool", "--verify", "--verify-profile", "medium", "--verify-hostname", case.host]
    return [*words, "--load-ca-certificate", str(case.authority), "--infile", str(case.leaf)]


@pytest.mark.parametrize("words", [openssl, gnutls])
def test_a_library_takes_what_the_constraints_permit_and_nothing_else(
    words: functools.partial[list[str]], cases: list[Case], tmp_path: Path
) -> None:
    need("openssl")
    need_also("certtool")
    outcome = {str(case): run(tmp_path, *words(case)) for case in cases}
    assert {name: done.code == 0 for name, done in outcome.items()} == wanted(cases), outcome


def test_nss_takes_what_the_constraints_permit_and_nothing_else(cases: list[Case], tmp_path: Path) -> None:
    need_also("certutil")
    outcome = {}
    for case in cases:
        store = f"sql:{tmp_path / case.names}"
        if not (tmp_path / case.names).exists():
            (tmp_path / case.names).mkdir()
            run(tmp_path, "certutil", "-N", "-d", store, "--empty-password")
            run(tmp_path, "certutil", "-A", "-d", store, "-n", "ca", "-t", "C,,", "-i", case.authority)
        name = case.leaf.name  # a colon would be taken for the end of a token's name
        assert run(tmp_path, "certutil", "-A", "-d", store, "-n", name, "-t", ",,", "-i", case.leaf).code == 0
        outcome[str(case)] = run(tmp_path, "certutil", "-V", "-d", store, "-u", "V", "-n", name)
    assert {name: done.code == 0 for name, done in outcome.items()} == wanted(cases), outcome


GO = """
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

func main() {
	for words := os.Args[1:]; len(words) > 0; words = words[3:] {
		authority, _ := os.ReadFile(words[0])
		chain, _ := os.ReadFile(words[1])
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		block, _ := pem.Decode(chain)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			_, err = leaf.Verify(x509.VerifyOptions{DNSName: words[2], Roots: roots})
		}
		fmt.Println(err == nil)
	}
}
"""


def test_go_takes_what_the_constraints_permit_and_nothing_else(cases: list[Case], tmp_path: Path) -> None:
    need_also("go")
    (tmp_path / "verify.go").write_text(GO)
    words = [word for case in cases for word in case.words]
    done = run(tmp_path, "go", "run", "verify.go", *words, env={"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"})
    assert done.code == 0, done
    verdicts = [line == "true" for line in done.out.splitlines()]
    assert dict(zip(map(str, cases), verdicts, strict=True)) == wanted(cases)


def wanted(cases: list[Case]) -> dict[str, bool]:
    found = {str(case): case.permitted for case in cases}
    assert 0 < sum(found.values()) < len(found)
    return found


def test_keytool_lists_the_store(tmp_path: Path) -> None:
    need_also("keytool")
    files = contents(Authority.make(["api.example.com"]))
    (store := tmp_path / "store").write_bytes(files[Content.STORE])
    done = run(tmp_path, "keytool", "-list", "-keystore", store, "-storepass", PASSWORD)
    assert done.code == 0, done
    assert f"contains {1 + len(roots({}))} entries" in done.out
    assert "egress, " in done.out
    assert run(tmp_path, "keytool", "-list", "-keystore", store, "-storepass", "another").code != 0


# ---- programs in a sandbox


def contents(authority: Authority, environ: Mapping[str, str] | None = None) -> dict[Content, bytes]:
    trusted = roots(environ or {})
    (ours,) = certificates(authority.certificate_pem)
    return {
        Content.BUNDLE: bundle(trusted, authority.certificate_pem),
        Content.AUTHORITY: authority.certificate_pem,
        Content.STORE: keystore(trusted, ours, time.time()),
    }


class Sandbox:
    """bwrap, started and held; its files are pipes that nobody has written to."""

    def __init__(self, files: tuple[Given, ...], hosts: str, env: Mapping[str, str], home: Path, *command: str) -> None:
        self.files = files
        pipes = [os.pipe() for _ in files]
        self._filled = [mine for _, mine in pipes]
        for mine in self._filled:
            fcntl.fcntl(mine, fcntl.F_SETPIPE_SZ, 1 << 20)
        self.info, info = os.pipe()
        block, self._release = os.pipe()
        named = os.memfd_create("hosts")
        os.write(named, hosts.encode())
        os.lseek(named, 0, os.SEEK_SET)
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
        words += ["--bind", str(home), str(home), "--chdir", str(home)]
        words += [
            "--ro-bind-data",
            str(named),
            os.path.realpath("/etc/hosts"),
            "--perms",
            "0555",
            "--tmpfs",
            "/run/egress",
        ]
        for (theirs, _), file in zip(pipes, files, strict=True):
            words += ["--perms", "0444", "--ro-bind-data", str(theirs), file.path]
        words += ["--unshare-pid", "--die-with-parent", "--clearenv"]
        words += [word for name, value in env.items() for word in ("--setenv", name, value)]
        words += ["--info-fd", str(info), "--block-fd", str(block), "--", *command]
        theirs_all = [theirs for theirs, _ in pipes] + [info, block, named]
        self.process = subprocess.Popen(
            ["bwrap", *words],
            pass_fds=theirs_all,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for fd in theirs_all:
            os.close(fd)

    def fill(self, texts: Mapping[Content, bytes]) -> None:
        for fd, file in zip(self._filled, self.files, strict=True):
            with open(fd, "wb") as pipe:
                pipe.write(texts[file.content])
        self._filled = []

    def release(self) -> Done:
        os.write(self._release, b"x")
        out, err = self.process.communicate(timeout=PATIENCE)
        return Done(self.process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def first_process(self) -> int:
        """Told in several writes."""
        told = b""
        while b"}" not in told:
            told += os.read(self.info, 4096)
        return int(json.loads(told)["child-pid"])

    def close(self) -> None:
        """What it waits for ends first: a bwrap that was killed would leave its child waiting."""
        for fd in (*self._filled, self.info, self._release):
            os.close(fd)
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


NAME = "server.inspected.test"
FETCH = "fetch(process.argv[2]).then(a => a.text()).then(console.log)"
URLLIB = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
REQUESTS = "import sys, requests; print(requests.get(sys.argv[1]).text)"
HTTPX = "import sys, httpx; print(httpx.get(sys.argv[1]).text)"
JAVA = """
import java.net.URI;
import java.net.http.*;

class Fetch {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""
FILES = {
    "fetch.js": FETCH,
    "by_urllib.py": URLLIB,
    "by_requests.py": REQUESTS,
    "by_httpx.py": HTTPX,
    "Fetch.java": JAVA,
}


class Program(NamedTuple):
    name: str
    command: str
    bare: bool = False  # also where it has no variables, by the distribution's files


PROGRAMS = [
    Program("curl", "curl -sS {url}", bare=True),
    Program("wget", "wget -nv -O- {url}", bare=True),
    Program("git", "git clone -q {git} new && cat new/README && echo hello from {host}", bare=True),
    Program("openssl", "openssl s_client -verify_return_error -brief -servername {name} -connect {host} 2>&1"),
    Program("node", "node fetch.js {url}"),
    Program("urllib", "{python} by_urllib.py {url}"),
    Program("requests", "{python} by_requests.py {url}"),
    Program("httpx", "{python} by_httpx.py {url}"),
    Program("java", "java Fetch.java {url}", bare=True),
]
TRIED = [(program, bare) for program in PROGRAMS for bare in (False, True) if program.bare or not bare]


class World(NamedTuple):
    authority: Authority
    web: Server
    git: Server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    top = tmp_path_factory.mktemp("world")
    authority = Authority.make(["*.inspected.test"])
    key, chain = authority.leaf(NAME)
    (top / "key").write_bytes(key)
    (top / "chain").write_bytes(chain)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(top / "chain", top / "key")
    need("git")
    make_repository(top / "repositories" / "it")
    web, git = Web(greeting, tls), Git(top / "repositories", tls)
    with web.running(), git.running():
        yield World(authority, web, git)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (place := tmp_path / "home").mkdir()
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place


def attempt(world: World, program: Program, home: Path, texts: Mapping[Content, bytes], bare: bool) -> Done:
    values = {"host": f"{NAME}:{world.web.port}", "name": NAME, "python": sys.executable}
    values |= {"url": f"https://{NAME}:{world.web.port}/", "git": f"https://{NAME}:{world.git.port}/it"}
    env = {"PATH": PATH, "HOME": str(home), **({} if bare else variables())}
    command = ("sh", "-c", program.command.format(**values))
    sandbox = Sandbox(given(), f"127.0.0.1 {NAME} localhost\n", env, home, *command)
    try:
        sandbox.fill(texts)
        return sandbox.release()
    finally:
        sandbox.close()


@pytest.mark.parametrize(
    ("program", "bare"), TRIED, ids=[f"{it.name}-{'bare' if bare else 'told'}" for it, bare in TRIED]
)
def test_a_program_inside_trusts_what_the_gate_signs(world: World, program: Program, bare: bool, home: Path) -> None:
    need("bwrap", *({program.name} - {"urllib", "requests", "httpx"}))
    done = attempt(world, program, home, contents(world.authority), bare)
    assert done.code == 0, done
    assert (f"hello from {NAME}" in done.out) or ("Verification: OK" in done.out), done


@pytest.mark.parametrize("program", PROGRAMS, ids=[it.name for it in PROGRAMS])
def test_a_program_inside_does_not_trust_another_authority(world: World, program: Program, home: Path) -> None:
    """So what the tests before show is owed to our files."""
    need("bwrap", *({program.name} - {"urllib", "requests", "httpx"}))
    done = attempt(world, program, home, contents(Authority.make(["*.inspected.test"])), bare=False)
    assert "hello from" not in done.out, done
    assert "Verification: OK" not in done.out, done
    assert re.search("(?i)certificat", done.out + done.err), done  # that is what it complains of


def test_bwrap_has_its_namespaces_before_it_has_the_files_and_waits_for_them(home: Path) -> None:
    need("bwrap")
    authority = Authority.make(["x.test"])
    texts = contents(authority)
    shown = " ".join(file.path for file in given())
    sandbox = Sandbox(given(), "", {"PATH": PATH}, home, "sh", "-c", f"sha256sum {shown}; stat -c %a {shown}")
    try:
        assert sandbox.first_process() > 0
        assert not select.select([sandbox.process.stdout], [], [], 0)[0]
        filler = threading.Thread(target=sandbox.fill, args=(texts,))
        filler.start()
        done = sandbox.release()
        filler.join()
    finally:
        sandbox.close()
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[: len(given())] == [f"{sha256(texts[file.content])}  {file.path}" for file in given()]
    assert set(lines[len(given()) :]) == {"444"}


def sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_nothing_inside_can_change_whom_others_trust(home: Path) -> None:
    need("bwrap")
    tries = " ".join(
        f"(echo x >> {path}) 2>&-; rm -f {path} 2>&-; mv {path} /run/x 2>&-; ln -sf /run/x {path} 2>&-;"
        for path in (BUNDLE, STORE, *(file.path for file in given()))
    )
    texts = contents(Authority.make(["x.test"]))
    shown = " ".join(file.path for file in given())
    sandbox = Sandbox(given(), "", {"PATH": PATH}, home, "sh", "-c", f"{tries} sha256sum {shown}")
    try:
        sandbox.fill(texts)
        done = sandbox.release()
    finally:
        sandbox.close()
    assert done.out.splitlines() == [f"{sha256(texts[file.content])}  {file.path}" for file in given()], done


def test_the_users_own_authorities_are_trusted_inside_too(world: World, home: Path, tmp_path: Path) -> None:
    """As behind a company's proxy: its authority stands in SSL_CERT_FILE and nowhere else."""
    need("bwrap", "curl")
    (tmp_path / "company.pem").write_bytes(world.authority.certificate_pem)
    texts = contents(Authority.make(["x.test"]), {"SSL_CERT_FILE": str(tmp_path / "company.pem")})
    done = attempt(world, PROGRAMS[0], home, texts, bare=False)
    assert f"hello from {NAME}" in done.out, done


def test_the_kept_authority_is_one_that_programs_take(tmp_path: Path) -> None:
    need("openssl")
    env = {**environment(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    printed = subprocess.run(
        [sys.executable, "-m", "egress.cli", "ca", "--path"], env=env, capture_output=True, text=True, check=True
    )
    path = printed.stdout.strip()
    assert run(tmp_path, "openssl", "verify", "-x509_strict", "-CAfile", path, path).code == 0
