"""``DumpAnalyzer.export_graphs``: the graphs of a dump as a workbook."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tui_debugger.api.statistic import made
from tui_debugger.errors import TdbgError
from tui_debugger.session import Session
from tui_debugger.session.export_graph import has_openpyxl, rank_graphs, write_sheets_csv, write_workbook


def export_graphs(session: Session, output_dir: str | os.PathLike[str] | None = None) -> str:
    """Writes the graphs of all ranks as a new workbook ``dump_YYYYmmdd_HHMMSS.xlsx`` and returns its path.

    Its sheets and columns are MindInsight's: info, constant, parameter, operator, statistics, source. Where openpyxl
    is not installed, every sheet becomes a file ``dump_YYYYmmdd_HHMMSS_operator.csv`` and so on, and the path of the
    operators' file is returned.

    Args:
        session: an open session.
        output_dir: where to; made when it does not exist. None is the current directory.

    Raises:
        TdbgError: the directory lies inside the dump or cannot be written.
    """
    directory = (Path.cwd() if output_dir is None else Path(output_dir).expanduser()).resolve()
    dump = Path(session.info.path)
    if dump.resolve() in (directory, *directory.parents):
        raise TdbgError("a dump is never written to", where=str(directory), hint="give an output_dir outside the dump")
    made(directory, "output_dir")
    graphs = rank_graphs(session, session.ranks())
    stem = _unused(directory / time.strftime("dump_%Y%m%d_%H%M%S"))
    if not has_openpyxl():
        return str(write_sheets_csv(graphs, stem, dump))
    path = stem.with_name(stem.name + ".xlsx")
    write_workbook(graphs, path, dump)
    return str(path)


def _unused(stem: Path) -> Path:
    """The stem, or with a number behind it when an export of the same second has it."""
    number, chosen = 2, stem
    while any(chosen.parent.glob(f"{chosen.name}[._]*")):
        chosen, number = stem.with_name(f"{stem.name}-{number}"), number + 1
    return chosen
