"""Audits a session with its workers: every worker opens the run once and checks the nodes that it is handed."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Final

from tui_debugger.check.types import Pair
from tui_debugger.diagnose.audit import AuditItem, AuditReport, Result, audit, check_items
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.session.session import Session, open_dump
from tui_debugger.stats.workers import MeasureWorkers

_COST: Final = 1 << 24
"""The least cost of a batch of operators, in the unit of ``measure.costs``: arithmetic is slower than reading."""


class _WorkerRun(threading.local):
    """The run that a worker has open, by path."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}


_opened: Final = _WorkerRun()


def audit_session(
    session: Session,
    pairs: Sequence[Pair],
    progress: ProgressFn = no_progress,
    *,
    nodes: Collection[str] | None = None,
    required: Collection[str] = (),
) -> AuditReport:
    """Like ``diagnose.audit.audit``, but uses the workers of the session where the amount of work is worth it."""
    path = Path(session.info.path)

    def elsewhere(items: tuple[AuditItem, ...]) -> Future[list[Result] | None] | None:
        executor = session.workers.executor(_COST * len(items))
        if executor is None or getattr(executor, "remote", True) or not path.is_dir():
            return None
        try:
            return executor.submit(checked_there, str(path), items)
        except BrokenExecutor:
            return None

    return audit(session, pairs, progress, nodes=nodes, required=required, elsewhere=elsewhere)


def checked_there(path: str, items: Sequence[AuditItem]) -> list[Result] | None:
    """Checks nodes in a worker; None when the worker cannot open the run or lists its nodes differently."""
    opened = _opened.sessions
    if path not in opened:
        try:
            session = open_dump(Path(path), workers=MeasureWorkers(jobs=1), remember=False)
            session.open()
        except (TdbgError, OSError):
            return None
        for other in list(opened):
            opened.pop(other).close()
        opened[path] = session
    return check_items(opened[path], items)
