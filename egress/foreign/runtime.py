"""sandbox-runtime's settings (`srt`), and what Claude Code has of them in its `sandbox` block.

The rows are those of sandbox-runtime's own schema. What opens a wall without saying how far is not carried but
told: nothing here can be asked to be weaker than it is.
"""

from __future__ import annotations

from egress.foreign import hosts, paths
from egress.foreign.settings import Setting, Table, Taker, each, nothing, switch, take, told, under
from egress.foreign.translation import Draft, Severity, Translation, document
from egress.foreign.variables import PLACES, pass_in
from egress.policytree import Items, Node, Pairs, Word

_NOTE, _WARNING = Severity.NOTE, Severity.WARNING
_ELSEWHERE = (_NOTE, "it is about another system than Linux")


def _unread(sentence: str) -> Taker:
    return told(_WARNING, sentence)


def _proxy(draft: Draft, setting: Setting) -> None:
    further = f"--upstream http://127.0.0.1:{setting.text} goes out through that one" if "http" in setting.path else ""
    sentence = f"the gate is the proxy here; {further or 'it goes out through no SOCKS proxy'}"
    told(_WARNING, sentence)(draft, setting)


NETWORK: Table = {
    "network.allowedDomains": hosts.allow,
    "network.deniedDomains": hosts.deny,
    "network.deniedDomainReasons": told(_NOTE, "a refusal here gives its own reason"),
    "network.strictAllowlist": switch(false=(_NOTE, "nobody is asked about other hosts unless --ask is given")),
    "network.allowManagedDomainsOnly": nothing,
    "network.deniedResolvedAddresses": _unread(
        "names lead to public addresses only, unless a rule says `private: true`; other ranges cannot be listed"
    ),
    "network.allowUnixSockets": each(paths.socket),
    "network.allowAllUnixSockets": switch(true=(_WARNING, "sockets of the host are let in one by one; list them")),
    "network.allowLocalBinding": switch(
        false=(_NOTE, "servers inside are reached from inside alone, unless --publish")
    ),
    "network.allowMachLookup": told(*_ELSEWHERE),
    "network.httpProxyPort": _proxy,
    "network.socksProxyPort": _proxy,
    "network.mitmProxy": _unread("no other proxy looks into what is sent; write rules with `methods:` and `paths:`"),
    "network.parentProxy": _unread("to go out through another proxy, give --upstream URL"),
    "network.tlsTerminate": told(_NOTE, "TLS is opened for hosts whose rules look at requests, and for no other"),
    "network.filterRequest": _unread("write rules with `methods:` and `paths:`"),
}
FILESYSTEM: Table = {
    "filesystem.disabled": switch(true=(_WARNING, "the file system stays closed; name what is needed in allowWrite")),
    "filesystem.denyRead": each(paths.hide),
    "filesystem.allowRead": each(paths.read),
    "filesystem.allowWrite": each(paths.write),
    "filesystem.denyWrite": each(paths.protect),
    "filesystem.allowManagedReadPathsOnly": nothing,
    "filesystem.allowGitConfig": switch(
        true=(_WARNING, ".git/config stays protected: it names programs that git runs")
    ),
}


def _credential_files(draft: Draft, setting: Setting) -> None:
    for item in setting.value.items if isinstance(setting.value, Items) else ():
        path, mode = _field(item, "path"), _field(item, "mode")
        if path is None:
            draft.say(Severity.ERROR, item.source, "an entry of credentials.files has a path and a mode")
            continue
        paths.hide(draft, path)
        if mode is None or mode.text != "deny":
            paths.regret(draft, path, "is hidden, and not put into requests; write a rule with `secret: {file: PATH}`")


def _credential_variables(draft: Draft, setting: Setting) -> None:
    for item in setting.value.items if isinstance(setting.value, Items) else ():
        name, mode = _field(item, "name"), _field(item, "mode")
        if name is None:
            draft.say(Severity.ERROR, item.source, "an entry of credentials.envVars has a name and a mode")
        elif mode is not None and mode.text == "deny":
            continue  # no variable goes in that is not listed
        elif name.text in PLACES:
            pass_in(draft, [name])
        else:
            paths.regret(
                draft, name, "is not passed in; to put it into requests, write a rule with `secret: {env: NAME}`"
            )


def _field(item: Node, name: str) -> Word | None:
    found = under(item, name)
    return found if isinstance(found, Word) else None


WALLS: Table = {
    "credentials.files": _credential_files,
    "credentials.envVars": _credential_variables,
    "credentials.awsPairs": _unread("requests are not signed again here"),
    "credentials.sigv4": _unread("requests are not signed again here"),
    "credentials.allowPlaintextInject": switch(true=(_WARNING, "a secret is put in where there is TLS")),
    "ignoreViolations": told(_NOTE, "what is refused is always in the log; --quiet says nothing of it"),
    "enableWeakerNestedSandbox": switch(
        true=(_WARNING, "no weaker sandbox is made; `egress doctor` says what this machine can do")
    ),
    "enableWeakerNetworkIsolation": switch(true=_ELSEWHERE),
    "allowAppleEvents": switch(true=_ELSEWHERE),
    "allowPty": switch(),
    "windows": told(*_ELSEWHERE),
    "ripgrep": told(_NOTE, "files are looked for without it"),
    "mandatoryDenySearchDepth": told(_NOTE, "protected names are looked for as deep as the project is"),
    "seccomp": told(_NOTE, "the filter is chosen with --seccomp"),
    "bwrapPath": told(_NOTE, "bwrap is taken from PATH"),
    "socatPath": told(_NOTE, "socat is not needed"),
    "javaAgentJarPath": told(_NOTE, "Java needs no agent to be caught"),
    "git": _unread("repositories of others are not made safe; git config --global safe.directory does that"),
}
TABLE: Table = {**NETWORK, **FILESYSTEM, **WALLS}


def translate(root: Pairs, name: str) -> Translation:
    draft = Draft(name, root.source, [])
    take(draft, _secrets_last(root), TABLE)
    _about_the_project(draft, root)
    return Translation("sandbox-runtime", document([draft], root.source), tuple(draft.remarks))


def _secrets_last(root: Pairs) -> Pairs:
    """A key goes to hosts that are allowed, so these are read before it."""
    return Pairs(sorted(root.pairs, key=lambda pair: pair[0].text == "credentials"), root.source)


def _about_the_project(draft: Draft, root: Pairs) -> None:
    """With `srt` only what is listed can be written; here the project always can."""
    listed = under(root, "filesystem", "allowWrite")
    items = listed.items if isinstance(listed, Items) else []
    if listed is not None and not any(isinstance(item, Word) and paths.plain(item.text) == "." for item in items):
        message = "filesystem.allowWrite does not list '.': the project can be written here all the same"
        draft.say(_WARNING, listed.source, message)
