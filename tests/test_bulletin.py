"""One policy for all workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress import enforce, policysources
from egress.bulletin import Bulletin
from egress.model import Host, Target
from egress.policy import Policy
from egress.problems import PolicyError, Problem
from egress.refusals import Refused
from egress.vault import Vault

ENVIRON = {"TOKEN": "the-value"}
TEXT = """
version: 1
hosts: {a.test: "127.0.0.1:81"}
personas:
  p:
    allow: [a.test, {host: b.test, secret: {env: TOKEN, header: x-key}}]
    deny: [c.a.test]
"""


@pytest.fixture
def bulletin() -> Iterator[Bulletin]:
    with contextlib.closing(Bulletin()) as made:
        yield made


def loaded(tmp_path: Path, text: str = TEXT) -> tuple[Policy, Vault]:
    (tmp_path / "policy.yaml").write_text(text)
    vault = Vault(ENVIRON)
    return enforce.load(policysources.locate([str(tmp_path / "policy.yaml")], environ={}), vault, {"p"}), vault


def test_what_is_taken_down_decides_as_what_was_put_up(tmp_path: Path, bulletin: Bulletin) -> None:
    policy, vault = loaded(tmp_path)
    bulletin.put_up(policy, vault)
    taken = bulletin.take(Vault({}))
    for host in ("a.test", "b.test", "c.a.test", "d.test"):
        target = Target(Host(host), 443)
        assert taken.personas["p"].decide(target) == policy.personas["p"].decide(target)
    assert taken.hosts == policy.hosts
    assert set(taken.personas) == set(policy.personas)


def test_secrets_come_with_it(tmp_path: Path, bulletin: Bulletin) -> None:
    policy, vault = loaded(tmp_path)
    (rule,) = policy.personas["p"].request_rules(Target(Host("b.test"), 443))
    assert rule.requests is not None
    assert rule.requests.secret is not None
    bulletin.put_up(policy, vault)
    other = Vault({})
    with pytest.raises(Refused):
        other.known([rule.requests.secret])
    bulletin.take(other)
    assert other.known([rule.requests.secret]) == vault.known([rule.requests.secret])


def test_each_that_is_put_up_is_another_generation(tmp_path: Path, bulletin: Bulletin) -> None:
    for generation in (1, 2, 3):
        bulletin.put_up(*loaded(tmp_path, TEXT.replace("d.test", f"{generation}.test")))
        assert (bulletin.generation, bulletin.taken) == (generation, generation)


def test_a_shorter_policy_leaves_nothing_of_a_longer_one(tmp_path: Path, bulletin: Bulletin) -> None:
    policy, vault = loaded(tmp_path)
    for _ in range(2):
        bulletin.put_up(policy, vault)
    bulletin.put_up(*loaded(tmp_path, "version: 1\npersonas: {p: {allow: [z.test]}}\n"))
    assert not bulletin.take(Vault({})).hosts


def test_another_process_takes_what_one_has_put_up(tmp_path: Path, bulletin: Bulletin) -> None:
    policy, vault = loaded(tmp_path)
    child = os.fork()
    if child == 0:
        bulletin.put_up(policy, vault)
        os._exit(0)
    os.waitpid(child, 0)
    assert (bulletin.generation, bulletin.taken) == (1, 0)
    assert "p" in bulletin.take(Vault({})).personas
    assert bulletin.taken == 1


def test_a_reader_that_was_overtaken_reads_again(
    tmp_path: Path, bulletin: Bulletin, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulletin.put_up(*loaded(tmp_path))
    newer = loaded(tmp_path, "version: 1\npersonas: {p: {allow: [z.test]}}\n")
    pread = os.pread
    reads: list[int] = []

    def slow(fd: int, size: int, start: int) -> bytes:
        reads.append(fd)
        if len(reads) == 1:
            bulletin.put_up(*newer)
        return pread(fd, size, start)

    monkeypatch.setattr(os, "pread", slow)
    taken = bulletin.take(Vault({}))
    assert taken.personas["p"].decide(Target(Host("z.test"), 443)).allowed
    assert (bulletin.taken, len(reads)) == (2, 2)


def test_a_persona_that_cannot_be_made_here_keeps_nobody_from_the_others(tmp_path: Path, bulletin: Bulletin) -> None:
    class Lazy(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            if name == "q":
                raise PolicyError([Problem(rule.source, "no such tool")])
            return super().__getitem__(name)

    policy, vault = loaded(tmp_path)
    rule = policy.personas["p"].allow[0]
    bulletin.put_up(policy._replace(personas=Lazy(p=policy.personas["p"], q=None)), vault)  # type: ignore[arg-type]
    assert set(bulletin.take(Vault({})).personas) == {"p"}
