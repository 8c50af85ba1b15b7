"""Where packages come from: an index as pip reads it, and a registry as npm does, each with one package made here."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile

from servers import Answer, Request


class Index:
    """A package index with one pure wheel, `tinything`, made here."""

    def __init__(self) -> None:
        self.wheel = _wheel()

    def __call__(self, request: Request) -> Answer:
        name = "tinything-1.0-py3-none-any.whl"
        if request.path == "/simple/tinything/":
            digest = hashlib.sha256(self.wheel).hexdigest()
            return Answer(f'<a href="/files/{name}#sha256={digest}">{name}</a>'.encode(), "text/html")
        if request.path == f"/files/{name}":
            return Answer(self.wheel, "application/octet-stream")
        return Answer(b"no such package\n", status=404)


def _wheel() -> bytes:
    info = "tinything-1.0.dist-info"
    files = {
        "tinything.py": "GREETING = 'hello from the index'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


class Registry:
    """An npm registry with one package, `tinything`, made here."""

    def __init__(self, host: str) -> None:
        self._manifest = {"name": "tinything", "version": "1.0.0", "main": "index.js"}
        self._tarball = _tarball(self._manifest, "module.exports = 'hello from the registry'\n")
        digest = base64.b64encode(hashlib.sha512(self._tarball).digest()).decode()
        dist = {"tarball": f"https://{host}/tinything/-/tinything-1.0.0.tgz", "integrity": f"sha512-{digest}"}
        self._packument = {
            "name": "tinything",
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": {**self._manifest, "dist": dist}},
        }

    def __call__(self, request: Request) -> Answer:
        if request.path == "/tinything":
            return Answer(json.dumps(self._packument).encode(), "application/json")
        if request.path.endswith(".tgz"):
            return Answer(self._tarball, "application/octet-stream")
        return Answer(b"{}", "application/json", status=404)


def _tarball(manifest: dict[str, str], code: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in {"package.json": json.dumps(manifest), "index.js": code}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()
