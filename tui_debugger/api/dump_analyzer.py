"""The dump analyzer: selects nodes and tensors of a dump, checks watchpoints, exports."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.api.conditions import (
    ConditionBase,
    Numbers,
    TableCondition,
    checked,
    memory_limit,
    numbers,
    slot_numbers,
    wrong_type,
)
from tui_debugger.api.hits import Hits, Watchpoint, WatchpointHit
from tui_debugger.api.nodes_and_tensors import (
    DebuggerTensor,
    DebuggerTensors,
    Node,
    TensorColumns,
    at_iterations,
    columns_of,
    joined,
    row_in,
)
from tui_debugger.api.run import Run
from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.outputs import OutputHits, OutputTensors, WatchedOutputs
from tui_debugger.check.results import combined, parts_text
from tui_debugger.errors import BadQueryError, DebuggerParamTypeError, DebuggerParamValueError
from tui_debugger.graph.search import compile_pattern
from tui_debugger.model import Coverage, ErrorBits, Hit, ProgressFn, UnreadablePart, Verdict, WatchResult, no_progress
from tui_debugger.model import Watchpoint as CoreWatchpoint
from tui_debugger.mounts.refusals import allow_redirects
from tui_debugger.session.session import open_dump
from tui_debugger.text.clean import clean
from tui_debugger.watch.condition_table import EXPRESSION, WIRE_OPERATOR_OVERFLOW

if TYPE_CHECKING:
    from tui_debugger.api.statistic import StatisticRows, Statistics

__all__ = ["DumpAnalyzer"]


_log = logging.getLogger("tui_debugger")


def check(
    run: Run, watchpoints: Iterable[Watchpoint], error_on_no_value: bool, progress: ProgressFn = no_progress
) -> Hits:
    if not isinstance(watchpoints, Iterable):
        raise wrong_type(watchpoints, "watchpoints", "a list of Watchpoint")
    given = [checked(watchpoint, "watchpoints", Watchpoint, "a list of Watchpoint") for watchpoint in watchpoints]
    conditions = [watchpoint.condition for watchpoint in given]
    cores = [_core(number, condition) for number, condition in enumerate(conditions)]
    hits: list[WatchpointHit] = []
    unvalued: Counter[int] = Counter()
    covers = [Coverage(watched=tuple((core.id, 0) for core in cores))]
    by_step = _by_step([columns_of(watchpoint.tensors, run) for watchpoint in given])
    for step, ranks in by_step.items():
        found: list[tuple[tuple[int, int], int, WatchpointHit]] = []
        missing: list[tuple[int, WatchpointHit]] = []
        for rank, parts in ranks.items():
            outputs = run.outputs(rank)
            watches = [WatchedOutputs(cores[number], part.row, part.slot) for number, part in parts]
            answer = outputs.judge(step, watches, progress)
            covers.append(answer.coverage)
            run.warn_of_unknown(rank, step, outputs)
            numbers = [number for number, _ in parts]
            comparable = _comparable(answer, numbers, error_on_no_value)
            unvalued.update(numbers[watch] for watch, _ in answer.hits)
            unvalued.subtract(number for number, _ in comparable)
            for number, hit in comparable:
                found.append((hit.order, number, _hit(run, conditions[number], hit)))
            if error_on_no_value:
                valueless = _valueless(outputs, step, answer, numbers, cores)
                missing += [(number, _hit(run, conditions[number], hit)) for number, hit in valueless]
        found.sort(key=lambda each: each[0])  # stable: ranks ascend, and inside a tensor the watchpoints
        missing.sort(key=lambda each: each[0])
        hits += [hit for _, _, hit in found]
        hits += [hit for _, hit in missing]
    cover = combined(covers)
    result = Hits(hits, dataclasses.replace(cover, parts=_unlisted(run, by_step)))
    _warn(conditions, result, unvalued)
    return result


def _unlisted(run: Run, by_step: dict[int, dict[int, _Parts]]) -> tuple[UnreadablePart, ...]:
    there = {rank for rank in run.session.ranks() if run.session.steps(rank)}
    pairs = [(rank, step) for step, ranks in by_step.items() for rank in ranks]
    parts = run.session.unreadable(pairs) if pairs else ()
    chosen = {rank for rank, _ in pairs}
    if chosen >= there:
        return parts
    known = there | chosen  # some ranks were not chosen, perhaps the rank of a part
    return tuple(part for part in parts if part.rank is None or part.rank in known)


def _warn(conditions: Sequence[ConditionBase], hits: Hits, unvalued: Mapping[int, int]) -> None:
    """Logs what a list of hits does not show; ``unvalued`` counts tensors left out for each watchpoint."""
    if hits.coverage.parts:
        _log.warning("cannot judge: %s", clean(parts_text(hits.coverage.parts)))
    for number, condition in enumerate(conditions):
        if unvalued.get(number):
            _log.warning(
                "%s cannot be judged on %d tensors: of these only statistics were dumped, and it needs more"
                " (error_on_no_value=True lists them)",
                *(type(condition).__name__, unvalued[number]),
            )
    watched = dict(hits.coverage.watched)
    by_device = [at for at, condition in enumerate(conditions) if condition.condition_id == WIRE_OPERATOR_OVERFLOW]
    if not all(watched.get(number) for number in by_device):
        _log.warning("OperatorOverflowCondition cannot be judged: this dump does not tell whether it holds")
    elif conditions and not hits and not hits.coverage.checked:
        _log.warning("nothing was checked: no tensor under the watchpoints that they could judge was dumped")


def _core(number: int, condition: ConditionBase) -> CoreWatchpoint:
    if not isinstance(condition, TableCondition):
        raise DebuggerParamTypeError(
            f"{type(condition).__name__} cannot be checked", hint="use one of the conditions of tui_debugger"
        )
    return CoreWatchpoint(number, condition.row.id, tuple(condition.param_dict.items()))


_Parts = list[tuple[int, TensorColumns]]
"""(number of the watchpoint, its tensors without repetition)."""


def _by_step(columns: Sequence[TensorColumns]) -> dict[int, dict[int, _Parts]]:
    found: dict[int, dict[int, _Parts]] = {}
    for number, each in enumerate(columns):
        for step, rank, where in each.groups():
            part = each.take(where)
            _, first = np.unique(part.row.astype(np.int64) << 32 | part.slot, return_index=True)
            found.setdefault(step, {}).setdefault(rank, []).append((number, part.take(np.sort(first))))
    return {step: dict(sorted(ranks.items())) for step, ranks in sorted(found.items())}


def _comparable(answer: OutputHits, numbers: Sequence[int], with_valueless: bool) -> list[tuple[int, Hit]]:
    """Returns the hits by watchpoint; the error "no value" only shows ``with_valueless``."""
    hits = []
    for number, hit in answer.hits:
        (result,) = hit.results
        unknown = result.condition == EXPRESSION  # more than values may be missing
        if result.error & ErrorBits.NO_VALUE and not with_valueless and not unknown:
            if result.error == ErrorBits.NO_VALUE:
                continue
            result = dataclasses.replace(result, error=result.error & ~ErrorBits.NO_VALUE)
            hit = dataclasses.replace(hit, results=(result,))  # noqa: PLW2901 - the same hit, told otherwise
        hits.append((numbers[number], hit))
    return hits


def _valueless(
    outputs: OutputTensors, step: int, answer: OutputHits, numbers: Sequence[int], cores: Sequence[CoreWatchpoint]
) -> list[tuple[int, Hit]]:
    rows = []
    for watch, output in answer.valueless:
        number = numbers[watch]
        result = WatchResult(number, cores[number].condition, Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE)
        rows.append((number, Hit(outputs.key(step, output), output[0], (result,), (step, 0))))
    return rows


def _hit(run: Run, condition: ConditionBase, hit: Hit) -> WatchpointHit:
    key = hit.key
    return WatchpointHit(DebuggerTensor(Node(run, key.rank, hit.row), key.slot, key.step), condition, hit)


class Query:
    """The query of ``select_nodes``: ``text``, whether to search stacks instead of names, and the test of a text."""

    def __init__(self, text: str, use_regex: bool, select_by: str, case_sensitive: bool) -> None:
        self.text = checked(text, "query_string", str, "a str")
        regex = checked(use_regex, "use_regex", bool, "a bool")
        case = checked(case_sensitive, "case_sensitive", bool, "a bool")
        if select_by not in ("node_name", "code_stack"):  # a tuple, because a set cannot test an unhashable value
            raise DebuggerParamValueError(
                f"select_by is {select_by!r}", hint='select_by takes "node_name" or "code_stack"'
            )
        self.by_stack = select_by == "code_stack"
        self.matches = _searched(text, case) if regex else _contained(text, case)


def _searched(text: str, case: bool) -> Callable[[str], bool]:
    try:
        search = compile_pattern(text, case_sensitive=case).search
    except BadQueryError as error:
        raise DebuggerParamValueError(error.what, where=error.where, hint=error.hint) from error
    return lambda each: search(each) is not None


def _contained(text: str, case: bool) -> Callable[[str], bool]:
    lower = text.lower()
    return (lambda each: text in each) if case else (lambda each: lower in each.lower())


class DumpAnalyzer:
    """A dump, for scripts: selects nodes and tensors, reads them, and checks watchpoints.

    Programs for ``mindinsight.debugger`` run unchanged but for the import. The dump is never written to, no process is
    started (no ``if __name__ == "__main__"`` is needed), and the training framework need not be installed. Read data is
    kept until ``close()`` or the end of a ``with`` statement. Raises NotADumpError without a dump at the path. Wrong
    arguments raise DebuggerParamTypeError or DebuggerParamValueError, here and in all methods.

    Args:
        dump_dir: the dump directory, up to two levels above it, or a part of it: a rank, a step, a file.
        mem_limit: None, or 2048 to 2147483647 (MB). Accepted for compatibility; no tensor is too large.
        redirect_to: further hosts (``"HOST"``, ``"HOST:PORT"``) to which the web server of a URL may redirect.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, TensorOverflowCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> with DumpAnalyzer(demo_dump()) as run:
        ...     watchpoint = Watchpoint(run.select_tensors(""), TensorOverflowCondition())
        ...     hit = run.check_watchpoints([watchpoint])[0]
        ...     print(hit.tensor.iteration, hit.tensor.node.name)
        3 Default/network-WithLossCell/_backbone-Net/Log-op381
    """

    def __init__(
        self,
        dump_dir: str | os.PathLike[str],
        mem_limit: int | None = None,
        *,
        redirect_to: Iterable[str] = (),
    ) -> None:
        if not isinstance(dump_dir, str | os.PathLike):
            raise wrong_type(dump_dir, "dump_dir", "a path")
        if not os.fspath(dump_dir):
            raise DebuggerParamValueError("dump_dir is empty", hint='"." is the working directory')
        memory_limit(mem_limit)
        hosts = [redirect_to] if isinstance(redirect_to, str) else list(redirect_to)
        if not all(isinstance(host, str) for host in hosts):
            raise wrong_type(redirect_to, "redirect_to", "names of hosts")
        allow_redirects(hosts, besides=True)
        self._run = Run(open_dump(Path(dump_dir).expanduser()))

    def __enter__(self) -> DumpAnalyzer:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<DumpAnalyzer, closed>" if self._run.closed else f"<DumpAnalyzer of {self._run.session.info.path}>"

    def close(self) -> None:
        """Frees all data; nodes and tensors of this analyzer are unusable afterwards. Idempotent."""
        self._run.close()

    # -- the run -----------------------------------------------------------------------------------

    def get_ranks(self) -> list[int]:
        """Returns the dumped ranks, ascending.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> DumpAnalyzer(demo_dump()).get_ranks()
            [0]
        """
        return list(self._run.session.ranks())

    def get_iterations(self, ranks: Numbers = None) -> list[int]:
        """Returns the dumped iterations (steps) of ``ranks`` (None: all), ascending.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> DumpAnalyzer(demo_dump()).get_iterations()
            [0, 1, 2, 3, 4, 5]
        """
        chosen = numbers(ranks, "ranks", self.get_ranks())
        return sorted({step for rank in chosen for step in self._run.session.steps(rank)})

    # -- selecting ---------------------------------------------------------------------------------

    def select_nodes(
        self,
        query_string: str,
        use_regex: bool = False,
        select_by: str = "node_name",
        ranks: Numbers = None,
        case_sensitive: bool = True,
    ) -> list[Node]:
        r"""Returns the matching nodes: for each rank the constants, then the parameters, then the operators.

        Without a graph, nodes are what has files in any step, without stacks and neighbours.

        Args:
            query_string: a part of the text, case-sensitive; empty matches everything.
            use_regex: ``query_string`` is a regular expression, searched anywhere.
            select_by: ``node_name``, or ``code_stack``: any entry of the stack (path, line number and code).
            ranks: None means all.
            case_sensitive: False ignores case.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> [node.name for node in run.select_nodes(r"^head\.", use_regex=True)]
            ['head.bias', 'head.weight']
            >>> [node.name.rpartition("/")[2] for node in run.select_nodes("train_nan.py:31", select_by="code_stack")]
            ['Abs-op379', 'ReduceSum-op384', 'Div-op385']
        """
        query = Query(query_string, use_regex, select_by, case_sensitive)
        return [
            Node(self._run, rank, row)
            for rank in numbers(ranks, "ranks", self.get_ranks())
            for row in self._matching(rank, query).tolist()
        ]

    def select_tensors(  # noqa: PLR0917 - the old signature
        self,
        query_string: str,
        use_regex: bool = False,
        select_by: str = "node_name",
        iterations: Numbers = None,
        ranks: Numbers = None,
        slots: list[int] | None = None,
        case_sensitive: bool = True,
    ) -> DebuggerTensors:
        """Returns the output tensors of the matching nodes, by node, then slot, then iteration; reads no tensor.

        Arguments are as in ``select_nodes``; ``iterations`` and output ``slots`` are None for all.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> len(run.select_tensors(""))
            3510
            >>> [tensor.iteration for tensor in run.select_tensors("Log-op381", iterations=[2, 3], slots=[0])]
            [2, 3]
        """
        query = Query(query_string, use_regex, select_by, case_sensitive)
        slots = slot_numbers(slots)
        chosen = numbers(ranks, "ranks", self.get_ranks())
        steps = numbers(iterations, "iterations", self.get_iterations(chosen))
        parts = []
        for rank in chosen:
            rows = self._matching(rank, query)
            count = np.maximum(self._run.nodes(rank).outputs[rows], 0).astype(np.int64)
            owner = np.repeat(rows, count)
            slot = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            if slots is not None:
                kept = np.isin(slot, np.array(slots, np.int64))
                owner, slot = owner[kept], slot[kept]
            parts.append(at_iterations(self._run, rank, owner, slot, steps))
        return DebuggerTensors(self._run, joined(parts))

    def _matching(self, rank: int, query: Query) -> Int64:
        view, nodes = self._run.view(rank), self._run.nodes(rank)
        if query.by_stack:
            hit = [any(map(query.matches, texts)) for texts in view.texts]
            mask: Mask = np.array([*hit, False], np.bool_)[nodes.stack_id]  # -1: no stack
        elif not query.text:
            return view.rows
        else:
            mask = np.fromiter(map(query.matches, nodes.names), np.bool_, len(nodes))
        return view.rows[mask[view.rows]]

    # -- neighbours --------------------------------------------------------------------------------

    def get_input_nodes(self, node: Node) -> list[Node]:
        """Returns the nodes that feed a node, in input order, with routing nodes (Load, UpdateState).

        The parameter that an Assign writes to is left out.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> node = run.select_nodes("RowNorm/Div-op385")[0]
            >>> [each.name.rpartition("/")[2] for each in run.get_input_nodes(node)]
            ['inputs0', 'ReduceSum-op384']
        """
        rank, row = self._place(node)
        return [Node(self._run, rank, each) for each in self._run.view(rank).inputs(row)]

    def get_output_nodes(self, node: Node) -> list[Node]:
        """Returns the nodes that a node feeds; a node that reads it twice occurs twice.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> node = run.select_nodes("RowNorm/Abs-op379")[0]
            >>> [each.name.rpartition("/")[2] for each in run.get_output_nodes(node)]
            ['ReduceSum-op384', 'ReduceSum-op380']
        """
        rank, row = self._place(node)
        return [Node(self._run, rank, each) for each in self._run.view(rank).readers(row)]

    def list_affected_nodes(self, tensor: DebuggerTensor) -> list[Node]:
        """Returns the nodes that read any output of the tensor's node.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> tensor = run.select_tensors("Log-op381")[0]
            >>> [node.name.rpartition("/")[2] for node in run.list_affected_nodes(tensor)]
            ['ReduceSum-op382']
        """
        return self.get_output_nodes(checked(tensor, "tensor", DebuggerTensor, "a DebuggerTensor").node)

    def _place(self, node: Node) -> tuple[int, int]:
        return checked(node, "node", Node, "a Node").rank, row_in(self._run, node)

    # -- checking ----------------------------------------------------------------------------------

    def check_watchpoints(self, watchpoints: Iterable[Watchpoint], error_on_no_value: bool = False) -> Hits:
        """Checks watchpoints together: every tensor is read once, and results are kept for the next check.

        Returns hits by iteration, execution order, rank and watchpoint. Tensors that could not be compared (NaN, Inf,
        no previous step) are among them: ``error_code`` says why. With ``error_on_no_value`` tensors without dumped
        values follow, with error code 32. Constants are never checked. ``coverage`` says how many tensors were checked;
        none is logged as a warning.

        Examples:
            >>> from tui_debugger import DumpAnalyzer, TensorAllZeroCondition, TensorTooLargeCondition, Watchpoint
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> tensors = run.select_tensors("train_nan.py:31", select_by="code_stack", iterations=[2, 3])
            >>> hits = run.check_watchpoints([
            ...     Watchpoint(tensors, TensorTooLargeCondition(abs_mean_gt=10)),
            ...     Watchpoint(tensors, TensorAllZeroCondition(zero_percentage_ge=99.9)),
            ... ])
            >>> [(hit.tensor.node.name.rpartition("/")[2], hit.tensor.iteration, hit.error_code) for hit in hits]
            [('ReduceSum-op384', 2, 0), ('Div-op385', 3, 1), ('Div-op385', 3, 1)]
        """
        return check(self._run, watchpoints, bool(error_on_no_value))

    # -- exporting ---------------------------------------------------------------------------------

    def export_graphs(self, output_dir: str | os.PathLike[str] | None = None) -> str:
        """Writes nodes with types, shapes, inputs and stacks to a workbook (without openpyxl: csv); returns its path.

        ``output_dir`` must be outside the dump; None means the current directory.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> import os
            >>> path = DumpAnalyzer(demo_dump()).export_graphs("graphs")
            >>> os.listdir("graphs") == [os.path.basename(path)]  # dump_20260101_120000.xlsx
            True
        """
        from tui_debugger.api.statistic import export_graphs

        return export_graphs(self._run.session, None if output_dir is None else os.fspath(output_dir))

    def select_tensor_statistics(self, iterations: Numbers = None, ranks: Numbers = None) -> Statistics:
        """Returns the recorded statistics (statistic.csv), else statistics computed from the values.

        The result is ``{rank: {iteration: {"op:io:slot": [row, ...]}}}``, each row a dict of text by column title.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> (row,) = DumpAnalyzer(demo_dump()).select_tensor_statistics(3, 0)[0][3]["Log-op381:output:0"]
            >>> row["Op Type"], row["Shape"], row["Negative Inf Count"]
            ('Log', '(4)', '1')
        """
        from tui_debugger.api.statistic import select_tensor_statistics

        chosen = numbers(ranks, "ranks", self.get_ranks())
        steps = numbers(iterations, "iterations", self.get_iterations(chosen))
        return select_tensor_statistics(self._run.session, steps, chosen)

    def summary_statistics(
        self,
        statistics: StatisticRows,
        overflow_value: float = 65500,
        out_path: str | os.PathLike[str] = "./",
    ) -> None:
        """Writes ``statistics_summary.csv``: per tensor, in how many rows it had NaN, infinite or large elements.

        ``statistics`` come from ``select_tensor_statistics``; a magnitude above ``overflow_value`` is large.
        ``out_path`` is a directory outside the dump, made if needed; a file of that name is replaced.

        Examples:
            >>> from tui_debugger import DumpAnalyzer
            >>> from tui_debugger.demo import demo_dump
            >>> run = DumpAnalyzer(demo_dump())
            >>> run.summary_statistics(run.select_tensor_statistics(iterations=[2, 3]), out_path="summary")
            >>> import csv
            >>> with open("summary/statistics_summary.csv") as file:
            ...     rows = {row["tensor_name"]: row for row in csv.DictReader(file)}
            >>> rows["Log-op381:output:0"]["inf_number"], rows["Log-op381:output:0"]["total_number"]
            ('1', '2')
        """
        from tui_debugger.api.statistic import summary_statistics

        if not isinstance(statistics, Mapping):
            raise wrong_type(statistics, "statistics", "what select_tensor_statistics gave")
        dump = Path(self._run.session.info.path)
        summary_statistics(statistics, overflow_value, os.fspath(out_path), dump=dump)
