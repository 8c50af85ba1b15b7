"""Stand-ins for the services behind coding agents: as much of each as an agent needs to take a turn.

A turn is what the model does when asked: it says something, piece by piece, or has the agent's shell run a
command and waits for what came of it. Which turn it is shows in the question: an agent sends the whole
conversation every time, so the results of commands in it are counted.

Replies are streams of server-sent events, each event a chunk of its own, as the real services send them.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from servers import PATIENCE, Request, Server


class Say(NamedTuple):
    pieces: tuple[str, ...]


class Call(NamedTuple):
    """Have a command run by the tool of this name."""

    tool: str
    command: str


Turn = Say | Call
Fields = dict[str, Any]
Event = tuple[str, Fields]


class Model(Server):
    """A service of one path. `seen` has every request; `results` what came of the commands, as the agent told it."""

    path: str

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(tls)
        self.turns: tuple[Turn, ...] = ()
        self.seen: list[Request] = []
        self.results: list[str] = []
        self.go_on = threading.Event()

    def begin(self, *turns: Turn, hold: bool = False) -> None:
        """A new conversation. One that is held says its last piece only when it is told to go on."""
        self.turns = turns
        self.seen.clear()
        self.results = []
        self.go_on.clear()
        if not hold:
            self.go_on.set()

    @property
    def questions(self) -> list[Request]:
        """What was asked of the model itself."""
        return [request for request in self.seen if request.method == "POST" and self.knows(request)]

    def knows(self, request: Request) -> bool:
        return request.path.partition("?")[0] == self.path

    def handle(self, sock: ssl.SSLSocket) -> None:
        _Conversation(sock, ("127.0.0.1", 0), self)

    def reply(self, request: Request) -> Iterator[Event]:
        question = json.loads(request.body)
        self.results = self._results(question)
        turn = self.turns[len(self.results)]
        return self._called(turn) if isinstance(turn, Call) else self._said(turn)

    def _paced(self, say: Say) -> Iterator[str]:
        *most, last = say.pieces
        yield from most
        assert self.go_on.wait(PATIENCE), "nobody saw the first pieces"
        yield last

    def _results(self, question: Fields) -> list[str]:
        raise NotImplementedError

    def _said(self, turn: Say) -> Iterator[Event]:
        raise NotImplementedError

    def _called(self, turn: Call) -> Iterator[Event]:
        raise NotImplementedError


class _Conversation(BaseHTTPRequestHandler):
    server: Model
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        fields = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(fields.get("content-length", 0)))
        request = Request(self.command, self.path, fields, body)
        self.server.seen.append(request)
        if request.method == "POST" and self.server.knows(request):
            self._stream(self.server.reply(request))
        else:
            self._refuse(426 if "upgrade" in fields else 404)

    do_GET = do_POST = do_HEAD = answer  # noqa: N815  # names that http.server looks for

    def _stream(self, events: Iterator[Event]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for kind, fields in events:
            text = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int) -> None:
        """Agents ask for much else: settings, features, news. None of it is needed."""
        body = b'{"type": "error", "error": {"type": "not_found_error", "message": "only a stand-in"}}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Messages(Model):
    """Anthropic's: https://docs.anthropic.com/en/api/messages-streaming."""

    path = "/v1/messages"

    def _results(self, question: Fields) -> list[str]:
        contents = [message["content"] for message in question["messages"]]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]

    def _said(self, turn: Say) -> Iterator[Event]:
        deltas = ({"type": "text_delta", "text": piece} for piece in self._paced(turn))
        return self._message("end_turn", {"type": "text", "text": ""}, deltas)

    def _called(self, turn: Call) -> Iterator[Event]:
        given = json.dumps({"command": turn.command, "description": "what was asked for"})
        block = {"type": "tool_use", "id": f"toolu_{len(self.results)}", "name": turn.tool, "input": {}}
        return self._message("tool_use", block, iter([{"type": "input_json_delta", "partial_json": given}]))

    def _message(self, reason: str, block: Fields, deltas: Iterator[Fields]) -> Iterator[Event]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        empty = {"type": "message", "role": "assistant", "content": [], "stop_reason": None, "stop_sequence": None}
        message = {"id": f"msg_{len(self.results)}", "model": "stand-in", "usage": usage, **empty}
        yield "message_start", {"message": message}
        yield "content_block_start", {"index": 0, "content_block": block}
        for delta in deltas:
            yield "content_block_delta", {"index": 0, "delta": delta}
        yield "content_block_stop", {"index": 0}
        yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        yield "message_stop", {}


class Responses(Model):
    """OpenAI's, each piece an item of its own: https://platform.openai.com/docs/api-reference/responses-streaming.

    Codex would rather have a WebSocket. It is told 426, at which it takes the stream.
    """

    path = "/v1/responses"

    def _results(self, question: Fields) -> list[str]:
        return [json.dumps(it["output"]) for it in question["input"] if it["type"] == "function_call_output"]

    def _said(self, turn: Say) -> Iterator[Event]:
        return self._response(self._message(number, piece) for number, piece in enumerate(self._paced(turn)))

    def _called(self, turn: Call) -> Iterator[Event]:
        given = json.dumps({"cmd": turn.command})
        call = {"type": "function_call", "id": "fc_0", "call_id": f"call_{len(self.results)}"}
        return self._response(iter([{**call, "name": turn.tool, "arguments": given}]))

    def _message(self, number: int, text: str) -> Fields:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}

    def _response(self, items: Iterator[Fields]) -> Iterator[Event]:
        yield "response.created", {"response": {"id": "resp_0"}}
        for number, item in enumerate(items):
            place = {"output_index": number, "item_id": item["id"]}
            yield "response.output_item.added", {**place, "item": {**item, "content": []}}
            for part in item.get("content", ()):
                for word in part["text"].split(" "):
                    yield "response.output_text.delta", {**place, "content_index": 0, "delta": word}
            yield "response.output_item.done", {**place, "item": item}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield "response.completed", {"response": {"id": "resp_0", "usage": usage}}
