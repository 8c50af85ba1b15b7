"""Who may see the page, and who may press its buttons.

It listens on loopback, where three kinds of strangers can reach it, and a check stands against each:

    other users of the machine    a token in the link, which is exchanged for a cookie and leaves the address bar
    other web sites               Host must be ours (a name that was rebound to 127.0.0.1 is not), Origin must be
                                  the page itself, the cookie is SameSite=Strict, and nobody may frame it
    other pages on this host      cookies know no ports: whatever 127.0.0.1:8000 serves, a sandbox's own web server
                                  too, would be sent ours. So the link names a host of its own,
                                  egress-SESSION.localhost, which browsers take for loopback, and no other page has

What comes from inside the sandbox never gets here: the gate leads nobody to its own listeners.
The Unix socket of `egress watch` needs no token. It is its user's alone, and the kernel says who is at the other
end: somebody in another network namespace, as in a sandbox that was shown the socket's place, is turned away.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from hmac import compare_digest

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SAFE = frozenset({"GET", "HEAD"})
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


class Guard:
    """Of the page at one port."""

    def __init__(self, session: str, port: int) -> None:
        self._token, self._cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._name = f"egress_{port}"
        self._host = f"egress-{session}.localhost:{port}"
        self._hosts = frozenset({self._host, f"localhost:{port}", f"127.0.0.1:{port}"})

    @property
    def link(self) -> str:
        return f"http://{self._host}/?token={self._token}"

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if objection := self._objection(request):
            return _refuse(objection)
        if "token" in request.query:
            return self._exchange(request)
        if not self._is_known(request):
            return _refuse("this page is opened with the link that egress printed when it started")
        return await handler(request)

    def _objection(self, request: web.Request) -> str | None:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "this is not the host that the page has"
        origins = request.headers.getall("Origin", [] if request.method in _SAFE else [""])
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return "this request comes from another page"
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and request.path != "/":
            return "this request comes from another page"
        return None

    def _exchange(self, request: web.Request) -> web.Response:
        """The token of the link, for a cookie; then on to the page, so that it is in no history and no screenshot."""
        if request.path != "/" or request.method != "GET" or not _equal(request.query["token"], self._token):
            return _refuse("this is not the link that egress printed when it started")
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(self._name, self._cookie, httponly=True, samesite="Strict", path="/")
        return answer

    def _is_known(self, request: web.Request) -> bool:
        if _equal(request.cookies.get(self._name, ""), self._cookie):
            return True
        kind, _, word = request.headers.get("Authorization", "").partition(" ")
        return request.path == "/metrics" and kind.lower() == "bearer" and _equal(word, self._token)


async def harden(_: web.Request, response: web.StreamResponse) -> None:
    """For every answer, before it goes out."""
    response.headers.update(_HEADERS)
    response.headers.pop("Server", None)


@web.middleware
async def admit_own_user(request: web.Request, handler: Handler) -> web.StreamResponse:
    """On the Unix socket."""
    transport = request.transport
    if transport is None or not _is_outside(transport.get_extra_info("socket").fileno()):
        return _refuse("this socket is for its user, outside of any sandbox")
    return await handler(request)


def _is_outside(fd: int) -> bool:
    with socket.socket(fileno=os.dup(fd)) as sock:  # an event loop's own idea of a socket may know no options
        pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    try:
        networks = (os.stat(f"/proc/{of}/ns/net") for of in (pid, "self"))
        return uid in (0, os.getuid()) and os.path.samestat(*networks)
    except OSError:
        return False


def _equal(given: str, expected: str) -> bool:
    return compare_digest(given.encode(errors="replace"), expected.encode())


def _refuse(why: str) -> web.Response:
    return web.Response(status=403, text=f"egress: {why}\n")
