"""The host's side of one sandbox that makes connections; prints which process each of them is said to be of.

    attributionstory.py '{"bwrap": [flag…], "command": [word…]}'

A program rather than a function, so that it can be run by root and by an ordinary user alike.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

import msgspec
from netnsstory import Bwrap

from egress.attribution import Attribution
from launcher.netns.captured import original_destination
from launcher.netns.handover import Joiner
from launcher.netns.model import Role, Wanted

_FACES = (Role.PROXY, Role.CAPTURE)


def tell(request: dict[str, Any]) -> dict[str, Any]:
    seen = []
    with Joiner(Wanted()) as joiner:
        bwrap = Bwrap([*request["bwrap"], "--", *request["command"]], joiner)
        listeners = {each.sock: each.role for each in joiner.join().listeners if each.role in _FACES}
        attribution = Attribution(joiner.sandbox, clock=lambda: 0.0)  # however busy the machine is
        joiner.release()
        output = b""
        while True:
            ready, _, _ = select.select([bwrap.output, *listeners], [], [], 30)
            for sock in listeners.keys() & {*ready}:
                accepted, _ = sock.accept()
                with accepted:
                    process = msgspec.to_builtins(attribution.process(accepted))
                    seen.append({"role": listeners[sock], "to": list(original_destination(accepted)), "who": process})
            if bwrap.output in ready:
                data = os.read(bwrap.output, 65536)
                output += data
                if not data:
                    break
        status = bwrap.wait()
    return {"seen": seen, "output": output.decode(), "status": status, "root": joiner.sandbox}


if __name__ == "__main__":
    print(json.dumps(tell(json.loads(sys.argv[1]))))
