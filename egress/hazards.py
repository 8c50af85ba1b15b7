"""Hosts that undo an allowlist, by what they are for.

Whoever may reach one of these may in effect reach anybody: it stores what it is sent for others to
fetch, carries connections on, or answers for the whole of DNS. A policy may still want one; it should
know what it takes. Names below a listed host count as that host, but for those that hold buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Hazard(NamedTuple):
    host: str
    words: str


_KINDS = {
    "keeps what it is sent for anyone who knows the address": """
        0x0.st anonfiles.com bashupload.com beeceptor.com burpcollaborator.net canarytokens.com catbox.moe
        dnslog.cn dpaste.com file.io gofile.io hastebin.com hookbin.com interact.sh ix.io ntfy.sh oast.fun
        oast.live oast.me oast.online oast.pro oast.site paste.ee pastebin.com pipedream.net requestbin.com
        requestbin.net requestcatcher.com temp.sh termbin.com tmpfiles.org transfer.sh webhook.site
        """,
    "passes messages on to whoever made the hook or bot": """
        api.telegram.org discord.com discordapp.com hooks.slack.com hooks.zapier.com maker.ifttt.com
        """,
    "is a tunnel to machines of anyone": """
        bore.pub devtunnels.ms lhr.life loca.lt localhost.run localtunnel.me ngrok-free.app ngrok.app
        ngrok.com ngrok.dev ngrok.io pagekite.me pinggy.io playit.gg portmap.io serveo.net tailscale.com
        trycloudflare.com tunnelmole.com tunnelmole.net zerotier.com
        """,
    "fetches any address for whoever asks": """
        allorigins.win cors-anywhere.herokuapp.com corsproxy.io r.jina.ai translate.goog
        """,
    "resolves any name over HTTPS or TLS, past the gate's own nameserver": """
        1.0.0.1 1.1.1.1 8.8.4.4 8.8.8.8 9.9.9.9 149.112.112.112 2001:4860:4860::8844 2001:4860:4860::8888
        2606:4700:4700::1001 2606:4700:4700::1111 2620:fe::9 2620:fe::fe cloudflare-dns.com
        dns.adguard-dns.com dns.adguard.com dns.alidns.com dns.controld.com dns.google dns.mullvad.net
        dns.nextdns.io dns.quad9.net dns.sb dns0.eu doh.cleanbrowsing.org doh.mullvad.net doh.opendns.com
        doh.pub freedns.controld.com one.one.one.one
        """,
}
# The buckets of all customers behind one name; the names below belong to one customer each.
_BUCKETS = "firebasestorage.googleapis.com s3.amazonaws.com storage.cloud.google.com storage.googleapis.com"
# Every customer has a name below these, and the Public Suffix List does not say so.
_SHARED = """
    aliyuncs.com atlassian.net azure.com b-cdn.net backblazeb2.com cloudflarestorage.com firebaseio.com
    glitch.me googleusercontent.com myqcloud.com oraclecloud.com r2.cloudflarestorage.com sharepoint.com
    wasabisys.com wordpress.com zendesk.com
    """
SHARED = frozenset(_SHARED.split())
PORTS = {
    25: "carries mail to anyone",
    53: "is DNS, which the gate answers itself",
    465: "carries mail to anyone",
    587: "carries mail to anyone",
    853: "is DNS over TLS, which the gate answers itself",
    1080: "is where proxies listen, which carry connections on",
    3128: "is where proxies listen, which carry connections on",
}
# What listens there speaks neither HTTP nor TLS from the first byte, so there is no request to look at.
NO_REQUESTS = {
    21: "ftp",
    22: "ssh",
    23: "telnet",
    25: "smtp",
    53: "dns",
    110: "pop3",
    143: "imap",
    389: "ldap",
    587: "smtp",
    1080: "socks",
    3306: "mysql",
    5432: "postgresql",
    6379: "redis",
    9418: "git",
}


def parents(host: str) -> Iterator[str]:
    """github.com and com, for api.github.com."""
    while "." in host:
        host = host.partition(".")[2]
        yield host


_HAZARDS = {host: Hazard(host, words) for words, hosts in _KINDS.items() for host in hosts.split()}
_STORES = {host: Hazard(host, "holds the buckets of all customers under one name") for host in _BUCKETS.split()}
_BELOW = {parent: hazard for host, hazard in _HAZARDS.items() if ":" not in host for parent in parents(host)}


def hazard_at(host: str) -> Hazard | None:
    """What this host is, or is part of."""
    return _STORES.get(host) or next((_HAZARDS[name] for name in (host, *parents(host)) if name in _HAZARDS), None)


def hazard_below(host: str) -> Hazard | None:
    """What a wildcard on this host takes in."""
    return _BELOW.get(host)
