"""The page about JSON documents, to be compared with documents that commands print."""

from __future__ import annotations

import re
from typing import Any

from tui_debugger.cli.help import PAGES

TEXT = (PAGES / "json.md").read_text("utf-8")


def sections() -> dict[str, str]:
    """The page by its headings."""
    _, *parts = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    return {title: text for title, _, text in (part.partition("\n") for part in parts)}


def described(*texts: str) -> set[str]:
    """The keys that a text names."""
    return {key for text in texts for key in re.findall(r"`([a-z_]+)`", text)}


def keys(value: Any, inside: str = "") -> set[str]:
    """Every key of a document, at any depth; the kinds of the index, and what a program noted, are names."""
    if isinstance(value, list):
        return set().union(*(keys(each) for each in value))
    if isinstance(value, dict):
        own = set() if inside in {"kinds", "notes", "recognised"} else set(value)
        return own.union(*(keys(each, name) for name, each in value.items()))
    return set()


def assert_described(document: dict[str, Any], section: str) -> None:
    """The keys of a document are described in a section, the keys of its parts somewhere on the page."""
    page = sections()
    own = described(
        page[section], page["Every document"], *([page["Parts that come again"]] if "event" in document else [])
    )
    assert set(document) - own == set(), section
    assert keys(document) - described(TEXT) == set()
