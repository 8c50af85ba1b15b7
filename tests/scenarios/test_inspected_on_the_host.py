"""Requests that are looked into, of a command on the host itself: it trusts the gate, and holds no secret."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostkit import PYTHON
from launchkit import PEOPLE, Person, somebody
from servers import Answer, Authority, Request, Web

from launcher.backends.landlocked import examine
from launcher.backends.model import Fit

pytestmark = pytest.mark.scenario

BACKENDS = ("none", *(["landlock"] if isinstance(examine(), Fit) else []))
SECRET = f"value-{os.urandom(8).hex()}"
POLICY = """\
version: 1
hosts: {{api.test: "127.0.0.1:{port}"}}
personas:
  p:
    allow:
      - {{host: api.test, private: true, methods: [GET], secret: {{env: API_KEY, header: x-key}}}}
"""


def said_back(request: Request) -> Answer:
    return Answer(request.fields.get("x-key", "no key").encode())


@pytest.fixture(scope="module")
def looked_into(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Person, Web, Path]]:
    """Who runs the tests has the engine's packages."""
    authority = Authority(tmp_path_factory.mktemp("authority"), "api.test")
    web = Web(said_back, authority.context())
    with web.running(), somebody(PEOPLE[0]) as person:
        person.policy.write_text(POLICY.format(port=web.port))
        person.env["API_KEY"] = SECRET
        yield person, web, authority.file


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_is_looked_into_and_the_secret_put_in_outside(
    looked_into: tuple[Person, Web, Path], backend: str
) -> None:
    person, web, root = looked_into
    options = ("--backend", backend, "--upstream-ca", str(root))
    script = 'curl -sS -H "x-key: $API_KEY" https://api.test/; echo; echo "$API_KEY $SSL_CERT_FILE"'
    done = person.run("sh", "-c", script, options=options)
    answered, kept = done.stdout.decode().splitlines()
    assert [request.fields["x-key"] for request in web.seen] == [SECRET], done.stderr
    assert SECRET not in kept
    assert SECRET not in answered  # masked, should a server say it back
    assert not os.path.exists(kept.split()[1])
    web.seen.clear()
    done = person.run("curl", "-sS", "-X", "POST", "-d", "x", "https://api.test/", options=options)
    assert b"method_not_listed" in done.stdout
    assert web.seen == []
    assert person.records()[-1]["backend"] == backend


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name == "landlock"])
def test_what_vouches_for_hosts_can_be_read_and_not_changed(
    looked_into: tuple[Person, Web, Path], backend: str
) -> None:
    person, _, root = looked_into
    script = "import os; path = os.environ['SSL_CERT_FILE']; print(len(open(path).read()) > 1000); open(path, 'a')"
    done = person.run(PYTHON, "-c", script, options=("--backend", backend, "--upstream-ca", str(root)))
    assert done.stdout == b"True\n"
    assert b"PermissionError" in done.stderr
