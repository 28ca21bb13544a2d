"""Reads msprobe's trend databases (``msprobe data2db``): statistics of a dump or a monitor of all ranks, in SQLite.

NaN is stored as NULL, an Inf as ±1000000001, and numbers beyond ±1e9 as ±1e9. The columns of statistics differ between
databases: they are found by name. The database is opened read-only, and only plain tables of it are read.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from tui_debugger import opener
from tui_debugger.graph.table import PARAMETER
from tui_debugger.model import Side
from tui_debugger.opener import open_regular
from tui_debugger.sources.logs.entries import (
    NO_TRACE,
    Hashes,
    LoggedStep,
    LogNumbers,
    LogOperation,
    LogTensor,
    number_rounds,
    scope,
)
from tui_debugger.sources.logs.msprobe_monitor import STATISTICS, MonitorRow, numbers_of, step_of

NOTICES: Final = (
    "a trend database has statistics, no values, no types and no shapes: one element stands for all but counted NaN",
    "a trend database stores what is beyond ±1e9 as ±1e9: such a number is that or larger; ±1000000001 is Inf",
)
_FROM_DUMP: Final = (
    "all statistics missing (NULL) counts as NaN: the database does not tell NaN from nothing",
    "steps are training steps only if the database was made with --micro_step false",
    "else each step is forward and backward of a part of one, and a gradient may come before what made it bad",
)
_FROM_MONITOR: Final = ("numbers have six decimals: 0.0 is not known, never zero",)
_INF: Final = 1e9 + 1
_CLAMPED: Final = 1e9
_MOST: Final = 1 << 40
"""Limit of steps, ranks and calls: a larger number is invalid."""
_MOST_RANKS: Final = 100_000
_DUMP_METRICS: Final = ("forward", "recompute", "backward", "parameters_grad")
_SIDE: Final = re.compile(r"(.+)\.(input|output|parameters|kwargs)\.(.+)", re.DOTALL)
_SLOT: Final = re.compile(r"\d{1,4}")


def ranks_of(path: str) -> tuple[list[int], list[str]]:
    """Returns the ranks in a database, and notices about it; raises OSError or ValueError when it cannot be read."""
    with _opened(path) as database:
        found, last = list[int](), -1
        while len(found) < _MOST_RANKS:
            (rank,) = database.execute("SELECT min(rank) FROM trend_data WHERE rank > ?", (last,)).fetchone()
            if not _is_number(rank):
                break
            found.append(rank)
            last = rank
        if not found:
            raise ValueError("no rank in it")
        return found, list(_FROM_DUMP if _is_dump(database) else _FROM_MONITOR)


def read(paths: Sequence[str], rank: int) -> dict[int, LoggedStep]:
    """Returns the steps of one rank; raises OSError or ValueError when the database cannot be read."""
    steps: dict[int, list[tuple[int, MonitorRow, int]]] = {}
    clamped: dict[int, int] = {}
    problems = list[str]()
    with _opened(paths[0]) as database:
        dump = _is_dump(database)
        columns: list[str] = [name for name in STATISTICS if name in _columns(database, "trend_data")]
        if not columns:
            raise ValueError("no column of statistics that is known")
        metrics = dict(database.execute("SELECT metric_id, metric_name FROM monitoring_metrics"))
        targets = {
            number: (name, stage, call)
            for number, name, stage, call in database.execute(
                "SELECT target_id, target_name, vpp_stage, micro_step FROM monitoring_targets"
            )
        }
        strange = 0
        try:
            for step, target, metric, *values in database.execute(
                f"SELECT step, target_id, metric_id, {', '.join(columns)} FROM trend_data WHERE rank = ?",  # noqa: S608 - names of STATISTICS
                (rank,),
            ):
                name, stage, call = targets.get(target, ("", 0, 0))
                kind = metrics.get(metric)
                if not (_is_number(step) and isinstance(name, str) and name and isinstance(kind, str)):
                    strange += 1
                    continue
                texts = {
                    column: "" if value is None else repr(value) for column, value in zip(columns, values, strict=True)
                }
                numbers, beyond = _numbers(dict(zip(columns, values, strict=True)), dump=dump)
                if not dump and all(value is None for value in values):
                    continue  # there was no tensor
                clamped[step] = clamped.get(step, 0) + beyond
                at = stage if _is_number(stage) else 0
                row = MonitorRow(name, kind, at, numbers, "", None, texts)
                steps.setdefault(step, []).append((target, row, call if _is_number(call) else 0))
        except sqlite3.Error as error:
            problems.append(f"{error}: what follows is not there")
    if strange:
        problems.append(f"{strange:,} rows that belong to no tensor: their step is not known")
    if problems and not steps:
        raise ValueError("; ".join(problems))
    updated = any(row.scope == "param_updated" for rows in steps.values() for _, row, _ in rows)
    found = {}
    for number in sorted(steps):
        rows = sorted(steps[number], key=lambda each: (each[0], each[2]))
        said = [*problems]
        if clamped.get(number):
            said.append(f"{clamped[number]:,} numbers are clamped to ±1e9: they are that or larger")
        if dump:
            found[number] = _dump_step(rows, said)
        else:
            found[number] = step_of([row for _, row, _ in rows], said, updated=updated)
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    """Opens a database read-only; raises OSError or ValueError when it cannot be read."""
    if opener.is_mounted(path):
        raise ValueError("a database cannot be read in a tar or at a URL: unpack or copy it")
    descriptor, _ = open_regular(path)
    opener.close(descriptor)
    try:
        database = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", uri=True)  # noqa: PTH100 - text
        try:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA query_only = ON")
            for table in ("trend_data", "monitoring_targets", "monitoring_metrics"):
                _check_plain(database, table)
            yield database
        finally:
            database.close()
    except (sqlite3.Error, OverflowError) as error:
        raise ValueError(f"no database, or damaged: {error}") from error


def _check_plain(database: sqlite3.Connection, table: str) -> None:
    """Raises ValueError unless the name is a table without computed columns."""
    rows = database.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    if len(rows) != 1 or rows[0][0] != "table" or not str(rows[0][1]).upper().startswith("CREATE TABLE"):
        raise ValueError(f"no table {table}")
    if any(row[-1] for row in database.execute(f"PRAGMA table_xinfo({table})")):
        raise ValueError(f"the table {table} computes what it holds")


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]


def _is_dump(database: sqlite3.Connection) -> bool:
    names = {name for (name,) in database.execute("SELECT metric_name FROM monitoring_metrics LIMIT 100")}
    return bool(names.intersection(_DUMP_METRICS))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _MOST


def _numbers(values: dict[str, object], *, dump: bool) -> tuple[LogNumbers | None, int]:
    """The statistics of a row, and how many of them are clamped."""
    if dump and all(value is None for value in values.values()):
        return LogNumbers(minimum=math.nan, maximum=math.nan, mean=math.nan, l2=math.nan), 0
    found: dict[str, float] = {}
    beyond = 0
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, int | float):
            return None, 0
        number = float(value)
        if abs(number) >= _INF:
            number = math.copysign(math.inf, number)
        elif abs(number) == _CLAMPED and name != "nans":
            beyond += 1
        found[name] = number
    return numbers_of(found, rounded=not dump), beyond


def _dump_step(rows: Sequence[tuple[int, MonitorRow, int]], problems: Sequence[str]) -> LoggedStep:
    """The calls of a step: forward in the order of the database, backward in reverse."""
    operations: dict[str, LogOperation] = {}
    last: dict[str, tuple[int, int]] = {}
    for target, row, call in rows:
        operation, side, slot = _call(row, call)
        known = operations.setdefault(operation.name, operation)
        free = slot if slot >= 0 else sum(each.side is side for each in known.tensors)
        known.tensors.append(LogTensor(side, free, row.numbers, others=row.texts))
        phase = _DUMP_METRICS.index(row.scope) if row.scope in _DUMP_METRICS else len(_DUMP_METRICS)
        last.setdefault(known.name, (phase, -target if row.scope == "backward" else target))
        if row.scope != "backward":
            last[known.name] = phase, target
    ordered = sorted(operations.values(), key=lambda each: last[each.name])
    number_rounds(ordered)
    _infer(ordered)
    return LoggedStep(ordered, list(problems))


def _call(row: MonitorRow, call: int) -> tuple[LogOperation, Side, int]:
    """The call of a tensor, its side and slot; slot -1: the next free one."""
    prefix = f"vpp{row.stage}." if row.stage > 0 else ""
    match = _SIDE.fullmatch(row.target)
    name, kind, rest = (match[1], match[2], match[3]) if match is not None else (row.target, "output", "0")
    family, _, plain = name.partition(".")
    module = family in {"Module", "Cell"}
    path = f"{prefix}{plain if module and plain else name}"
    if kind == "parameters" and row.scope == "forward":
        owner = path.rpartition(".")[0] or path
        weight = f"{owner}.{rest}"
        return LogOperation(weight, weight.replace(".", "/"), PARAMETER), Side.OUTPUT, 0
    if row.scope == "parameters_grad":
        owner, _, leaf = row.target.partition(".")[2].rpartition(".")
        weight = f"{prefix}{owner.rpartition('.')[0] or owner}.{leaf}"
        return LogOperation(f"{weight}/grad", scope(weight, "grad", backward=True), "grad"), Side.OUTPUT, 0
    numbered = f"{path}.{call}"
    backward = row.scope == "backward"
    # A backward puts out the gradient of an input.
    side = Side.INPUT if (kind in {"input", "kwargs"}) != backward else Side.OUTPUT
    before = "Gradients/" if backward else "Recomputed/" if row.scope == "recompute" else ""
    leaf = name.rpartition(".")[2]
    slot = int(rest) if _SLOT.fullmatch(rest) else -1
    return LogOperation(before + numbered, f"{before}{numbered.replace('.', '/')}", leaf), side, slot


def _infer(operations: Sequence[LogOperation]) -> None:
    """Joins inputs with the last earlier output that has equal statistics."""
    made = Hashes()
    for number, operation in enumerate(operations):
        count = max((each.slot + 1 for each in operation.tensors if each.side is Side.INPUT), default=0)
        inputs: list[tuple[int, int] | str] = [(-1, 0)] * min(count, 4096)
        for entry in operation.tensors:
            if entry.side is Side.INPUT and entry.slot < len(inputs) and entry.round < 2 and entry.others:
                found = made.find(tuple(entry.others.items()))
                if not any(entry.others.values()):
                    inputs[entry.slot] = NO_TRACE
                elif found[0] >= 0:
                    inputs[entry.slot] = found
                    operation.inferred += 1
        modules = {
            made.find(tuple(entry.others.items()))
            for entry in operation.tensors
            if entry.side is Side.OUTPUT and any(entry.others.values())
        }
        for source in sorted(modules - {(-1, 0)}):  # a module puts out the output of the last call inside it
            inputs.append(source)
            operation.inferred += 1
        if operation.type == "grad" or operation.name.startswith("Gradients/"):
            inputs.append((-1, 0))  # values of the forward, which the database does not name
        operation.inputs = inputs
        for entry in operation.tensors:
            if entry.side is Side.OUTPUT and entry.round < 2 and operation.type != PARAMETER:
                made.made(number, entry.slot, tuple(entry.others.items()))
