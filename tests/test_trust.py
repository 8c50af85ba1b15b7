"""Which files of a sandbox say whom to trust, and which variables name them: as tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from egress.rootfiles import BUNDLES, STORES
from launcher import trust
from launcher.trust import AUTHORITY, BUNDLE, STORE, Content, given, on_this_host, variables

DEBIAN = {path: path for path in (BUNDLES[0], STORES[0])}
FEDORA_FILE = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
FEDORA = dict.fromkeys(
    [
        *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/tls/cert.pem", "/etc/ssl/certs/ca-certificates.crt"),
        *("/etc/ssl/cert.pem", FEDORA_FILE),
    ],
    FEDORA_FILE,
)
OWN = [(Content.BUNDLE, BUNDLE), (Content.AUTHORITY, AUTHORITY), (Content.STORE, STORE)]


def found(links: dict[str, str]) -> list[tuple[Content, str]]:
    return [(it.content, it.path) for it in given(links.get)]


def test_a_sandbox_has_the_files_of_its_own_also_where_the_host_has_none() -> None:
    assert found({}) == OWN


def test_the_distributions_bundle_and_its_store_for_java_are_covered() -> None:
    assert found(DEBIAN) == [
        (Content.BUNDLE, "/etc/ssl/certs/ca-certificates.crt"),
        (Content.STORE, "/etc/ssl/certs/java/cacerts"),
        *OWN,
    ]


def test_links_to_one_file_are_one_mount() -> None:
    assert found(FEDORA) == [(Content.BUNDLE, FEDORA_FILE), *OWN]


def test_a_path_leads_through_links_to_a_file_or_to_nothing(tmp_path: Path) -> None:
    file, link, further, loose = (tmp_path / name for name in ("file", "link", "further", "loose"))
    file.touch()
    link.symlink_to(file)
    further.symlink_to("link")
    loose.symlink_to("nowhere")
    assert [on_this_host(str(path)) for path in (file, link, further)] == [str(file)] * 3
    assert [on_this_host(str(path)) for path in (loose, tmp_path, tmp_path / "nowhere")] == [None] * 3


def test_only_files_of_the_system_are_covered() -> None:
    tops = ("/etc/", "/usr/lib/ssl/", "/usr/local/ssl/", "/var/lib/ca-certificates/")
    assert all(path.startswith(tops) for path in (*BUNDLES, *STORES))


@pytest.mark.parametrize(
    "name",
    [
        *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"),
        *("AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "npm_config_cafile", "BUNDLE_SSL_CA_CERT"),
        *("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS"),
    ],
)
def test_programs_that_know_one_file_are_told_of_the_bundle(name: str) -> None:
    assert variables()[name] == BUNDLE


@pytest.mark.parametrize("name", ["NODE_EXTRA_CA_CERTS", "DENO_CERT"])
def test_programs_that_have_authorities_built_in_are_told_of_ours_alone(name: str) -> None:
    assert variables()[name] == AUTHORITY


def test_java_and_uv_are_told_in_their_own_words() -> None:
    assert variables()["JAVA_TOOL_OPTIONS"] == f"-Djavax.net.ssl.trustStore={STORE}"
    assert variables()["UV_NATIVE_TLS"] == "true"


def test_every_file_that_a_variable_names_is_in_the_sandbox() -> None:
    named = {value.rpartition("=")[2] for value in variables().values()} - set(trust.SWITCHES.values())
    assert named == {it.path for it in given({}.get)}
