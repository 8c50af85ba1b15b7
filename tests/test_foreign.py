"""Policy files of other tools: what each of them says holds here, or is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policykit import hosts

from egress.foreign import name_of, translate
from egress.foreign.recognise import Format, recognise
from egress.foreign.render import render
from egress.foreign.translation import Severity, Translation
from egress.model import Host, Target
from egress.policy import Persona
from egress.policyedit import _bare
from egress.policyfile import Document, parse_document, read_root
from egress.policylayers import bind
from egress.problems import PolicyError

HERE = Path(__file__).parent / "foreign"
EXAMPLES = sorted(path.name for path in HERE.iterdir())


def example(name: str) -> Document:
    return parse_document((HERE / name).read_text(), name)


def persona(document: Document, name: str) -> Persona:
    return bind([[document]]).policy().personas[name]


def claude(**blocks: object) -> Document:
    return parse_document(json.dumps(blocks, indent=1), "settings.json")


def sandbox(**settings: object) -> Document:
    return claude(sandbox={"enabled": True, **settings})


def srt(**settings: object) -> Document:
    return parse_document(json.dumps({"network": {"allowedDomains": []}, **settings}), "srt.json")


def remarks(document: Document, severity: Severity = Severity.WARNING) -> list[str]:
    return [remark.message for remark in document.remarks if remark.severity is severity]


def errors(text: str, file: str = "settings.json") -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse_document(text, file)
    return [str(problem) for problem in caught.value.problems]


def reaches(who: Persona, host: str, port: int = 443) -> bool:
    return who.decide(Target(Host(host), port)).allowed


# --- whose file it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("wave.yaml", Format.WAVE),
        ("wave-personas.yaml", Format.WAVE),
        ("wave-runtime.yaml", Format.WAVE),
        ("wave-docker.yaml", Format.WAVE),
        ("claude-step.json", Format.CLAUDE),
        ("claude-denials.json", Format.CLAUDE),
        ("claude-excluded.json", Format.CLAUDE),
        ("claude-sdk.json", Format.CLAUDE),
        ("srt-settings.json", Format.RUNTIME),
        ("bwrap-config.json", Format.WORKER),
        ("seccomp.json", Format.CALL_FILTER),
        ("workflow.json", Format.WORKFLOW),
    ],
)
def test_a_file_is_known_by_what_is_in_it(file: str, kind: Format) -> None:
    assert recognise(read_root((HERE / file).read_text(), "anything")) is kind


def test_a_policy_of_ours_is_never_taken_for_another() -> None:
    text = "version: 1\npersonas: {p: {allow: [a.example], sandbox: {backend: bwrap}}}\n"
    assert translate(read_root(text, "f"), "f") is None
    assert hosts(persona(parse_document(text, "f"), "p")) == ["a.example"]


def test_a_policy_of_ours_in_braces_is_still_yaml() -> None:
    document = parse_document('{"version": 1, personas: {p: {allow: [a.example],},},} # done', "f")
    assert hosts(persona(document, "p")) == ["a.example"]


def test_a_comment_in_json_is_told_as_one() -> None:
    text = '{\n  "defaultConfig": {\n    "maxSandboxStartupMs": 3000,\n    // ... rest of config\n  }\n}\n'
    assert errors(text, "c.json") == [
        "c.json:4: not JSON: expected a key in quotes, not '// ... rest of config'; comments are not JSON"
    ]


def test_a_policy_without_version_is_still_asked_for_it() -> None:
    assert errors("personas: {p: {allow: [a.example]}}", "f") == ["f:1: no version; a policy begins with `version: 1`"]


def test_a_persona_without_a_name_is_called_after_its_file() -> None:
    assert [name_of(file) for file in ("/x/.claude/settings.json", "~/.srt-settings.json", "a.local.json", "ö")] == [
        "settings",
        "srt-settings",
        "a-local",
        "imported",
    ]


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_loads_as_it_stands(file: str) -> None:
    assert example(file).personas


# --- Wave ------------------------------------------------------------------------------------------------


def test_the_navigator_reaches_the_model_and_not_github() -> None:
    navigator = persona(example("wave.yaml"), "navigator")
    assert reaches(navigator, "api.anthropic.com")
    assert not reaches(navigator, "github.com")


def test_the_implementer_reaches_github_by_the_line_that_says_so() -> None:
    implementer = persona(example("wave.yaml"), "implementer")
    assert reaches(implementer, "codeload.github.com")
    assert not reaches(implementer, "raw.githubusercontent.com")  # the default domains are overridden
    decision = implementer.decide(Target(Host("proxy.golang.org"), 443))
    assert str(decision.rule) == "wave.yaml:42 proxy.golang.org"


def test_a_persona_without_domains_has_the_default_ones_and_an_empty_list_is_nothing() -> None:
    text = """
runtime: {sandbox: {enabled: true, default_allowed_domains: [a.example]}}
personas: {one: {adapter: claude}, two: {adapter: claude, sandbox: {allowed_domains: []}}}
"""
    document = parse_document(text, "wave.yaml")
    assert hosts(persona(document, "one")) == ["a.example"]
    assert hosts(persona(document, "two")) == []


def test_keys_of_a_wave_persona_stay_outside_and_go_where_they_are_needed() -> None:
    document = example("wave.yaml")
    for name, expected in (("navigator", ["x-api-key"]), ("implementer", ["x-api-key", *["authorization"] * 2])):
        who = persona(document, name)
        secrets = [rule.requests.secret for rule in who.allow if rule.requests and rule.requests.secret]
        assert [secret.header for secret in secrets] == expected
        assert all(secret.optional for secret in secrets)
        assert who.env == ("TERM",)


def test_other_credentials_are_passed_in_with_a_warning() -> None:
    text = "runtime: {sandbox: {env_passthrough: [AWS_SECRET_ACCESS_KEY, LANG]}}"
    document = parse_document(text, "wave.yaml")
    assert persona(document, "wave").env == ("AWS_SECRET_ACCESS_KEY", "LANG")
    assert [said.split(";")[0] for said in remarks(document)] == ["AWS_SECRET_ACCESS_KEY can be read inside"]


def test_what_wave_denies_to_read_is_hidden_and_its_tools_are_carried() -> None:
    navigator = persona(example("wave.yaml"), "navigator")
    assert navigator.filesystem.hide == ("~/.ssh", "~/.aws", "~/.gnupg")
    assert navigator.tools.allow == ("Read", "Glob", "Grep", "Bash(git log*)")
    assert navigator.tools.deny == ("Write(*)", "Edit(*)")


def test_the_docker_backend_comes_with_its_image() -> None:
    walls = persona(example("wave-docker.yaml"), "wave-docker").walls
    assert (walls.backend, walls.image) == ("docker", "ubuntu:24.04")


def test_switching_the_sandbox_off_elsewhere_switches_nothing_off_here() -> None:
    text = "runtime: {sandbox: {enabled: false, backend: none, allow_unsandboxed_commands: true}}"
    document = parse_document(text, "wave.yaml")
    assert persona(document, "wave").walls.backend is None
    assert len(remarks(document)) == 3


def test_an_unknown_backend_is_an_error() -> None:
    (said,) = errors("runtime: {sandbox: {backend: chroot}}", "wave.yaml")
    assert said.startswith("wave.yaml:1: runtime.sandbox.backend is 'chroot', expected one of docker,")


def test_what_is_waves_own_is_said_once() -> None:
    text = "kind: WaveManifest\nadapters: {}\nruntime: {workspace_root: x, sandbox: {enabled: true}}\n"
    notes = remarks(parse_document(text, "wave.yaml"), Severity.NOTE)
    assert notes == ["what Wave keeps for itself here, such as 'kind', is no part of a policy"]


# --- Claude Code -----------------------------------------------------------------------------------------


def test_the_generated_settings_allow_what_they_list() -> None:
    step = persona(example("claude-step.json"), "claude-step")
    assert reaches(step, "api.github.com")
    assert reaches(step, "sum.golang.org")
    assert not reaches(step, "example.com")
    assert step.tools.allow == ("Read", "Write", "Edit", "Bash", "Glob", "Grep")
    assert str(step.decide(Target(Host("github.com"), 443)).rule) == "claude-step.json:14 github.com"


def test_denied_paths_are_hidden_and_protected() -> None:
    document = example("claude-denials.json")
    filesystem = persona(document, "claude-denials").filesystem
    assert filesystem.hide == ("~/.ssh", "~/.aws", "~/.gnupg", "~/.config/gh")
    assert filesystem.protect == (".env", "*.key", "*.pem")
    assert filesystem.write == ()  # the project is writable, and /tmp is private
    assert remarks(document, Severity.NOTE) == ["/tmp is the sandbox's own: what is written there ends with it"]


def test_commands_that_would_leave_the_sandbox_are_told_of() -> None:
    document = example("claude-excluded.json")
    said = " ".join(remarks(document))
    for word in ("excludedCommands", "allowUnsandboxedCommands", "--upstream http://127.0.0.1:8080", "SOCKS"):
        assert word in said
    assert persona(document, "claude-excluded").walls.sockets == ("~/.ssh/agent",)


@pytest.mark.parametrize(
    "settings",
    [
        {"enabled": False},
        {"allowUnsandboxedCommands": True},
        {"enableWeakerNestedSandbox": True},
        {"network": {"allowAllUnixSockets": True}},
        {"network": {"httpProxyPort": 8080}},
        {"filesystem": {"disabled": True}},
        {"filesystem": {"allowGitConfig": True}},
        {"credentials": {"awsPairs": [{}]}},
    ],
)
def test_what_would_weaken_a_wall_is_not_carried_and_told(settings: dict[str, object]) -> None:
    plain = persona(sandbox(), "settings")
    weak = sandbox(**settings)
    assert len(remarks(weak)) == len(remarks(sandbox())) + 1
    assert persona(weak, "settings").walls == plain.walls
    assert persona(weak, "settings").filesystem == plain.filesystem


@pytest.mark.parametrize("domain", ["*", "*.com", "*.github.io", "https://x.example/", "a b", "@anthropic", "ex*.org"])
def test_a_domain_that_is_no_host_is_an_error_with_its_line(domain: str) -> None:
    text = json.dumps({"sandbox": {"enabled": True, "network": {"allowedDomains": ["a.example", domain]}}}, indent=0)
    (said,) = errors(text)
    assert said.startswith("settings.json:7: ")


def test_local_and_private_hosts_are_left_out_with_a_warning() -> None:
    document = sandbox(network={"allowedDomains": ["localhost:3000", "127.0.0.1", "10.0.0.7", "169.254.169.254"]})
    assert hosts(persona(document, "settings")) == []
    said = remarks(document)
    assert "--host-port" in said[0]
    assert "--host-port" in said[1]
    assert "private: true" in said[2]
    assert "never reached" in said[3]


def test_denied_domains_win() -> None:
    network = {"allowedDomains": ["*.example.com"], "deniedDomains": ["bad.example.com"]}
    who = persona(sandbox(network=network), "settings")
    assert reaches(who, "good.example.com")
    assert not reaches(who, "bad.example.com")


def test_permission_rules_reach_the_walls_where_they_are_exact() -> None:
    permissions = {
        "allow": ["WebFetch(domain:docs.example)", "Edit(~/notes/**)", "Edit(src/**)", "Bash(npm run *)"],
        "deny": [
            *("WebFetch(domain:evil.example)", "Read(./secrets/**)", "Read(//srv/keys)", "Read(/private.txt)"),
            *("Edit(*.lock)", "Edit(/deploy/**)", "Read", "Bash(curl *)"),
        ],
        "additionalDirectories": ["~/shared"],
    }
    who = persona(claude(permissions=permissions), "settings")
    assert hosts(who) == ["docs.example"]
    assert [str(rule.pattern) for rule in who.deny] == ["evil.example"]
    assert who.filesystem.hide == ("secrets", "/srv/keys", "private.txt")
    assert who.filesystem.protect == ("*.lock", "deploy")
    assert who.filesystem.write == ("~/notes", "~/shared")
    assert who.tools.deny == tuple(permissions["deny"])


def test_permission_rules_that_are_no_walls_are_told() -> None:
    document = claude(permissions={"deny": ["Read(.env)", "Read(**/*.pem)", "Edit(src/**/x)"], "ask": ["Bash"]})
    said = remarks(document)
    assert "further down can be read" in said[0]
    assert said[1].startswith("'Read(**/*.pem)' holds for the agent's own tools alone")
    assert said[2].startswith("'Edit(src/**/x)' holds for the agent's own tools alone")
    assert said[3].startswith("permissions.ask")
    assert persona(document, "settings").filesystem.hide == (".env",)


def test_a_pattern_that_cannot_be_hidden_is_an_error() -> None:
    text = json.dumps({"sandbox": {"filesystem": {"denyRead": ["~/.config/*/token"]}}})
    assert errors(text) == [
        "settings.json:1: '~/.config/*/token' cannot be hidden: it is a pattern; name the files or their directory"
    ]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        *(("denyRead", path) for path in ("/", ".", "../up")),
        *(("denyWrite", path) for path in (".", "a/**/b", "/etc/*", "~you/x")),
        *(("allowWrite", path) for path in ("/", "~")),
    ],
)
def test_a_path_that_cannot_be_enforced_is_an_error(key: str, path: str) -> None:
    (said,) = errors(json.dumps({"sandbox": {"filesystem": {key: [path]}}}))
    assert repr(path) in said


def test_a_key_that_is_not_known_is_told() -> None:
    document = sandbox(network={"allowedDomain": ["a.example"]})
    assert "'sandbox.network.allowedDomain' is not known here, so nothing was taken from it" in remarks(document)


@pytest.mark.parametrize("settings", [{"enabled": "yes"}, {"network": {"allowedDomains": "a.example"}}, {"network": 1}])
def test_a_value_of_the_wrong_kind_is_an_error(settings: dict[str, object]) -> None:
    assert len(errors(json.dumps({"sandbox": {"excludedCommands": [], **settings}}))) == 1


def test_an_agent_that_could_not_reach_its_model_is_told_of() -> None:
    assert "api.anthropic.com is not allowed" in remarks(sandbox())[-1]
    assert remarks(sandbox(network={"allowedDomains": ["*.anthropic.com"]})) == []


# --- sandbox-runtime -------------------------------------------------------------------------------------


def test_settings_of_sandbox_runtime_are_carried() -> None:
    who = persona(example("srt-settings.json"), "srt-settings")
    assert hosts(who) == ["github.com", "*.github.com", "api.example.com"]
    assert reaches(who, "api.example.com", 8443)
    assert not reaches(who, "api.example.com")
    assert not reaches(who, "gist.github.com")
    assert who.filesystem.hide == ("~/.ssh", "/srv/private")
    assert who.filesystem.read == ("~/.cache/go",)
    assert who.filesystem.write == ("~/.npm",)
    assert who.filesystem.protect == (".env", "config/production.json", "*.pem")


def test_the_socket_of_a_container_engine_is_not_let_in_by_another_tools_file() -> None:
    document = example("srt-settings.json")
    assert persona(document, "srt-settings").walls.sockets == ("~/.agent/sock",)
    assert "through it a program has the whole host" in remarks(document)[0]


def test_a_project_that_was_to_be_read_only_is_told_of() -> None:
    assert "does not list '.'" in remarks(srt(filesystem={"allowWrite": ["src"]}))[0]
    assert remarks(srt(filesystem={"allowWrite": ["./"]})) == []


def test_masked_credentials_become_secrets_where_their_header_is_known() -> None:
    variables = [{"name": "GH_TOKEN", "mode": "mask"}, {"name": "X", "mode": "mask"}, {"name": "Y", "mode": "deny"}]
    files = [{"path": "~/.netrc", "mode": "mask"}, {"path": "~/.k", "mode": "deny"}]
    credentials = {"envVars": variables, "files": files}
    text = json.dumps({"credentials": credentials, "network": {"allowedDomains": ["github.com"]}})
    document = parse_document(text, "srt.json")
    who = persona(document, "srt")
    assert [rule.requests.secret.env for rule in who.allow if rule.requests and rule.requests.secret] == ["GH_TOKEN"]
    assert who.env == ()
    assert who.filesystem.hide == ("~/.netrc", "~/.k")
    assert len(remarks(document)) == 2


# --- a worker's configuration, and its seccomp profile ---------------------------------------------------


def test_a_worker_comes_to_a_persona_for_each_profile() -> None:
    document = example("bwrap-config.json")
    assert list(document.personas) == ["default", "development", "production"]
    production = persona(document, "production")
    assert (production.walls.timeout, production.walls.pids) == ("300", "50")
    assert "ptrace" in production.walls.deny_calls
    assert "mount" in persona(document, "development").walls.deny_calls
    assert "ptrace" not in persona(document, "development").walls.deny_calls


def test_all_of_the_internet_is_not_granted_but_told() -> None:
    document = example("bwrap-config.json")
    assert hosts(persona(document, "default")) == []
    assert "all of the internet, and none of it is allowed; list hosts" in remarks(document)[0]


@pytest.mark.parametrize(("given", "seconds"), [(1500, "1.5"), (300000, "300"), (20, "0.02")])
def test_milliseconds_become_seconds(given: int, seconds: str) -> None:
    document = parse_document(json.dumps({"defaultConfig": {"timeoutMs": given}}), "c.json")
    assert persona(document, "default").walls.timeout == seconds


def test_an_allowlist_of_calls_is_carried() -> None:
    walls = persona(example("seccomp.json"), "seccomp").walls
    assert walls.allow_calls is not None
    assert len(walls.allow_calls) == 53
    assert {"openat", "execve", "epoll_ctl"} <= set(walls.allow_calls)


def test_a_denylist_of_calls_is_carried() -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_ERRNO"}, {"name": "bpf", "action": "SCMP_ACT_KILL"}],
    }
    walls = persona(parse_document(json.dumps(profile), "p.json"), "p").walls
    assert (walls.deny_calls, walls.allow_calls) == (("mount", "bpf"), None)


@pytest.mark.parametrize(
    "rule",
    [
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0}]},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["clone"], "action": "SCMP_ACT_NOTIFY"},
    ],
)
def test_a_profile_that_says_more_than_names_is_refused(rule: dict[str, object]) -> None:
    rules = [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}, rule]
    assert len(errors(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}))) == 1


def test_a_profile_that_allows_nothing_is_refused() -> None:
    assert len(errors('{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}')) == 1


# --- a workflow engine -----------------------------------------------------------------------------------


def test_a_workflow_engine_comes_to_two_personas_that_reach_nothing() -> None:
    document = example("workflow.json")
    assert list(document.personas) == ["claude_code", "shell"]
    assert persona(document, "shell").walls.fallback == "warn"
    assert hosts(persona(document, "shell")) == hosts(persona(document, "claude_code")) == []


def test_a_shell_without_isolation_still_reaches_nothing() -> None:
    text = '{"security": {"sandbox": {"shell": {"network_isolation": false}}}}'
    assert "all of the internet" in remarks(parse_document(text, "s.json"))[0]


# --- written out -----------------------------------------------------------------------------------------


def made(text: str, file: str) -> Translation:
    found = translate(read_root(text, file), file)
    assert found is not None
    return found


@pytest.mark.parametrize("file", EXAMPLES)
def test_what_is_written_out_reads_back_as_the_same_personas(file: str) -> None:
    text = (HERE / file).read_text()
    again = parse_document(render([made(text, file)]), file)
    assert _bare(dict(again.personas)) == _bare(dict(example(file).personas))


@pytest.mark.parametrize("file", EXAMPLES)
def test_every_remark_is_a_comment_in_what_is_written_out(file: str) -> None:
    translation = made((HERE / file).read_text(), file)
    written = render([translation])
    for remark in translation.remarks:
        assert f"# {remark.source} {remark.severity}: {remark.message}" in written


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PATHS = st.lists(WORDS.map(lambda text: f"~/{text}"), max_size=3)


@given(st.lists(WORDS, max_size=4), PATHS, PATHS, st.lists(st.sampled_from(["a.example", "*.b.example:8443"])))
def test_whatever_words_a_file_has_they_read_back_as_they_were(
    tools: list[str], hidden: list[str], written: list[str], domains: list[str]
) -> None:
    settings = {
        "permissions": {"allow": tools},
        "sandbox": {
            "filesystem": {"denyRead": hidden, "allowWrite": written},
            "network": {"allowedDomains": domains},
        },
    }
    text = json.dumps(settings)
    try:
        document = parse_document(text, "settings.json")
    except PolicyError:
        return
    again = parse_document(render([made(text, "settings.json")]), "settings.json")
    assert _bare(dict(again.personas)) == _bare(dict(document.personas))


@given(st.recursive(WORDS | st.booleans() | st.none() | st.integers(), lambda inner: st.lists(inner, max_size=3)))
def test_no_value_of_a_setting_breaks_the_reader(value: object) -> None:
    for block in ({"network": {"allowedDomains": value}}, {"filesystem": {"denyRead": value}}, {"enabled": value}):
        text = json.dumps({"sandbox": {"excludedCommands": [], **block}, "permissions": {"deny": value}})
        try:
            document = parse_document(text, "settings.json")
        except PolicyError:
            continue
        assert list(document.personas) == ["settings"]
        assert _bare(dict(parse_document(render([made(text, "settings.json")]), "f").personas)) == _bare(
            dict(document.personas)
        )
