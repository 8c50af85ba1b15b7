"""The page's own files: no markup from text, nothing from elsewhere, nothing inline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "egress" / "control" / "page"
FILES = sorted(PAGE.iterdir())
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc")


def test_there_are_files_to_look_at() -> None:
    assert {"index.html", "main.js", "look.css"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_text_never_becomes_markup(path: Path) -> None:
    assert MARKUP.search(path.read_text()) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    places = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", re.sub(r"(?m)^\s*// .*$", "", path.read_text())))
    assert places <= {"http://www.w3.org/2000/svg"}


def test_the_document_has_no_script_or_style_of_its_own() -> None:
    text = (PAGE / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""]
    assert "<style" not in text
    assert re.search(r"\s(?:on\w+|style)=", text) is None


def test_every_module_that_is_imported_is_there() -> None:
    names = {path.name for path in FILES}
    imported = {name for path in FILES for name in re.findall(r'from "\./([\w.]+)"', path.read_text())}
    assert imported
    assert imported <= names
