"""The environment inside, made from nothing.

What the host has set is not inherited: there are its credentials, its proxies and everything that makes
programs load code (LD_PRELOAD, PYTHONPATH, NODE_OPTIONS). In come who and where one is, how the terminal
looks, our own settings, what the persona lists and what was asked for by flag; each layer over the last:

    who, where, terminal      as on the host
    the persona's `env`       as on the host, where set there
    ours                      so that no persona can bring the host's proxy back
    --env NAME[=VALUE]        the last word is the user's

Programs that honour a proxy are told of the gate, each by the name that it looks for; that gives better
errors than a captured connection. ALL_PROXY is an HTTP proxy, not SOCKS: some clients fail at start when
a SOCKS library is not installed. Java and ssh have no such variable that is quiet, so these two are only
told where connections are not captured anyway; and where the gate asks for a password, neither can give it one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launcher.mounts import PlanError

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOOPBACK = "localhost,127.0.0.1,::1"

FROM_HOST = (
    *("PATH", "SHELL", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
    *("LANG", "LANGUAGE", "TZ"),
)
FIXED: Mapping[str, str] = {
    "TMPDIR": "/tmp",  # noqa: S108  # the sandbox's own
    "SANDBOX_ACTIVE": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_BUG_COMMAND": "1",
    "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY": "1",
}

JAVA = "JAVA_TOOL_OPTIONS"
_BOTH_CASES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY")
_OWN_NAMES = (
    *("npm_config_proxy", "npm_config_https_proxy", "YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"),
    *("PIP_PROXY", "CARGO_HTTP_PROXY", "DOCKER_HTTP_PROXY", "DOCKER_HTTPS_PROXY"),
)


def environment(
    host: Mapping[str, str],
    identity: Mapping[str, str],
    persona: Iterable[str] = (),
    ours: Mapping[str, str] | None = None,
    flags: Iterable[str] = (),
    proxy: str = "",
    capture: bool = True,
) -> dict[str, str]:
    """All variables inside. `identity` is HOME, USER and LOGNAME; `ours` what this launch adds to FIXED."""
    values = {"PATH": DEFAULT_PATH, **_picked(host, FROM_HOST)}
    values |= {name: value for name, value in host.items() if name.startswith("LC_")}
    values |= identity
    values |= _picked(host, persona)
    told, added = proxy_variables(proxy, capture), ours or {}
    values |= {**FIXED, **told, **added, **_joined(told, added)}
    return values | dict(_asked(flag, host) for flag in flags)


def passed(persona: Iterable[str], flags: Iterable[str]) -> frozenset[str]:
    """The names whose values are the user's, and are never printed."""
    return frozenset(persona) | {flag.partition("=")[0] for flag in flags}


def proxy_variables(proxy: str, capture: bool) -> dict[str, str]:
    if not proxy:
        return {}
    values = dict.fromkeys((*_BOTH_CASES, *map(str.lower, _BOTH_CASES), *_OWN_NAMES), proxy)
    values |= {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK, "npm_config_noproxy": LOOPBACK, "NODE_USE_ENV_PROXY": "1"}
    if "@" in proxy:
        values["GIT_HTTP_PROXY_AUTHMETHOD"] = "basic"  # or it asks without, first, and is refused, on record
    elif not capture:
        host, _, port = proxy.removeprefix("http://").rstrip("/").rpartition(":")
        values |= {JAVA: _java(host, port), "GIT_SSH_COMMAND": _ssh(host, port)}
    return values


def _java(host: str, port: str) -> str:
    proxies = " ".join(f"-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}" for scheme in ("http", "https"))
    return f"{proxies} -Dhttp.nonProxyHosts=localhost|127.*|[::1]"


def _ssh(host: str, port: str) -> str:
    return f"ssh -o ProxyCommand='nc -X connect -x {host}:{port} %h %p'"


def _joined(*layers: Mapping[str, str]) -> dict[str, str]:
    """Java has one variable for all of its options."""
    options = [layer[JAVA] for layer in layers if JAVA in layer]
    return {JAVA: " ".join(options)} if options else {}


def _picked(host: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: host[name] for name in names if name in host}


def _asked(flag: str, host: Mapping[str, str]) -> tuple[str, str]:
    name, given, value = flag.partition("=")
    if not name or "\0" in flag:
        raise PlanError(f"{flag!r} is not a variable: expected NAME or NAME=VALUE")
    if given:
        return name, value
    if name not in host:
        raise PlanError(f"the variable {name!r} is not set here", f"--env {name}=VALUE gives it one")
    return name, host[name]
