"""Statistics of tensors and graphs in MindInsight's file formats."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from tui_debugger.check.sweep import SweptTensor
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, TensorStats, no_progress
from tui_debugger.session import Session
from tui_debugger.session.export_files import checked_target, fresh_text
from tui_debugger.session.export_graph import rank_graphs, write_sheets_csv, write_workbook
from tui_debugger.text.spreadsheets import CsvTable, has_openpyxl


def made(directory: Path, parameter: str) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TdbgError(
            f"the directory could not be made: {reason}", where=str(directory), hint=f"choose another {parameter}"
        ) from None


COLUMNS = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count"),
    *("NaN Count", "Negative Inf Count", "Positive Inf Count", "Zero Count"),
)
"""The columns of ``statistic.csv`` as MindSpore 1.6 to 2.2 writes them, and of rows that are computed here.

"Negative Zero Count" and "Positive Zero Count" mean the elements below and above zero.
"""
SUMMARY_FILE = "statistics_summary.csv"

Statistics = dict[int, dict[int, dict[str, list[dict[str, str]]]]]
"""{rank: {step: {"Op Name:IO:Slot": [row, ...]}}}."""

_log = logging.getLogger("tui_debugger")


@dataclass
class TensorStatistic:
    """The statistics of one tensor, with Python names for the columns of ``statistic.csv`` (see ``COLUMNS``)."""

    op_type: str = ""
    op_name: str = ""
    task_id: int = 0
    stream_id: int = 0
    time_stamp: int = 0
    io: str = ""
    slot: int = 0
    data_size: int = 0
    data_type: str = ""
    shape: tuple[int, ...] = ()
    max_value: float = float("-inf")
    min_value: float = float("inf")
    avg_value: float = 0
    count: int = 0
    negative_zero_count: int = 0
    positive_zero_count: int = 0
    nan_count: int = 0
    negative_inf_count: int = 0
    positive_inf_count: int = 0
    zero_count: int = 0


StatisticRows = Mapping[int, Mapping[int, Mapping[str, Iterable[Mapping[str, Any] | TensorStatistic]]]]
"""The same as input: rows may be ``TensorStatistic`` objects, too."""


@dataclass
class SummaryStatistic:
    """Counts the rows and the findings of a tensor (``Op Name:IO:Slot``) over all steps and ranks.

    ``total_iterations`` counts (rank, step) pairs; ``out_of_range_number`` rows with an extreme beyond the threshold.
    """

    op_type: str = ""
    op_name: str = ""
    tensor_name: str = ""
    inf_number: int = 0
    nan_number: int = 0
    out_of_range_number: int = 0
    total_number: int = 0
    none_overflow_number: int = 0
    total_iterations: int = 0


def select_tensor_statistics(
    session: Session,
    iterations: Collection[int] | None = None,
    ranks: Iterable[int] | None = None,
    progress: ProgressFn = no_progress,
) -> Statistics:
    """Returns the statistics of every tensor of some steps (None: all), as recorded, else computed from values.

    Rows of a ``statistic.csv`` are text by the file's own column titles. Without such a file every readable tensor (no
    constants) gives a row of ``COLUMNS`` over finite elements with full precision; extremes are ``nan`` without any.
    """
    found: Statistics = {}
    for rank in session.ranks() if ranks is None else ranks:
        found[rank] = {}
        for step in session.steps(rank):
            if iterations is None or step in iterations:
                found[rank][step] = _by_tensor(_rows_of(session, rank, step, progress))
    return found


def summary_statistics(
    statistics: StatisticRows,
    overflow_value: float = 65500,
    out_path: str | os.PathLike[str] = "./",
    *,
    dump: Path | None = None,
) -> None:
    """Writes ``statistics_summary.csv``, replacing it: per tensor the rows with Inf, NaN, or beyond a threshold.

    A missing count is 0, but NaN or Inf among the extremes counts. ``dump`` is protected. Raises TdbgError.
    """
    summary = _summarised(statistics, overflow_value)
    if not summary:
        _log.warning("no statistics were given: no summary is written")
        return
    directory = Path(out_path).expanduser()
    nowhere = directory / SUMMARY_FILE / "dump"  # nothing can be inside it
    checked_target(directory / SUMMARY_FILE, dump or nowhere, force=True)
    made(directory, "out_path")
    with fresh_text(directory / SUMMARY_FILE, dump or nowhere, force=True) as file:
        table = CsvTable(file)
        table.row(field.name for field in fields(SummaryStatistic))
        table.rows(map(astuple, summary.values()))


def _rows_of(session: Session, rank: int, step: int, progress: ProgressFn) -> Iterator[dict[str, str]]:
    recorded = session.source.recorded_rows(rank, step)
    if recorded is not None:
        yield from recorded
        return
    unreadable = 0
    for tensor in session.sweep([(rank, step)]).measured(progress):
        if tensor.error or tensor.meta is None:
            unreadable += 1
        else:
            yield _computed(tensor, session)
    if unreadable:
        _log.warning("rank %d step %d: %d tensors cannot be read and have no statistics", rank, step, unreadable)


def _by_tensor(rows: Iterable[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(f"{row['Op Name']}:{row['IO']}:{row['Slot']}", []).append(row)
    return found


def _computed(tensor: SweptTensor, session: Session) -> dict[str, str]:
    meta, stats, key = tensor.meta, tensor.stats, tensor.key
    by = session.source.written_by(tensor.spec) if tensor.spec is not None else None
    shape = meta.shape if meta is not None else ()
    values = (
        by.op_type if by else session.nodes(key.rank).op_type(tensor.row),
        by.op_name if by else key.node.rpartition("/")[2],
        by.task if by else 0,
        by.stream if by else 0,
        by.timestamp if by else 0,
        key.side.name.lower(),
        key.slot,
        meta.nbytes if meta is not None else 0,
        meta.dtype if meta is not None else "",
        f"({','.join(map(str, shape))})",
        *(_numbers(stats) if stats is not None else ("nan", "nan", "nan", math.prod(shape), 0, 0, 0, 0, 0, 0)),
    )
    return dict(zip(COLUMNS, map(str, values), strict=True))


def _numbers(stats: TensorStats) -> tuple[object, ...]:
    moments = (stats.maximum, stats.minimum, stats.mean)
    return (
        *("nan" if value is None else repr(float(value)) for value in moments),
        *(stats.count, stats.negative, stats.positive, stats.nan, stats.neg_inf, stats.pos_inf, stats.zero),
    )


def _summarised(
    statistics: StatisticRows,
    overflow_value: float,
) -> dict[str, SummaryStatistic]:
    summary: dict[str, SummaryStatistic] = {}
    for steps in statistics.values():
        for tensors in steps.values():
            for name, rows in tensors.items():
                for row in rows:
                    _count(summary, row if isinstance(row, TensorStatistic) else _parsed(row), overflow_value)
                if name in summary:
                    summary[name].total_iterations += 1
    return summary


def _count(summary: dict[str, SummaryStatistic], row: TensorStatistic, overflow_value: float) -> None:
    name = f"{row.op_name}:{row.io}:{row.slot}"
    entry = summary.setdefault(name, SummaryStatistic(row.op_type, row.op_name, name))
    low, high = float(row.min_value), float(row.max_value)
    has_inf = bool(row.positive_inf_count or row.negative_inf_count)
    has_nan = bool(row.nan_count)
    # Older MindSpore writes low > high without finite elements: such extremes say nothing.
    beyond = not low > high and (abs(low) > overflow_value or abs(high) > overflow_value)
    entry.total_number += 1
    entry.inf_number += has_inf
    entry.nan_number += has_nan
    entry.out_of_range_number += beyond
    entry.none_overflow_number += not (has_inf or has_nan or beyond)


def _parsed(row: Mapping[str, Any]) -> TensorStatistic:
    """Returns the parts of a dict row that a summary needs; missing or invalid numbers are 0."""

    def number(title: str) -> float | None:
        try:
            return float(row[title])
        except (KeyError, TypeError, ValueError):
            return None  # not recorded, null, or an empty field

    extremes = [number("Max Value"), number("Min Value")]

    def count(title: str, *seen: float) -> int:
        value = number(title)
        if value is None:  # without a count use the extremes
            return sum(each in seen or (not seen and math.isnan(each)) for each in extremes if each is not None)
        return int(value) if math.isfinite(value) else 0

    return TensorStatistic(
        op_type=str(row.get("Op Type", "unknown")),
        op_name=str(row.get("Op Name", "unknown")),
        io=str(row.get("IO", "output")),
        slot=row.get("Slot", 0),
        max_value=extremes[0] or 0.0,
        min_value=extremes[1] or 0.0,
        nan_count=count("NaN Count"),
        negative_inf_count=count("Negative Inf Count", -math.inf),
        positive_inf_count=count("Positive Inf Count", math.inf),
    )


def export_graphs(session: Session, output_dir: str | os.PathLike[str] | None = None) -> str:
    """Writes the graphs of all ranks as a new workbook ``dump_YYYYmmdd_HHMMSS.xlsx`` and returns its path.

    Sheets and columns are MindInsight's: info, constant, parameter, operator, statistics, source. Without openpyxl
    every sheet becomes a csv file, and the operators' path is returned. Raises TdbgError when the directory (None: the
    current one) is inside the dump, or cannot be written.
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
    number, chosen = 2, stem
    while any(chosen.parent.glob(f"{chosen.name}[._]*")):
        chosen, number = stem.with_name(f"{stem.name}-{number}"), number + 1
    return chosen
