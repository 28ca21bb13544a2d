"""Progress of work that is a part of other work."""

from __future__ import annotations

from tui_debugger.model import Progress, ProgressFn


def scaled(progress: ProgressFn, number: int, count: int, span: int = 1) -> ProgressFn:
    """``span`` of several equal parts, from ``number`` on: 1000 units each, so that a bar moves inside a part too."""

    def tell(snapshot: Progress) -> None:
        inside = min(snapshot.done / snapshot.total, 1.0) if snapshot.total else 0.0
        progress(Progress(int(1000 * (number + span * inside)), 1000 * count, snapshot.text))

    return tell
