"""Where the gate itself looks names up and goes through, as `--dns-server` and `--upstream` say it."""

from __future__ import annotations

import os

from egress.net.dnsclient import DnsServer
from egress.net.upstream import NO_UPSTREAM, Upstreams, always, from_environment, parse_upstream
from launcher.mounts import PlanError


def routes(dns_server: str | None, upstream: str | None) -> tuple[DnsServer | None, Upstreams]:
    try:
        server = DnsServer.parse(dns_server) if dns_server else None
        if not upstream:
            return server, NO_UPSTREAM
        return server, from_environment(os.environ) if upstream == "env" else always(parse_upstream(upstream))
    except ValueError as error:
        raise PlanError(str(error), "egress-launch --help", status=2) from None
