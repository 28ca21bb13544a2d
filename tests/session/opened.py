"""Sessions on dumps that a test has made or damaged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.linked import linked
from tui_debugger.model import Hit, NodeKind, NodeSelection, NodeSelector, Verdict, WatchResult
from tui_debugger.session import Session
from tui_debugger.sources.base import Source
from tui_debugger.sources.registry import open_source
from tui_debugger.watch.text import parse_watch

EVERYTHING = NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
"""Every tensor."""


def opened(dump: Path | Source, *watches: str) -> Session:
    """A session on a dump with watchpoints given as text; without ``@`` they cover every tensor."""
    session = Session(open_source(dump) if isinstance(dump, Path) else dump)
    session.open()
    watch(session, *watches)
    return session


def watch(session: Session, *watches: str) -> None:
    """Adds watchpoints given as text; without ``@`` they cover every tensor, whatever the condition's target."""
    for text in watches:
        condition, params, selection = parse_watch(text if "@" in text else f"{text} @ category=tensor")
        session.watchpoints.add(condition, params, selection)


def checked(session: Session, *steps: int) -> tuple[Hit, ...]:
    """The hits of some steps of every rank; of all steps when none is given."""
    return session.check(session.pairs(steps=steps or None)).hits


def found(hits: Iterable[Hit]) -> list[tuple[str, int]]:
    """(node, step) of the findings, in their order."""
    return [(hit.key.node, hit.key.step) for hit in hits if hit.verdict is Verdict.FINDING]


def only(hits: Iterable[Hit]) -> tuple[Hit, WatchResult]:
    """The one hit there is, and its one result."""
    (hit,) = hits
    (result,) = hit.results
    return hit, result


def file_of(session: Session, hit: Hit) -> Path:
    """The file that a hit is about."""
    table = session.source.tensors(hit.key.rank, hit.key.step)
    return Path(table.spec(table.find(hit.row, hit.key.side, hit.key.slot, hit.key.round)).path)


def writable_copy(dump: Path, target: Path) -> Path:
    """A copy of a dump whose directories may be changed, and its files after ``own`` of ``tests.linked``."""
    return linked(dump, target)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """Size, modification time and mode of everything below a directory."""
    statuses = {str(path): path.lstat() for path in [root, *root.rglob("*")]}
    return {path: (status.st_size, status.st_mtime_ns, status.st_mode) for path, status in statuses.items()}
