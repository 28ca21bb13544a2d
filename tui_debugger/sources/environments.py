"""Directories of programs, caches and version control, recognised by a marker in them.

A marker speaks for directories only: a file directly beside the marker is looked at like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from tui_debugger import opener

_MARKER_BYTES: Final = 4096
_CACHE_SIGNATURE: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
"""The first bytes of a CACHEDIR.TAG, by the specification of cache directory tags."""
_VENV_CHILDREN: Final = frozenset({"bin", "lib", "lib64", "include", "share", "Scripts", "Lib", "Include"})


@dataclass(frozen=True, slots=True)
class Environment:
    """A directory of programs or caches whose subdirectories the inventory does not enter."""

    marker: str
    children: frozenset[str] | None = None
    """Names of the subdirectories to leave out; None: all of them."""

    def covers(self, name: str) -> bool:
        return self.children is None or name in self.children


@dataclass(frozen=True, slots=True)
class _Marker:
    """Names that must all be there, and a test of the content of the first in alphabetical order."""

    names: frozenset[str]
    environment: Environment
    content: Callable[[bytes], bool] | None = None


_RULES: Final = (
    _Marker(frozenset({"pyvenv.cfg"}), Environment("pyvenv.cfg", _VENV_CHILDREN), lambda text: b"home" in text),
    _Marker(frozenset({"CACHEDIR.TAG"}), Environment("CACHEDIR.TAG"), lambda text: text.startswith(_CACHE_SIGNATURE)),
    _Marker(
        frozenset({"HEAD", "objects", "refs"}),
        Environment("git"),
        lambda text: text.startswith(b"ref:") or len(text) == 41,
    ),
    _Marker(frozenset({"conda-meta", "lib"}), Environment("conda-meta")),
    _Marker(frozenset({".package-lock.json"}), Environment("node_modules/.package-lock.json")),
    _Marker(frozenset({"store", "requires", "dirstate"}), Environment("hg")),
    _Marker(frozenset({"wc.db", "pristine"}), Environment("svn")),
)
_INSTALLED: Final = (".dist-info", ".egg-info")
"""The names of directories that pip writes beside the packages that it installs."""


def environment_in(directory: str, names: Collection[str]) -> Environment | None:
    """Returns the environment that a directory with these names is; None for any other directory."""
    there = set(names)
    for rule in _RULES:
        if rule.names <= there and (rule.content is None or rule.content(_read(f"{directory}/{min(rule.names)}"))):
            return rule.environment
    if "site-packages" in directory.rsplit("/", 1)[-1] and any(name.endswith(_INSTALLED) for name in names):
        return Environment("site-packages")
    return None


def _read(path: str) -> bytes:
    try:
        return opener.first_bytes(path, _MARKER_BYTES)
    except (OSError, ValueError):
        return b""
