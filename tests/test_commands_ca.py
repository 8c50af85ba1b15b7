"""`egress ca`: what it prints, and how what it keeps is kept."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509

from egress import cli
from egress.inspection import kept as module
from egress.inspection.authority import DAY, Authority
from egress.inspection.kept import KeptError, keep, kept


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "egress" / "authority"


def egress_ca(*words: str) -> int:
    return cli.main(["ca", *words])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- the command


def test_the_certificate_goes_to_stdout_and_advice_to_stderr(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    assert egress_ca() == 0
    out, err = capsys.readouterr()
    x509.load_pem_x509_certificate(out.encode())
    assert out == (state / "ca.pem").read_text()
    assert all(line.startswith("egress: ") for line in err.splitlines())
    for words in (f"NODE_EXTRA_CA_CERTS={state}/ca.pem", f"curl --cacert {state}/ca.pem", "update-ca-certificates"):
        assert words in err
    assert "for any host" in err


def test_the_same_one_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    egress_ca()
    first = capsys.readouterr().out
    egress_ca()
    assert capsys.readouterr().out == first


def test_a_path_is_printed_alone(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    assert egress_ca("--path") == 0
    assert capsys.readouterr() == (f"{state}/ca.pem\n", "")
    x509.load_pem_x509_certificate((state / "ca.pem").read_bytes())


def test_a_new_one_is_made_when_asked_for(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    egress_ca()
    first = capsys.readouterr().out
    egress_ca("--renew")
    second = capsys.readouterr().out
    assert second != first
    assert (state / "ca.pem").read_text() == second
    assert found(state).certificate_pem.decode() == second


def test_no_key_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--renew",), ("--path",)):
        egress_ca(*words)
        assert "PRIVATE" not in "".join(capsys.readouterr())


def test_what_cannot_be_used_is_said_with_what_helps(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    egress_ca()
    (state / "authority.pem").chmod(0o644)
    capsys.readouterr()
    assert egress_ca() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"egress: error: {state}/authority.pem can be used by others\negress: hint: chmod 600 {state}/authority.pem\n"
    )


# ---- what is kept


def found(state: Path) -> Authority:
    authority = kept({"XDG_STATE_HOME": str(state.parent.parent)})
    assert authority is not None
    return authority


def test_the_gate_finds_what_was_kept_and_nothing_where_nothing_was(state: Path) -> None:
    environ = {"XDG_STATE_HOME": str(state.parent.parent)}
    assert kept(environ) is None
    assert not state.exists()
    made = keep(environ)
    again = found(state)
    assert (again.key_pem, again.certificate_pem) == (made.authority.key_pem, made.authority.certificate_pem)
    assert again.leaf("any.example")


def test_it_is_valid_for_a_year_and_names_no_hosts(state: Path) -> None:
    made = keep(os.environ).authority
    assert made.names is None
    assert 364 * DAY < made.until - time.time() <= 365 * DAY


def test_the_key_is_for_its_owner_alone_whatever_the_umask(state: Path) -> None:
    before = os.umask(0)
    try:
        keep(os.environ)
    finally:
        os.umask(before)
    assert (mode(state), mode(state / "authority.pem"), mode(state / "ca.pem")) == (0o700, 0o600, 0o644)
    assert b"PRIVATE" not in (state / "ca.pem").read_bytes()
    assert sorted(os.listdir(state)) == ["authority.pem", "ca.pem"]


@pytest.mark.parametrize("name", ["", "authority.pem"])
def test_what_others_can_use_is_not_believed(name: str, state: Path) -> None:
    keep(os.environ)
    (state / name).chmod(0o750)
    for attempt in (kept, keep):
        with pytest.raises(KeptError, match="can be used by others"):
            attempt(os.environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", "authority.pem"])
def test_what_belongs_to_another_is_not_believed(name: str, state: Path) -> None:
    keep(os.environ)
    os.chown(state / name, 65534, 65534)
    with pytest.raises(KeptError, match="belongs to another user"):
        kept(os.environ)


@pytest.mark.parametrize("name", ["", "authority.pem"])
def test_a_link_is_not_followed(name: str, state: Path, tmp_path: Path) -> None:
    keep(os.environ)
    (state / name).rename(tmp_path / "elsewhere")
    (state / name).symlink_to(tmp_path / "elsewhere")
    for attempt in (kept, keep):
        with pytest.raises(KeptError, match="cannot be used"):
            attempt(os.environ)


def test_a_link_in_place_of_the_certificate_is_replaced_and_not_written_through(state: Path, tmp_path: Path) -> None:
    keep(os.environ)
    (state / "ca.pem").unlink()
    (state / "ca.pem").symlink_to(tmp_path / "victim")
    keep(os.environ)
    assert not (tmp_path / "victim").exists()
    assert not (state / "ca.pem").is_symlink()


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", Authority.make(None).key_pem, Authority.make(None).certificate_pem]
)
def test_what_is_broken_is_said_and_can_be_renewed(content: bytes, state: Path) -> None:
    keep(os.environ)
    (state / "authority.pem").write_bytes(content)
    for attempt in (kept, keep):
        with pytest.raises(KeptError, match="not a key and its certificate"):
            attempt(os.environ)
    assert keep(os.environ, renew=True).authority.certificate_pem == found(state).certificate_pem


def test_a_directory_in_place_of_the_file_is_said(state: Path) -> None:
    (state / "authority.pem").mkdir(parents=True)
    state.chmod(0o700)
    with pytest.raises(KeptError, match="cannot be used: Is a directory"):
        kept(os.environ)


def test_one_that_has_expired_is_said_and_can_be_renewed(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIFETIME", -60)
    with pytest.raises(KeptError, match=r"has expired on \d{4}-\d\d-\d\d") as caught:
        keep(os.environ)
    assert caught.value.hint == "egress ca --renew"
    with pytest.raises(KeptError, match="has expired"):
        kept(os.environ)
    monkeypatch.setattr(module, "_LIFETIME", DAY)
    assert keep(os.environ, renew=True).authority.until > time.time()


def test_of_those_who_make_it_at_once_all_get_the_same(state: Path) -> None:
    start, results = threading.Barrier(8), []

    def run() -> None:
        start.wait()
        results.append(keep(os.environ).authority.certificate_pem)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert set(results) == {found(state).certificate_pem}
    assert sorted(os.listdir(state)) == ["authority.pem", "ca.pem"]


def test_a_disk_that_is_full_leaves_nothing(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(KeptError, match="No space left"):
        keep(os.environ)
    assert os.listdir(state) == []
