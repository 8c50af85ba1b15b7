"""Both ends of a TLS conversation, as programs: `tlsends serve CERT` and `tlsends ask …`.

In Python, which is fast enough: what stands between them takes ten times as long. Each end is a process of its own,
a thread for each connection.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time

PAGE = b"x" * 1000
BLOCK = b"x" * (1 << 20)


def serve(certificate: str) -> None:
    """GET /bulk/N is answered with N bytes, any other path with a page."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(listener.getsockname()[1], flush=True)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_answer_all, args=(sock, context), daemon=True).start()


def _answer_all(sock: socket.socket, context: ssl.SSLContext) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        with context.wrap_socket(sock, server_side=True) as talk:
            while request := talk.recv(65536):
                _answer(talk, request)
    except OSError:
        pass  # the client is done


def _answer(talk: ssl.SSLSocket, request: bytes) -> None:
    path = request.split(b" ", 2)[1]
    size = int(path.removeprefix(b"/bulk/")) if path.startswith(b"/bulk/") else len(PAGE)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % size
    talk.sendall(head + PAGE if size == len(PAGE) else head)
    for _ in range(size // len(BLOCK) if size != len(PAGE) else 0):
        talk.sendall(BLOCK)


def ask(proxy: int, host: str, port: int, roots: str, width: int, total: int, path: str) -> None:
    """`total` requests over `width` connections through a proxy; a line of JSON."""
    context = ssl.create_default_context(cafile=roots)
    each = total // width
    talks = [_connect(proxy, host, port, context) for _ in range(width)]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n".encode()
    received = [0] * width

    def drive(number: int) -> None:
        for _ in range(each):
            received[number] += _exchange(talks[number], request)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(width)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    failed = total - each * width + sum(count == 0 for count in received)
    print(json.dumps({"per_second": total / seconds, "mb_per_second": sum(received) / seconds / 1e6, "failed": failed}))


def _connect(proxy: int, host: str, port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", proxy), 20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += sock.recv(1) or sys.exit("the proxy closed the connection")
    if b" 200" not in answer[:13]:
        sys.exit(f"the proxy said {answer[:60]!r}")
    return context.wrap_socket(sock, server_hostname=host)


def _exchange(talk: ssl.SSLSocket, request: bytes) -> int:
    """One request and its answer; the bytes of its body."""
    talk.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += talk.recv(65536) or sys.exit("closed in the middle of an answer")
    head, _, body = data.partition(b"\r\n\r\n")
    if b" 200 " not in head[:13]:
        sys.exit(f"answered with {head[:60]!r}")
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    left, room = size - len(body), memoryview(bytearray(1 << 18))
    while left > 0:
        left -= talk.recv_into(room) or sys.exit("closed in the middle of a body")
    return size


if __name__ == "__main__":
    words = sys.argv[2:]
    if sys.argv[1] == "serve":
        serve(*words)
    else:
        ask(int(words[0]), words[1], int(words[2]), words[3], int(words[4]), int(words[5]), words[6])
