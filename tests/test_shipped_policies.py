"""The personas and groups that ship: which hosts they reach, with which requests, and whose key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from egress import toolhosts
from egress.model import Host, Target
from egress.policy import Persona
from egress.policyfile import Document, parse_document
from egress.policylayers import bind
from egress.policyrules import TOOLS
from egress.policysources import load, locate
from egress.refusals import Reason
from egress.requestpolicy import Asked, decide_request, secrets_of
from egress.rules import Rule
from egress.toolhosts import ToolHost
from egress.vault import Vault

SHIPPED = Path(locate(environ={}).shipped)
MODEL = {"api.anthropic.com"}
GITHUB = {"github.com", "*.github.com"}
TOKEN = {"github.com", "api.github.com"}
READ = GITHUB | {"api.github.com"} | {f"{name}.githubusercontent.com" for name in ("raw", "objects", "release-assets")}
MORE = {"*.githubusercontent.com", "proxy.golang.org", "sum.golang.org"}
PERSONAS = {
    "navigator": MODEL,
    "philosopher": MODEL,
    "auditor": MODEL,
    "reviewer": MODEL | READ,
    "implementer": MODEL | GITHUB | TOKEN | MORE,
    "craftsman": MODEL | GITHUB | TOKEN | MORE,
}
KEYS = {"ANTHROPIC_API_KEY": "sk-real", "GH_TOKEN": "ghp-real"}


def persona(name: str, environ: Mapping[str, str] | None = None) -> Persona:
    """A persona as it is in force where these variables are set."""
    return Vault(environ or {}).settle(load(locate(environ={})), (name,)).personas[name]


def tools(_: str) -> tuple[ToolHost, ...]:
    return (ToolHost(Host("registry.example"), 443, True, True, "a test"),)


def documents() -> list[Document]:
    return [parse_document(path.read_text(), path.name) for path in sorted(SHIPPED.glob("*.yaml"))]


def grouped(*groups: str, environ: Mapping[str, str] | None = None) -> Persona:
    """Somebody who is allowed these groups and nothing else."""
    names = ", ".join(f'"@{group}"' for group in groups)
    mine = parse_document(f"version: 1\npersonas: {{me: {{allow: [{names}]}}}}", "mine.yaml")
    policy = bind([documents(), [mine]], tools).policy()
    return Vault(environ or {}).settle(policy, ("me",)).personas["me"]


def verdict(asker: Persona, request: str) -> str:
    """What comes of `METHOD https://host/path`: `allowed`, or why not."""
    method, url = request.split()
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    target = Target(Host(host), 443 if scheme == "https" else 80)
    decision = asker.decide(target)
    rules = asker.request_rules(target)
    if decision.allowed and rules:
        decision = decide_request(rules, Asked(method, f"/{path}"))
    return "allowed" if decision.allowed else decision.reason.value


def secrets(asker: Persona, host: str) -> set[str | None]:
    return {secret.env for secret in secrets_of(asker.request_rules(Target(Host(host), 443)))}


LOOKING = {"Read", "Glob", "Grep", "Bash(git log*)"}
MAKING = {"Read", "Write", "Edit", "Bash", "Glob", "Grep"}
NO_CHANGES = ("Write(*)", "Edit(*)", "NotebookEdit(*)")
TOOLS_OF = {
    "navigator": (LOOKING, NO_CHANGES),
    "philosopher": (LOOKING, NO_CHANGES),
    "auditor": (LOOKING, NO_CHANGES),
    "reviewer": (LOOKING | {"Bash(gh pr view*)", "Bash(gh issue list*)"}, NO_CHANGES),
    "implementer": (MAKING, ()),
    "craftsman": (MAKING, ()),
}


@pytest.mark.parametrize(("name", "allow", "deny"), [(name, *lists) for name, lists in TOOLS_OF.items()])
def test_a_shipped_persona_has_the_tools_of_its_work(name: str, allow: set[str], deny: tuple[str, ...]) -> None:
    tools = persona(name).tools
    assert allow <= set(tools.allow)
    assert tools.deny == deny
    if deny:
        assert {tool.partition("(")[0] for tool in tools.allow} == {"Read", "Glob", "Grep", "Bash"}
        assert "Bash" not in tools.allow  # only with what it may run


@pytest.mark.parametrize(("name", "hosts"), PERSONAS.items())
def test_a_shipped_persona_reaches_what_its_work_needs(name: str, hosts: set[str]) -> None:
    it = persona(name)
    assert {str(rule.pattern) for rule in it.allow} == hosts
    assert it.description
    assert all(str(rule).startswith("policies/groups.yaml:") for rule in it.allow)


@pytest.mark.parametrize("name", PERSONAS)
def test_no_persona_passes_a_credential_in(name: str) -> None:
    assert persona(name, KEYS).env == ()


@pytest.mark.parametrize("name", PERSONAS)
def test_without_keys_only_the_reviewers_requests_are_looked_at(name: str) -> None:
    inspected = {str(pattern) for pattern in persona(name).inspected}
    assert inspected == (READ if name == "reviewer" else set())


@pytest.mark.parametrize("name", PERSONAS)
def test_keys_that_are_set_are_put_in_for_their_hosts_and_no_others(name: str) -> None:
    it = persona(name, KEYS)
    assert secrets(it, "api.anthropic.com") == {"ANTHROPIC_API_KEY"}
    token = {"GH_TOKEN"} if "github.com" in PERSONAS[name] else set()
    assert secrets(it, "github.com") == secrets(it, "api.github.com") == token
    for rule in it.allow:
        brought = rule.requests and rule.requests.secret
        assert not brought or (not rule.pattern.below and rule.ports == {443})


@pytest.mark.parametrize(
    ("variable", "header", "form"),
    [
        ("ANTHROPIC_API_KEY", "x-api-key", "{}"),
        ("ANTHROPIC_AUTH_TOKEN", "authorization", "Bearer {}"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "authorization", "Bearer {}"),
    ],
)
def test_each_way_to_authenticate_with_the_model_has_its_secret(variable: str, header: str, form: str) -> None:
    rules = persona("navigator", {variable: "real"}).request_rules(Target(Host("api.anthropic.com"), 443))
    (secret,) = secrets_of(rules)
    assert (secret.env, secret.header, secret.format) == (variable, header, form)
    assert verdict(persona("navigator", {variable: "real"}), "POST https://api.anthropic.com/v1/anything") == "allowed"


REPOSITORY = "https://github.com/acme/x"
API = "https://api.github.com"
READS = [
    f"GET {REPOSITORY}",
    f"HEAD {REPOSITORY}/pull/1",
    f"GET {REPOSITORY}/info/refs?service=git-upload-pack",
    f"GET {REPOSITORY}.git/info/refs?service=git-upload-pack",
    f"POST {REPOSITORY}/git-upload-pack",
    f"POST {REPOSITORY}.git/git-upload-pack",
    f"GET {API}/repos/acme/x/pulls/1/comments",
    "GET https://codeload.github.com/acme/x/tar.gz/main",
    "GET https://gist.github.com/acme/0123",
    "GET https://raw.githubusercontent.com/acme/x/main/README.md",
    "GET https://objects.githubusercontent.com/asset",
    "GET https://release-assets.githubusercontent.com/asset",
]
WRITES = [
    f"POST {REPOSITORY}/git-receive-pack",
    f"POST {REPOSITORY}.git/git-receive-pack",
    f"POST {API}/repos/acme/x/issues/1/comments",
    f"POST {API}/gists",
    f"PATCH {API}/repos/acme/x/issues/1",
    f"PUT {API}/repos/acme/x/contents/file",
    f"DELETE {API}/repos/acme/x",
    f"POST {API}/graphql",
    "POST https://uploads.github.com/repos/acme/x/releases/1/assets?name=a",
]
NEVER = [
    "POST https://gist.github.com/",
    "POST https://gist.github.com/0123.git/git-receive-pack",
    "PUT https://raw.githubusercontent.com/acme/x/main/README.md",
    f"POST {REPOSITORY}/issues",
    f"PUT {REPOSITORY}/git-upload-pack",
    "POST https://github.com/session",
    f"POST {REPOSITORY}/y/git-upload-pack",
    f"POST {REPOSITORY}/../y/git-upload-pack",
    f"POST {REPOSITORY}/git-receive-pack/../git-upload-pack",
    f"POST {REPOSITORY}%2Fgit-receive-pack/git-upload-pack",
    f"POST {REPOSITORY}/git-receive-pack;/git-upload-pack",
]


@pytest.mark.parametrize("request_", READS)
def test_reading_of_github_is_for_both_groups(request_: str) -> None:
    assert verdict(grouped("github-read"), request_) == "allowed"
    assert verdict(grouped("github-write"), request_) == "allowed"
    assert verdict(persona("reviewer", KEYS), request_) == "allowed"


@pytest.mark.parametrize("request_", WRITES)
def test_writing_to_github_is_for_one(request_: str) -> None:
    refusals = {Reason.METHOD_NOT_LISTED, Reason.PATH_NOT_LISTED}
    assert verdict(grouped("github-read"), request_) in refusals
    assert verdict(persona("reviewer", KEYS), request_) in refusals
    assert verdict(grouped("github-write"), request_) == "allowed"
    assert verdict(persona("implementer", KEYS), request_) == "allowed"


@pytest.mark.parametrize("request_", NEVER)
def test_what_neither_group_needs_is_refused(request_: str) -> None:
    refusals = {Reason.METHOD_NOT_LISTED, Reason.PATH_NOT_LISTED, Reason.AMBIGUOUS_PATH}
    assert verdict(grouped("github-read", "github-token", environ=KEYS), request_) in refusals
    assert verdict(grouped("github-write", "github-token", environ=KEYS), request_) in refusals


def test_the_words_about_named_repositories_are_true() -> None:
    text = (SHIPPED / "groups.yaml").read_text()
    comment = re.search(r"#   acme-read:\n((?:  #     - .*\n)+)", text)
    assert comment
    lines = [line.split("- ", 1)[1] for line in comment[1].splitlines()]
    mine = parse_document(f"version: 1\npersonas: {{me: {{allow: [{', '.join(lines)}]}}}}", "mine.yaml")
    me = bind([[mine]]).policy().personas["me"]
    for request in READS[:7]:
        assert verdict(me, request) == "allowed", request
    for request in [*(each.replace("acme/x", "acme/y") for each in READS[:7]), *WRITES, *NEVER]:
        assert verdict(me, request) != "allowed", request


CLAUDE = [
    "HEAD https://api.anthropic.com/",
    "GET https://api.anthropic.com/api/hello",
    "GET https://api.anthropic.com/api/claude_cli/bootstrap?model=x",
    "GET https://api.anthropic.com/v1/models?limit=1000",
    "GET https://api.anthropic.com/v1/models/some-model",
    "POST https://api.anthropic.com/v1/messages?beta=true",
    "POST https://api.anthropic.com/v1/messages/count_tokens?beta=true",
]
NOT_CLAUDE = [
    "POST https://api.anthropic.com/v1/files?beta=true",
    "GET https://api.anthropic.com/v1/files",
    "GET https://api.anthropic.com/v1/files/file_1/content",
    "POST https://api.anthropic.com/v1/messages/batches",
    "POST https://api.anthropic.com/v1/skills?beta=true",
    "POST https://api.anthropic.com/api/oauth/file_upload",
    "POST https://api.anthropic.com/api/claude_cli_feedback",
    "POST https://api.anthropic.com/api/event_logging/v2/batch",
    "PATCH https://api.anthropic.com/api/oauth/account/settings",
    "POST https://api.anthropic.com/v1/messages/../files",
    "POST https://api.anthropic.com/v1//messages",
    "GET https://console.anthropic.com/",
]


@pytest.mark.parametrize("environ", [{}, KEYS])
def test_messages_are_what_an_agent_needs_and_files_are_not(environ: dict[str, str]) -> None:
    it = grouped("anthropic-messages", environ=environ)
    assert {request: verdict(it, request) for request in CLAUDE} == dict.fromkeys(CLAUDE, "allowed")
    assert [request for request in NOT_CLAUDE if verdict(it, request) == "allowed"] == []
    assert secrets(it, "api.anthropic.com") == ({"ANTHROPIC_API_KEY"} if environ else set())


@pytest.mark.parametrize(
    ("group", "hosts"),
    [
        ("go-read", ["proxy.golang.org", "sum.golang.org"]),
        ("crates-read", ["index.crates.io", "static.crates.io", "crates.io"]),
        ("npm", ["registry.example"]),
        ("pip", ["registry.example"]),
        ("apt", ["registry.example"]),
    ],
)
def test_packages_are_fetched_and_not_published(group: str, hosts: list[str]) -> None:
    it = grouped(group)
    assert [str(rule.pattern) for rule in it.allow] == hosts
    for host in hosts:
        for method in ("GET", "HEAD"):
            assert verdict(it, f"{method} https://{host}/api/v1/crates/x/download") == "allowed"
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert verdict(it, f"{method} https://{host}/api/v1/crates/new") == Reason.METHOD_NOT_LISTED


def test_a_tools_group_stands_for_what_is_configured_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('version: 1\npersonas: {me: {allow: ["@npm"]}}')
    monkeypatch.setenv("npm_config_registry", "http://me:hunter2@registry.example:4873/")
    monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "none"))
    (rule, *_) = load(locate([str(file)], environ={})).personas["me"].allow
    assert (str(rule.pattern), rule.ports, rule.private) == ("registry.example", {4873}, True)
    assert not rule.expects_tls(4873)
    assert rule.requests is not None
    assert rule.requests.methods == {"GET", "HEAD"}


def test_the_language_and_the_readers_know_the_same_tools() -> None:
    assert TOOLS == toolhosts.TOOLS


def test_every_shipped_entry_has_its_reason_beside_it() -> None:
    for path in SHIPPED.glob("*.yaml"):
        for line in path.read_text().splitlines():
            if line.strip().startswith("- ") and '"@anthropic"' not in line:
                assert "#" in line, line


def test_no_entry_of_a_group_says_what_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of one group that are alike would be a slip of the pen."""
    for document in documents():
        for group in document.groups.values():
            alike = [entry._replace(source=None) for entry in group.entries if isinstance(entry, Rule)]  # type: ignore[arg-type]
            assert len(alike) == len(set(alike)), group.name


def test_no_public_registry_is_named_anywhere(tmp_path: Path) -> None:
    """What the tools themselves say stands in no file of ours."""
    machine = toolhosts.Machine({"PATH": "/usr/local/bin:/usr/bin:/bin"}, root=str(tmp_path))
    found = [it for tool in ("npm", "pip") for it in toolhosts.expand(tool, machine)]
    hosts = {it.host for it in found if "default" in it.source and not it.host[-1].isdigit()}
    assert hosts
    root = SHIPPED.parent
    tops = [root / name for name in ("egress", "launcher", "policies", "docs", "scripts", "tests")]
    files = [*root.glob("*.md"), *(path for top in tops for path in top.rglob("*") if path.is_file())]
    texts = {path: path.read_text(errors="replace") for path in files if "__pycache__" not in path.parts}
    assert [(path, host) for path, text in texts.items() for host in hosts if host in text] == []
