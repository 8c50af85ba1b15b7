"""A DNS server on loopback that does as it is told: lies, stays silent, answers cut or over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable

from dnslib import RR, DNSRecord

from egress.net.dnsclient import DnsServer

# What to send back for a query; the second argument counts the queries, from 0.
Script = Callable[[DNSRecord, int], Iterable[bytes]]

_COUNTS = {"q": 4, "a": 6, "auth": 8, "ar": 10}


def reply(query: DNSRecord, *zone: str, authority: str = "", additional: str = "", **header: int) -> bytes:
    """A reply with the records of zone lines; `header` overrides its fields, even its counts."""
    answer = query.reply(ra=1, aa=0)
    for line in zone:
        answer.add_answer(*RR.fromZone(line))
    if authority:
        answer.add_auth(*RR.fromZone(authority))
    if additional:
        answer.add_ar(*RR.fromZone(additional))
    for field, value in header.items():
        setattr(answer.header, field, value)
    packet = bytearray(answer.pack())
    for field in header.keys() & _COUNTS.keys():  # pack has put the true counts there
        packet[_COUNTS[field] : _COUNTS[field] + 2] = header[field].to_bytes(2, "big")
    return bytes(packet)


def about(query: DNSRecord, name: str, qtype: str, *zone: str) -> bytes:
    """A reply with the right id to another question."""
    other = DNSRecord.question(name, qtype)
    other.header.id = query.header.id
    return reply(other, *zone)


class FakeDns:
    def __init__(self, udp: socket.socket, tcp: socket.socket, script: Script, over_tcp: Script) -> None:
        self._udp, self._tcp = udp, tcp
        self._script, self._over_tcp = script, over_tcp
        self.server = DnsServer(*udp.getsockname())
        self.queries: list[DNSRecord] = []
        self.tcp_queries: list[DNSRecord] = []
        self.sources: list[tuple[str, int]] = []

    def on_datagram(self) -> None:
        data, source = self._udp.recvfrom(65535)
        query = DNSRecord.parse(data)
        self.sources.append(source)
        self.queries.append(query)
        for packet in self._script(query, len(self.queries) - 1):
            self._udp.sendto(packet, source)

    async def serve_tcp(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            conn, _ = await loop.sock_accept(self._tcp)
            with conn:
                conn.setblocking(False)
                data = await loop.sock_recv(conn, 65535)
                query = DNSRecord.parse(data[2:])
                self.tcp_queries.append(query)
                for packet in self._over_tcp(query, len(self.tcp_queries) - 1):
                    await loop.sock_sendall(conn, len(packet).to_bytes(2, "big") + packet)


def silent(query: DNSRecord, count: int) -> Iterable[bytes]:
    return ()


@contextlib.asynccontextmanager
async def fake_dns(script: Script = silent, over_tcp: Script = silent) -> AsyncIterator[FakeDns]:
    loop = asyncio.get_running_loop()
    with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        tcp.setblocking(False)
        udp.bind(tcp.getsockname())
        udp.setblocking(False)
        fake = FakeDns(udp, tcp, script, over_tcp)
        loop.add_reader(udp.fileno(), fake.on_datagram)
        task = loop.create_task(fake.serve_tcp())
        try:
            yield fake
        finally:
            loop.remove_reader(udp.fileno())
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
