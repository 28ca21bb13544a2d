"""The immutable values exchanged between sources, session and front ends: keys, records, watchpoints, hits.

Everything here is small and picklable; big things are columns (see ``graph.table`` and ``sources.base``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, IntFlag


class Side(IntEnum):
    """The side of a node that a tensor belongs to."""

    INPUT = 0
    OUTPUT = 1

    @property
    def label(self) -> str:
        return "in" if self is Side.INPUT else "out"


class Category(IntEnum):
    """The kind of a node, for filters and for a condition's target. Every node has exactly one."""

    OTHER = 0
    """An operator that is neither gradient nor activation."""
    WEIGHT = 1
    """A parameter that an optimizer updates."""
    OPTIMIZER_STATE = 2
    """Momenta, accumulators, step counters of an optimizer: parameters, never weights."""
    PARAMETER = 3
    """Any other parameter: graph inputs, learning rates, moving averages."""
    GRADIENT = 4
    ACTIVATION = 5
    CONSTANT = 6
    NORM = 7
    """Scale or shift of a normalisation (gamma, beta): trained like a weight, but counted separately."""


PARAMETERS = frozenset({Category.WEIGHT, Category.NORM, Category.OPTIMIZER_STATE, Category.PARAMETER})
"""The categories whose nodes are parameters."""
TRAINABLE = frozenset({Category.WEIGHT, Category.NORM})
"""The categories of parameters that an optimizer updates."""
CATEGORY_WORDS: Mapping[str, frozenset[Category]] = {
    "tensor": frozenset(Category) - {Category.CONSTANT},
    "trainable": TRAINABLE,
    **{category.name.lower(): frozenset({category}) for category in Category},
    "parameter": PARAMETERS,
}
"""Words for categories in a selection: each category by name; ``tensor`` is every watchable node."""
BIAS = r"(^|[._/])(bias|beta|bias_[ih]h\w*)$"
"""Names of bias parameters: of MindSpore's and PyTorch's layers, LayerNorm's beta, recurrent layers."""
WEIGHT_GRADIENT = "weight_gradient"
"""The gradients that optimizers use, without biases: see ``graph.categories.weight_gradients``."""
SEARCHED_WEIGHT = "searched_weight"
"""Weights of an optimizer that searches its step size: see ``graph.categories.searched_weights``."""
SELECTION_WORDS = (*CATEGORY_WORDS, WEIGHT_GRADIENT, SEARCHED_WEIGHT)
"""Words for categories in a watchpoint's selection."""


@dataclass(frozen=True, slots=True, order=True)
class TensorKey:
    """The handle of one tensor.

    Attributes:
        node: canonical node id (full name of an operator, bare name of a parameter, ``cst1``).
        slot: index of the input or output.
        step: 0-based, as on disk.
            round: which dump of the step, from 1 in order of time, if its graph ran several times within the step (a
                loop, two runs of one number); 0 if there is only one, and to look up the newest.
    """

    rank: int
    graph: str
    node: str
    side: Side
    slot: int
    step: int
    round: int = 0

    def at_step(self, step: int) -> TensorKey:
        return self if step == self.step else replace(self, step=step, round=0)


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """Instructions to read one tensor anywhere: on this machine, in a worker process, on another host.

    Attributes:
            format: ``npy``, ``npz`` (``member`` of an archive), ``raw`` (``dtype`` and ``shape`` given here), or
                another key of ``stats.npy.FORMATS``.
            dtype: for ``raw`` the element type; for ``npy`` the *declared* element type if the file name has one
                (bfloat16 is stored as float32 or as raw ``<E2``).
        offset: bytes before the first element for ``raw``; else before the part of the file that is read.
        member: the tensor in a file of several: key in an archive, place in a torch file.
        length: bytes of the part of the file that is read; 0: up to its end.
    """

    path: str
    format: str = "npy"
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    offset: int = 0
    member: str = ""
    length: int = 0

    def at(self, path: str, member: str = "") -> ReadSpec:
        """Returns the same instructions for another file (and tensor), in half the time of ``dataclasses.replace``."""
        own = member or self.member
        return ReadSpec(path, self.format, self.dtype, self.shape, self.offset, own, self.length)


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The facts in a header: element type by name, shape, bytes of the values."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class AtLeast(IntFlag):
    """Counts of a tensor that are only lower bounds, because its recorder did not write them all."""

    NONE = 0
    COUNT = 1
    """The number of elements is unknown, and so are the counts that follow from it."""
    NAN = 2
    """A flag or a sum shows NaN, but not how many."""
    INF = 4
    """The same for Inf of either sign; or NaN hides their number."""


class OperandState(IntEnum):
    """What a training said about a value at the time when a node read it."""

    CLEAN = 1
    NAN = 2
    INFINITE = 3
    """Inf without NaN; it may be there by design."""


@dataclass(frozen=True, slots=True)
class TensorStats:
    """Statistics of one tensor. Means and sums are over finite elements only, in float64.

    ``minimum``, ``maximum``, ``mean``, ``abs_mean`` and ``variance`` (divisor n) are None without a finite element: the
    screen shows ``–``, never ±1.8e308. ``zero`` includes −0; ``negative`` and ``positive`` count finite elements.
    ``at_least`` marks counts that are lower bounds; see ``is_lower_bound``.
    """

    count: int
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int
    negative: int
    positive: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    abs_mean: float | None
    variance: float | None
    sum_squares: float
    at_least: AtLeast = AtLeast.NONE

    @property
    def finite(self) -> int:
        return self.count - self.nan - self.pos_inf - self.neg_inf

    @property
    def inf(self) -> int:
        return self.pos_inf + self.neg_inf

    @property
    def counted(self) -> bool:
        """False where a dump did not record all counts."""
        return self.zero + self.negative + self.positive == self.finite

    def is_lower_bound(self, name: str) -> bool:
        """Tells whether a count is only a lower bound: there may be more, even where it is 0."""
        of = {"count": AtLeast.COUNT, "nan": AtLeast.NAN}.get(name, AtLeast.INF)
        if name in {"zero", "negative", "positive"}:
            return not self.counted or (not self.sized and bool(getattr(self, name) or not self.finite))
        return bool(self.at_least & of)

    @property
    def sized(self) -> bool:
        """False where the number of elements is unknown: then ``count`` must not be shown."""
        return not self.at_least & AtLeast.COUNT

    @property
    def bad(self) -> bool:
        return bool(self.nan or self.pos_inf or self.neg_inf)

    @property
    def norm(self) -> float | None:
        """Root of ``sum_squares``; None without a finite element, or if a dump did not record the sum."""
        if not self.finite or math.isnan(self.sum_squares):
            return None
        if not self.sum_squares and not self.minimum == self.maximum == 0:
            return None
        return math.sqrt(self.sum_squares)

    @property
    def zero_percentage(self) -> float:
        return 100.0 * self.zero / self.count if self.count else 0.0


class NodeKind(Enum):
    """How a selector names nodes."""

    CATEGORY = "category"
    REGEX = "regex"
    NODE = "node"
    SCOPE = "scope"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """One clause of a selection, for example category=weight or scope=Default/network.

    ``text`` is one of ``SELECTION_WORDS``, a regular expression (``re.search`` on the canonical id), an exact node id,
    a scope path (matches everything below in the displayed tree) or an operator type (case-insensitive).
    """

    kind: NodeKind
    text: str


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes that a watchpoint covers: the union of ``include`` minus the union of ``exclude``."""

    include: tuple[NodeSelector, ...] = ()
    exclude: tuple[NodeSelector, ...] = ()


ParamValue = float | bool | str
"""The value of a condition's parameter; a text is an expression."""


@dataclass(frozen=True, slots=True)
class Watchpoint:
    """A condition with its parameters, on a set of nodes. A disabled watchpoint is kept but not checked.

    ``id`` starts at 1, increases, and is never reused within a session. ``condition`` is an id of the condition table.
    ``params`` has (name, value) of the parameters the user set, in definition order.
    """

    id: int
    condition: str
    params: tuple[tuple[str, ParamValue], ...] = ()
    selection: NodeSelection = field(default_factory=NodeSelection)
    enabled: bool = True
    name: str = ""


class ErrorBits(IntFlag):
    """The reasons why a condition could not be judged. Values 1 to 32 are MindInsight's; the rest are ours."""

    NONE = 0
    NAN = 1
    INF = 2
    NO_PREVIOUS = 4
    OUT_OF_MEMORY = 8
    NO_HISTORY = 16
    NO_VALUE = 32
    SHAPE_CHANGED = 64
    UNREADABLE = 128


class Verdict(IntEnum):
    """The verdict of one watchpoint on one tensor. Order is rank: a finding outranks the others."""

    NOT_COMPARABLE = 0
    """No previous step at the first dumped step: counted in the coverage, no finding."""
    BY_DESIGN = 1
    """An Inf that its operator writes on purpose and that every consumer absorbs: counted separately, no finding."""
    CANNOT_JUDGE = 2
    """A missing previous step later on, or an unreadable tensor."""
    BLOCKED = 3
    """NaN or Inf prevented the comparison: no hit of the condition, but the tensor itself is a finding."""
    FINDING = 4
    """The condition holds, or the shape changed."""


@dataclass(frozen=True, slots=True)
class ParamResult:
    """One parameter of a checked watchpoint; ``actual`` is None when it was not evaluated.

    ``quantities`` are the values of an expression's names, None if unknown.
    """

    name: str
    value: ParamValue
    hit: bool
    actual: float | None
    quantities: tuple[tuple[str, float | str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The outcome of one watchpoint on one tensor; outcomes without anything to report are not kept."""

    watchpoint: int
    condition: str
    verdict: Verdict
    error: ErrorBits = ErrorBits.NONE
    params: tuple[ParamResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """One row of the hit list: a tensor with all its results.

    Attributes:
        results: one per watchpoint with something to report, in watchpoint id order.
        order: sort key (``GraphRun.turn``, ``sources.base.TensorTable.order``).
        stats: statistics of the tensor, None when it could not be read.
        origin: the tensor has NaN or Inf while every input of its node is clean.
        detail: extra text for the row, for example why the file could not be read.
        overflow: the device's record of an overflow of the operator, if any; usually a part of ``detail``.
    """

    key: TensorKey
    row: int
    results: tuple[WatchResult, ...]
    order: tuple[int, int]
    stats: TensorStats | None = None
    origin: bool = False
    detail: str = ""
    overflow: str = ""

    @property
    def verdict(self) -> Verdict:
        """The strongest verdict among the results; a blocked condition makes the tensor itself a finding."""
        strongest = max((result.verdict for result in self.results), default=Verdict.NOT_COMPARABLE)
        return Verdict.FINDING if strongest is Verdict.BLOCKED else strongest


@dataclass(frozen=True, slots=True, order=True)
class UnreadablePart:
    """A part of a run that could not be read: its content is unknown, so nothing that covers it is clean.

    Attributes:
        where: its path, relative to the run's directory.
        why: a few words, for example ``permission denied`` or ``a FIFO in place of a directory``.
        rank, step: None when unknown, or when it may hold several steps.
        graph: it describes nodes or their order: no tensor is lost, but names, categories or types may be.
        unrecorded: something that a live training ran without being judged, not a part of a dump.
        incomplete: the step lacks tensors that other steps have; the rest was judged.
        unclaimed: no reader reads it: a file with tensors, or another dump.
    """

    where: str
    why: str
    rank: int | None = None
    step: int | None = None
    graph: bool = False
    unrecorded: bool = False
    incomplete: bool = False
    unclaimed: bool = False


def sorted_parts(parts: Iterable[UnreadablePart]) -> tuple[UnreadablePart, ...]:
    """Returns parts by place and reason, each once."""
    return tuple(sorted(dict.fromkeys(parts), key=lambda part: (part.where, part.why)))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The extent of a check. "Clean" must always be read together with this.

    Attributes:
        not_comparable: tensors for which some watchpoint had no previous step at the first dumped step.
        skipped: files under no enabled watchpoint, or copies of a judged tensor.
        steps: (rank, step) pairs with a tensor to check.
        watched: (watchpoint id, tensors it checked), by id: a watchpoint that checked none says nothing.
        parts: parts of the requested run that could not be listed.
        blocked: (watchpoint id, tensors it could not judge because of their NaN or Inf), by id.
        by_design: tensors with Inf by design: see ``Verdict.BY_DESIGN``.
        constants: input files with a graph constant that no watchpoint named: judged for overflow only.
    """

    checked: int = 0
    unreadable: int = 0
    not_comparable: int = 0
    skipped: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    watched: tuple[tuple[int, int], ...] = ()
    parts: tuple[UnreadablePart, ...] = ()
    blocked: tuple[tuple[int, int], ...] = ()
    by_design: int = 0
    constants: int = 0

    @property
    def nothing_came(self) -> bool:
        """Tells whether there was no tensor to judge, and none was lost."""
        return not (self.checked or self.unreadable or self.parts)


@dataclass(frozen=True, slots=True)
class Frame:
    """One entry of a node's source stack; ``line`` and ``end_line`` are 1-based, equal for one statement.

    ``path`` is as the training process saw it. ``depth`` is 0 for an outer frame. ``forward``: it belongs to the
    forward node of a backward node. ``context``: an enclosing function that spans lines, not a statement.
    ``framework``: it is in an installed framework (site-packages, mindspore, torch ...).
    """

    path: str
    line: int
    code: str
    end_line: int = 0
    depth: int = 0
    substack: bool = False
    forward: bool = False
    context: bool = False
    framework: bool = False


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One run, at one step, of a graph that has its own files; several runs can have the same step.

    ``root_graph`` is the number of the graph, the name of its directory. ``round`` numbers the graph's runs within the
    step from 1, or is 0 for a single run. ``began`` is the first time stamp in microseconds since the epoch, 0 when
    unknown. ``turn`` is a sort key for the order of a rank's runs: see ``turns``.
    """

    step: int
    root_graph: int
    graph: str
    has_data: bool
    round: int = 0
    began: int = 0
    turn: int = 0


_TURN_BITS = 20


def turn_of(step: int) -> int:
    return step << _TURN_BITS


def turns(steps: Sequence[int]) -> list[int]:
    """Returns a sort key for each run, given the runs' steps in execution order.

    The key is the highest step so far, then the place among the runs that share it. If every step is one run, in
    ascending order, it depends on the step alone, which makes ranks and runs comparable.
    """
    found: list[int] = []
    highest, place = -1, 0
    for step in steps:
        place = 0 if step > highest else place + 1
        highest = max(highest, step)
        found.append((highest << _TURN_BITS) + place)
    return found


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts about a run, for the header; unknown texts are empty.

    Attributes:
        layout: for people, for example ``MindSpore 2.10 dump``.
        title: net name.
        device: ``CPU``, ``GPU``, ``Ascend`` or empty.
        notices: degradations, one sentence each (no graph, no history ...).
        limits: what verdicts on this layout cannot tell, one sentence each ("no edges: ...").
        recorded_in: file of statistics without values, ``statistic.csv``.
        values_advice, tensors_advice: how to make its recorder write values, and more inputs and outputs.
    """

    path: str
    layout: str
    title: str = ""
    framework_version: str = ""
    device: str = ""
    notices: tuple[str, ...] = ()
    framework: str = ""
    limits: tuple[str, ...] = ()
    recorded_in: str = ""
    values_advice: str = ""
    tensors_advice: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of long work; ``total`` 0 means unknown. Later snapshots replace earlier ones."""

    done: int
    total: int
    text: str = ""

    @property
    def part(self) -> float | None:
        return min(self.done / self.total, 1.0) if self.total else None


ProgressFn = Callable[[Progress], None]
"""Receives snapshots (at any rate; the receiver throttles). Raises CancelledError to stop the work."""


def no_progress(_: Progress) -> None:
    """The default receiver: ignores the snapshot."""


def words(text: str) -> tuple[str, ...]:
    """Returns the words of a table that is written as text."""
    return tuple(text.split())


def word_pairs(text: str) -> dict[str, str]:
    """Maps the 1st, 3rd, ... word of a text to the next."""
    both = words(text)
    return dict(zip(both[::2], both[1::2], strict=True))
