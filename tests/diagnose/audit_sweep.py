"""Audits every run below some folders: ``python -m tests.diagnose.audit_sweep FOLDER ...``.

Prints a line for each run: how many runs of operators were checked, how many are wrong, and the headline. Where a
folder holds pairs of runs with an ``expected.json``, a wrong operator of one side has to be what the pair was planted
with; everywhere else nothing may be wrong. Exit code 1 where that is not so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tui_debugger.diagnose.audit import AuditReport, audit
from tui_debugger.errors import TdbgError
from tui_debugger.session.session import Session
from tui_debugger.sources import open_source

PLANTED = ("e_", "m_nan")
"""What the names of pairs begin with in which one operator of one side was made wrong."""


class Swept(NamedTuple):
    """A run that was audited; the report is None where there is nothing to audit, with the reason."""

    path: Path
    report: AuditReport | None
    seconds: float
    reason: str = ""


def runs(folder: Path) -> Iterator[Path]:
    """Every run below a folder: directories that hold no other runs of their own."""
    if (folder / "expected.json").exists():
        yield from (folder / side for side in ("A", "B"))
        return
    try:
        with closing(open_source(folder)):
            yield folder
            return
    except (TdbgError, OSError):
        for each in sorted(folder.iterdir()):
            if each.is_dir():
                yield from runs(each)


def swept(path: Path) -> Swept:
    """Audits a run."""
    start = time.process_time()
    try:
        with closing(Session(open_source(path))) as session:
            session.open()
            report = audit(session, session.pairs())
    except (TdbgError, OSError) as error:
        return Swept(path, None, time.process_time() - start, str(error).partition("\n")[0])
    return Swept(path, report, time.process_time() - start)


def is_as_expected(pair: Path, sides: Sequence[Swept]) -> bool:
    """Tells whether a pair with a planted operator names it, and from one side alone."""
    wanted = json.loads((pair / "expected.json").read_text())["headline_any_of"]
    found = [each.report.headline for each in sides if each.report is not None and each.report.findings]
    if len(found) != 1 or found[0] is None:
        return False
    operator = found[0].name.rpartition("/")[2]  # without its number among the calls
    return any(name.startswith(operator) for name in wanted)


def main(arguments: Sequence[str]) -> int:
    """Sweeps folders; 1 where a run is not as it should be."""
    bad = 0
    for path in [path for each in arguments for path in runs(Path(each))]:
        done = swept(path)
        report = done.report
        planted = path.parent.name.startswith(PLANTED) and (path.parent / "expected.json").exists()
        if report is None:
            sys.stdout.write(f"  -  {path}: {done.reason}\n")
            continue
        alarm = bool(report.findings) and not planted
        if planted and path.name == "B":
            alarm = not is_as_expected(path.parent, [swept(path.parent / "A"), done])
        bad += alarm
        head = report.headline
        named = f"; {head.name} step {head.step} r {head.check.r:.3g} {head.text}" if head is not None else ""
        sys.stdout.write(
            f"{'BAD' if alarm else ' ok'}  {path}: {report.checked} checked, {len(report.findings)} wrong, "
            f"{len(report.doubts)} unreadable, {done.seconds:.1f} s{named}\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{bad} not as expected\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
