"""Watchpoints, and the hits from checking them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tui_debugger.api.conditions import ConditionBase, checked
from tui_debugger.api.nodes_and_tensors import DebuggerTensor, DebuggerTensors
from tui_debugger.model import Coverage, ErrorBits, Hit, ParamResult, Verdict
from tui_debugger.text.documents import Row
from tui_debugger.text.rows import flat_hit_rows
from tui_debugger.watch.condition_table import WIRE_NOT_CHANGED

__all__ = ["HitDetail", "HitParam", "Hits", "Watchpoint", "WatchpointHit"]


class Watchpoint:
    """A condition on tensors, which are the result of ``select_tensors`` or a list.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, TensorTooLargeCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> tensors = run.select_tensors("Log-op381")
        >>> watchpoint = Watchpoint(tensors=tensors, condition=TensorTooLargeCondition(abs_mean_gt=0.0))
        >>> print(watchpoint.condition.name, len(watchpoint.tensors))
        TensorTooLarge 6
    """

    def __init__(self, tensors: DebuggerTensors | list[DebuggerTensor], condition: ConditionBase) -> None:
        if not isinstance(tensors, DebuggerTensors):
            for tensor in checked(tensors, "tensors", list, "a list of DebuggerTensor"):
                checked(tensor, "tensors", DebuggerTensor, "a list of DebuggerTensor")
        self._tensors = tensors
        self._condition = checked(condition, "condition", ConditionBase, "a condition")

    def __repr__(self) -> str:
        return f"<Watchpoint {self._condition!r} on {len(self._tensors)} tensors>"

    @property
    def tensors(self) -> DebuggerTensors | list[DebuggerTensor]:
        return self._tensors

    @property
    def condition(self) -> ConditionBase:
        return self._condition


_SENTENCES = {
    ErrorBits.NAN: "Tensor contains NaN.",
    ErrorBits.INF: "A tensor contains +/-INF.",
    ErrorBits.NO_PREVIOUS: "The previous step value cannot be found.",
    ErrorBits.OUT_OF_MEMORY: "The tensor size exceeds the memory limit.",
    ErrorBits.NO_HISTORY: "Graph history file is not available.",
    ErrorBits.NO_VALUE: "Tensor has no value.",
    ErrorBits.SHAPE_CHANGED: "The shape differs from that of the previous step.",
    ErrorBits.UNREADABLE: "The tensor or its value of the previous step cannot be read.",
}


class HitParam(str):
    """A parameter of a hit: its name as text, with threshold and actual value.

    ``value`` is the threshold or the text of an expression; ``quantities`` holds the values of its names.
    ``actual_value`` is 0 when it was not evaluated (tolerances, ends of a range). ``disabled`` is always False.
    """

    __slots__ = ("actual_value", "disabled", "hit", "quantities", "value")
    value: float | str
    hit: bool
    actual_value: float
    disabled: bool
    quantities: dict[str, float | str | None]

    @classmethod
    def of(cls, result: ParamResult) -> HitParam:
        param = cls(result.name)
        param.value = result.value
        param.hit = result.hit
        param.actual_value = 0.0 if result.actual is None else result.actual
        param.disabled = False
        param.quantities = dict(result.quantities)
        return param

    @property
    def name(self) -> str:
        return str(self)


class HitDetail(ConditionBase):
    """The condition of a hit with the actual values in place of the thresholds."""

    def __init__(self, condition: ConditionBase, results: Sequence[ParamResult]) -> None:
        self._condition = condition
        self._params = tuple(HitParam.of(result) for result in results if result.name in condition.param_dict)

    @property
    def name(self) -> str:
        return self._condition.name

    @property
    def condition_id(self) -> int:
        return self._condition.condition_id

    @property
    def param_names(self) -> list[str]:
        return self._condition.param_names

    @property
    def params(self) -> tuple[HitParam, ...]:
        """The parameters that were set, with threshold, actual value and hit."""
        return self._params

    @property
    def param_dict(self) -> dict[str, float]:
        return {param: param.actual_value for param in self._params}

    def __repr__(self) -> str:
        return f"<HitDetail of {self.name}: {self}>"

    def __str__(self) -> str:
        """Returns thresholds and actual values of the parameters that hit; ``None.`` when no parameter did."""
        hits = [param for param in self._params if param.hit]
        if any(param.quantities for param in hits):
            found = ", ".join(f"{name} = {value}" for param in hits for name, value in param.quantities.items())
            return f"The setting for watchpoint is {hits[0].value}. The tensor has {found}."
        if not hits or self.condition_id == WIRE_NOT_CHANGED:
            return "None."
        was_set = ", ".join(f"{param} = {param.value}" for param in hits)
        found = ", ".join(f"{param} = {param.actual_value}" for param in hits)
        return f"The setting for watchpoint is {was_set}. The actual value of the tensor is {found}."


class WatchpointHit:
    """A tensor that hit a watchpoint, or that could not be compared. Immutable; made by ``check_watchpoints`` only.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, TensorTooLargeCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> tensors = run.select_tensors("Mul-op383", iterations=[2, 3])
        >>> hits = run.check_watchpoints([Watchpoint(tensors, TensorTooLargeCondition(min_gt=-1))])
        >>> print(hits[0])
        Watchpoint TensorTooLarge triggered on tensor:
        rank: 0
        graph_name: kernel_graph_0
        node_name: Default/network-WithLossCell/_backbone-Net/Mul-op383
        slot: 0
        iteration: 2
        Threshold: {'min_gt': -1.0}
        Hit detail: The setting for watchpoint is min_gt = -1.0. The actual value of the tensor is min_gt = 0.0.
        >>> hits[1].error_code, hits[1].error_msg, hits[1].get_hit_detail()
        (1, ['Tensor contains NaN.'], None)
    """

    __slots__ = ("_condition", "_hit", "_tensor")

    def __init__(self, tensor: DebuggerTensor, condition: ConditionBase, hit: Hit) -> None:
        self._tensor = tensor
        self._condition = condition
        self._hit = hit

    @property
    def error_code(self) -> int:
        """The reasons why the tensor could not be compared, as a sum of bits; 0 when it could.

        1 NaN, 2 infinite, 4 no previous step, 8 memory limit, 16 no run history, 32 no value: MindInsight's numbers (8
        and 16 do not occur here). 64 (the shape changed) and 128 (unreadable) are new.
        """
        return int(self._hit.results[0].error)

    @property
    def error_msg(self) -> list[str]:
        """The bits of ``error_code`` as sentences, in MindInsight's words."""
        return [sentence for bit, sentence in _SENTENCES.items() if self.error_code & bit]

    @property
    def tensor(self) -> DebuggerTensor:
        return self._tensor

    @property
    def verdict(self) -> Verdict:
        """A finding, not comparable (the first dumped step), or cannot judge."""
        return self._hit.verdict

    @property
    def record(self) -> Hit:
        """The internal hit, with the tensor's statistics."""
        return self._hit

    def get_threshold(self) -> ConditionBase:
        return self._condition

    def get_hit_detail(self) -> HitDetail | None:
        """Returns the condition with the actual values; None when ``error_code`` is not 0."""
        return None if self.error_code else HitDetail(self._condition, self._hit.results[0].params)

    def __str__(self) -> str:
        happened = "check failed" if self.error_code else "triggered"
        last = f"Error detail: {self.error_msg}" if self.error_code else f"Hit detail: {self.get_hit_detail()}"
        head = f"Watchpoint {self._condition.name} {happened} on tensor:"
        return f"{head}\n{self._tensor}\nThreshold: {self._condition}\n{last}"

    def __repr__(self) -> str:
        return f"<WatchpointHit {self._condition.name} on {self._tensor!r}, error code {self.error_code}>"


class Hits(list[WatchpointHit]):
    """The hits of a check: a list, also as a table, with ``coverage``.

    ``coverage`` counts tensors: ``checked``, ``unreadable``, ``not_comparable`` (no previous step) and ``skipped`` (not
    dumped, constant, or ignored by its condition); ``watched`` has (position of the watchpoint, its checked tensors).
    No hit on nothing checked means nothing.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, TensorOverflowCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> hits = run.check_watchpoints([Watchpoint(run.select_tensors("Log"), TensorOverflowCondition())])
        >>> row = hits.table()[0]
        >>> row["step"], row["node"], row["verdict"]
        (3, 'Default/network-WithLossCell/_backbone-Net/Log-op381', 'finding')
        >>> hits.coverage.checked, hits.coverage.unreadable, hits.coverage.skipped
        (18, 0, 6)
    """

    def __init__(self, hits: Iterable[WatchpointHit] = (), coverage: Coverage | None = None) -> None:
        super().__init__(hits)
        self.coverage = coverage or Coverage()

    def table(self) -> list[Row]:
        """Returns one flat dict per parameter of each hit (one for a condition without parameters), for pandas and CSV.

        Keys: rank, step, graph, node, side, slot, watchpoint (position in the checked list), condition, abbr, verdict,
        error, reasons, parameter, threshold, hit, actual (None when not evaluated), detail.
        """
        rows = [row for hit in self for row in flat_hit_rows(hit.record)]
        for row in rows:
            row.pop("origin", None)  # the API does not look for origins
        return rows
