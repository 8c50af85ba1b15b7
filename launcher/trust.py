"""What programs in a sandbox trust when some hosts are inspected: which files, where, and who is told of them.

Three files are made for a session, and live in a directory of their own inside:

    bundle.pem    the host's authorities and ours, for programs that know one file and nothing else
    ca.pem        ours alone, for programs that add it to what they have built in
    truststore    all of them, for Java

The bundle also covers the files where the distribution's programs look, and the store those of its Javas: a
program that was given no environment, as agents start their tools, still finds it. Links are resolved
before: a mount would follow them, and several often lead to one file.

Python's certifi and the like are not covered. Such files belong to a project or an environment of it, and their
programs heed a variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import StrEnum

from egress.record import NamedTuple
from egress.rootfiles import BUNDLES, STORES
from launcher.env import JAVA

DIRECTORY = "/run/egress"
BUNDLE, AUTHORITY, STORE = f"{DIRECTORY}/bundle.pem", f"{DIRECTORY}/ca.pem", f"{DIRECTORY}/truststore"

# One file with all authorities: it replaces what these programs would trust.
WHOLE = (
    "SSL_CERT_FILE",  # OpenSSL, Go, Python, Ruby, uv, most of Rust
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "npm_config_cafile",
    "BUNDLE_SSL_CA_CERT",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
)
# Ours alone: these programs have the rest built in.
ADDED = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
SWITCHES = {"UV_NATIVE_TLS": "true"}  # older ones look at no file unless told to


class Content(StrEnum):
    BUNDLE = "bundle"
    AUTHORITY = "authority"
    STORE = "store"


class Given(NamedTuple):
    """A file that is put into the sandbox, and what is in it."""

    content: Content
    path: str  # inside
    why: str


OWN = (
    Given(Content.BUNDLE, BUNDLE, "whom programs trust: the host's authorities and the gate's"),
    Given(Content.AUTHORITY, AUTHORITY, "the gate's authority, which vouches for inspected hosts"),
    Given(Content.STORE, STORE, "whom Java trusts"),
)

Resolve = Callable[[str], str | None]  # a path, to the file that it leads to, if there is one


def on_this_host(path: str) -> str | None:
    real = os.path.realpath(path)
    return real if os.path.isfile(real) else None


def given(resolve: Resolve = on_this_host) -> tuple[Given, ...]:
    """All files, each path once, in the order in which they are to be filled."""
    return tuple({it.path: it for it in (*_covered(resolve), *OWN)}.values())


def _covered(resolve: Resolve) -> Iterator[Given]:
    for content, paths in ((Content.BUNDLE, BUNDLES), (Content.STORE, STORES)):
        for path in paths:
            if real := resolve(path):
                yield Given(content, real, "the host's authorities, and the gate's")


def elsewhere(directory: str) -> tuple[Given, ...]:
    """The three files alone, in another directory: for where nothing can be covered."""
    return tuple(file._replace(path=_moved(file.path, directory)) for file in OWN)


def variables(directory: str = DIRECTORY) -> dict[str, str]:
    """What names these files. The options for Java are to be joined to those that it may have already."""
    bundle, authority, store = (_moved(path, directory) for path in (BUNDLE, AUTHORITY, STORE))
    files = dict.fromkeys(WHOLE, bundle) | dict.fromkeys(ADDED, authority)
    return {**files, **SWITCHES, JAVA: f"-Djavax.net.ssl.trustStore={store}"}


def _moved(path: str, directory: str) -> str:
    return directory + path.removeprefix(DIRECTORY)
