"""The immutable values that cross the seams between sources, session and front ends.

Big things are columns (see ``graph.table`` and ``sources.base``); what is here is small: keys,
records of one tensor, watchpoints and hits. Everything is picklable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, IntFlag


class Side(IntEnum):
    """The side of a node that a tensor belongs to."""

    INPUT = 0
    OUTPUT = 1

    @property
    def label(self) -> str:
        """``in`` or ``out``, as shown in tables."""
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
    """Scale or shift of a normalisation (gamma, beta): trained like a weight, but counted apart from weights."""


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
"""Words for categories in a selection, and what they stand for: every category by its own name, but ``tensor`` is
every node that can be watched, ``trainable`` weights and normalisations, and ``parameter`` any kind of parameter."""
BIAS = r"(^|[._/])(bias|beta|bias_[ih]h\w*)$"
"""Parameter names that are biases: of MindSpore's and PyTorch's layers, LayerNorm's beta, recurrent layers."""
WEIGHT_GRADIENT = "weight_gradient"
"""The gradients that optimizers use, those of biases left out: see ``graph.categories.weight_gradients``."""
SEARCHED_WEIGHT = "searched_weight"
"""The weights of an optimizer that searches the size of its steps: see ``graph.categories.searched_weights``."""
SELECTION_WORDS = (*CATEGORY_WORDS, WEIGHT_GRADIENT, SEARCHED_WEIGHT)
"""Words for categories in a watchpoint's selection."""


@dataclass(frozen=True, slots=True, order=True)
class TensorKey:
    """The handle of one tensor: what crosses seams instead of an array.

    Attributes:
        rank: process number in the run.
        graph: graph name, for example ``kernel_graph_0``.
        node: canonical node id (full name of an operator, bare name of a parameter, ``cst1``).
        side: input or output of that node.
        slot: index of the input or output.
        step: 0-based, as on disk.
        round: which writing of the step, from 1 in the order of time, where its graph ran several times within the
            step (a loop, two runs of one number); 0 where it was written once, and to look up the newest one.
    """

    rank: int
    graph: str
    node: str
    side: Side
    slot: int
    step: int
    round: int = 0

    def at_step(self, step: int) -> TensorKey:
        """The same tensor at another step, there its newest round."""
        return self if step == self.step else replace(self, step=step, round=0)


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """Instructions to read one tensor anywhere: on this machine, in a worker process, on another host.

    Attributes:
        path: file that holds the bytes.
        format: ``npy`` (header in the file), ``npz`` (the same, as ``member`` of an archive), ``raw`` (``dtype`` and
            ``shape`` given here), or any other that ``stats.npy.FORMATS`` names.
        dtype: for ``raw`` the element type. For ``npy`` the *declared* element type when the file
            name states one, else empty: bfloat16 travels as float32 or as raw ``<E2``.
        shape: only for ``raw``.
        offset: bytes before the first element for ``raw``; before what is read where that is a part of the file.
        member: the tensor in a file of several: its key in an archive, its place in what torch saved.
        length: bytes of what is read where that is a part of the file; 0: up to its end.
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
    """The facts in a header, known without reading values: element type by name, shape, bytes of the values."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class AtLeast(IntFlag):
    """The counts of a tensor that are lower bounds, because its recorder wrote less than all of them."""

    NONE = 0
    COUNT = 1
    """The number of elements is not known; nor are the counts that follow from it."""
    NAN = 2
    """A flag or a sum says that there is NaN, and not how many."""
    INF = 4
    """The same of Inf of either sign; or NaN hides how many there are."""


class OperandState(IntEnum):
    """What a training says of a value as it was when a node read it."""

    CLEAN = 1
    NAN = 2
    INFINITE = 3
    """Inf, and no NaN: it may be there by design."""


@dataclass(frozen=True, slots=True)
class TensorStats:
    """One pass over one tensor. Means and sums are over finite elements only, in float64.

    ``minimum``, ``maximum``, ``mean``, ``abs_mean`` and ``variance`` are None when there is no finite
    element (empty, all NaN ...): the screen shows ``–``, never ±1.8e308.

    Attributes:
        count: all elements.
        nan, pos_inf, neg_inf: elements of that kind.
        zero: elements equal to 0 (−0 counts).
        negative, positive: finite elements below, above 0.
        sum_squares: over finite elements.
        variance: population variance (divisor n) over finite elements.
        at_least: which counts are lower bounds; ``is_lower_bound`` tells it of one.
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
        """Number of finite elements."""
        return self.count - self.nan - self.pos_inf - self.neg_inf

    @property
    def inf(self) -> int:
        """Number of infinite elements."""
        return self.pos_inf + self.neg_inf

    @property
    def counted(self) -> bool:
        """False where a dump recorded less: of a count only whether there are such elements, or nothing."""
        return self.zero + self.negative + self.positive == self.finite

    def is_lower_bound(self, name: str) -> bool:
        """Tells whether of a count, by its name, only a lower bound is known: there may be more, also where it is 0."""
        of = {"count": AtLeast.COUNT, "nan": AtLeast.NAN}.get(name, AtLeast.INF)
        if name in {"zero", "negative", "positive"}:
            return not self.counted or (not self.sized and bool(getattr(self, name) or not self.finite))
        return bool(self.at_least & of)

    @property
    def sized(self) -> bool:
        """False where the number of elements is not known: then ``count`` is not to be shown."""
        return not self.at_least & AtLeast.COUNT

    @property
    def bad(self) -> bool:
        """Tells whether any element is NaN or infinite."""
        return bool(self.nan or self.pos_inf or self.neg_inf)

    @property
    def norm(self) -> float | None:
        """Root of ``sum_squares``; None without a finite element, and where a dump recorded everything but that."""
        if not self.finite or math.isnan(self.sum_squares):
            return None
        if not self.sum_squares and not self.minimum == self.maximum == 0:
            return None
        return math.sqrt(self.sum_squares)

    @property
    def zero_percentage(self) -> float:
        """100 · zeros / elements; 0 for an empty tensor."""
        return 100.0 * self.zero / self.count if self.count else 0.0


class NodeKind(Enum):
    """The way in which a selection names nodes."""

    CATEGORY = "category"
    REGEX = "regex"
    NODE = "node"
    SCOPE = "scope"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """One clause of a selection, for example category=weight or scope=Default/network.

    Attributes:
        kind: how ``text`` is meant.
        text: one of ``SELECTION_WORDS``, regular expression (``re.search`` on the canonical id), exact node id,
            scope path (without a trailing slash; matches everything below in the displayed tree) or operator
            type (case-insensitive).
    """

    kind: NodeKind
    text: str


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes that a watchpoint covers: the union of ``include`` minus the union of ``exclude``."""

    include: tuple[NodeSelector, ...] = ()
    exclude: tuple[NodeSelector, ...] = ()


ParamValue = float | bool | str
"""The value of a parameter of a condition; a text is an expression."""


@dataclass(frozen=True, slots=True)
class Watchpoint:
    """A condition with its parameters, on a set of nodes.

    Attributes:
        id: from 1, increasing, never reused within a session.
        condition: id of the condition table, for example ``tensor_too_large``.
        params: (name, value) of the parameters the user set, in definition order.
        selection: the nodes.
        enabled: a disabled watchpoint is kept but not checked.
        name: free text; the recommended ones carry their recommended name.
    """

    id: int
    condition: str
    params: tuple[tuple[str, ParamValue], ...] = ()
    selection: NodeSelection = field(default_factory=NodeSelection)
    enabled: bool = True
    name: str = ""


class ErrorBits(IntFlag):
    """The reasons why nothing could be compared. Values 1 to 32 are MindInsight's; the rest are ours."""

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
    """An Inf that its operator was told to write and that every consumer absorbed: counted apart, no finding."""
    CANNOT_JUDGE = 2
    """A missing previous step later on, or an unreadable tensor."""
    BLOCKED = 3
    """NaN or Inf kept the condition from being judged: no hit of it, but the tensor is a finding, as what it is."""
    FINDING = 4
    """The condition holds, or the shape changed."""


@dataclass(frozen=True, slots=True)
class ParamResult:
    """One parameter of a checked watchpoint.

    Attributes:
        name: parameter name.
        value: the set value.
        hit: whether this parameter's inequality held.
        actual: the value found, or None when it was not evaluated.
        quantities: of an expression what each name in it stood for, None where that is not known.
    """

    name: str
    value: ParamValue
    hit: bool
    actual: float | None
    quantities: tuple[tuple[str, float | str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The outcome of one watchpoint on one tensor (only outcomes worth a row are kept)."""

    watchpoint: int
    condition: str
    verdict: Verdict
    error: ErrorBits = ErrorBits.NONE
    params: tuple[ParamResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """One row of the hit list: a tensor with everything that hit on it.

    Attributes:
        key: the tensor.
        row: node row in that rank's node table.
        results: one per watchpoint that has something to say, in watchpoint id order.
        order: (turn of the run, position in execution order) for sorting: see ``GraphRun.turn`` and
            ``sources.base.TensorTable.order``.
        stats: statistics of the tensor, None when it could not be read.
        origin: True when this tensor is bad (NaN/Inf) while every input of its node is clean.
        detail: extra text for the row, for example why the file could not be read.
        overflow: what the device recorded of an overflow of its operator, whatever hit; a part of ``detail``, unless
            that says why it does not matter. Empty where it recorded nothing.
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
        """The strongest verdict among the results; a blocked condition means that the tensor itself is a finding."""
        strongest = max((result.verdict for result in self.results), default=Verdict.NOT_COMPARABLE)
        return Verdict.FINDING if strongest is Verdict.BLOCKED else strongest


@dataclass(frozen=True, slots=True, order=True)
class UnreadablePart:
    """A part of a run that could not be looked at: it is not known what it holds, so nothing that covers it is clean.

    Attributes:
        where: its path, relative to the run's directory.
        why: a few words, for example ``permission denied`` or ``a FIFO in place of a directory``.
        rank: the rank that it belongs to; None when that is not known.
        step: the step that it belongs to; None when it may hold several, or that is not known.
        graph: it says what nodes there are, or in which order they ran: no tensor is lost with it, but nobody knows
            which nodes have a name, a category or a type.
        unrecorded: it is no part of a dump but something that a live training ran and nobody judged.
        incomplete: what is there of the step was looked at, but tensors that other steps have are not there.
        unclaimed: no reader looked at it: a file that holds tensors, or another dump.
    """

    where: str
    why: str
    rank: int | None = None
    step: int | None = None
    graph: bool = False
    unrecorded: bool = False
    incomplete: bool = False
    unclaimed: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """The extent of a check. "Clean" must always be read together with this.

    Attributes:
        checked: tensors read and judged by at least one watchpoint.
        unreadable: tensors under a watchpoint that could not be read.
        not_comparable: tensors for which some watchpoint had no previous step at the first dumped step.
        skipped: files under no enabled watchpoint, or the copy of a tensor that was already judged.
        steps: (rank, step) pairs in which there was a tensor to look at.
        watched: (watchpoint id, tensors it looked at), by id: a watchpoint that looked at none says nothing.
        parts: parts of the run that belong to what was asked for and could not be listed.
        blocked: (watchpoint id, tensors it could not judge because of their NaN or Inf), by id.
        by_design: tensors whose Inf was written by intent and absorbed: see ``Verdict.BY_DESIGN``.
        constants: input files that hold a graph constant and that no watchpoint named: judged for overflow only.
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
    """One entry of a node's source stack.

    Attributes:
        path: source file as the training process saw it.
        line: first line, 1-based.
        code: text of the line.
        end_line: last line of the entry (equal to ``line`` for one statement).
        depth: 0 for an outer frame, more for frames nested below it in the text.
        substack: marked as a sub-stack entry.
        forward: belongs to the forward node of a backward node.
        context: an enclosing-function entry that spans lines: context, not a statement.
        framework: lives inside an installed framework (site-packages, mindspore, torch ...).
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
    """One run of a graph that has files of its own, at one step.

    Attributes:
        step: as on disk; several runs can have the same one.
        root_graph: number of the graph, as its directory is called.
        graph: its name.
        has_data: whether it was dumped.
        round: which run of this graph within the step, from 1; 0 when there is only one.
        began: first time stamp of its operators, microseconds since the epoch; 0 when unknown.
        turn: sorts the runs of a rank in the order in which they ran: see ``turns``.
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
    """The turn of a step that is one run, in ascending order: see ``turns``."""
    return step << _TURN_BITS


def turns(steps: Sequence[int]) -> list[int]:
    """One sort key for each run, given the steps of the runs in the order in which they ran.

    The key is the highest step number reached so far, then the place among the runs that share it. Where every step
    is one run, in ascending order, it depends on the step alone: that makes ranks and runs comparable.
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
    """The facts about the run at the given path, for the header.

    Attributes:
        path: the run's top directory.
        layout: for people, for example ``MindSpore 2.10 dump``.
        title: net name.
        framework_version: ``2.10.0`` or empty.
        device: ``CPU``, ``GPU``, ``Ascend`` or empty.
        notices: degradations, one sentence each (no graph, no history ...).
        framework: what ran the training, ``MindSpore 2.10.0``, or empty.
        limits: what no verdict on it can tell, by its layout, one sentence each ("no edges: ...").
        recorded_in: where statistics without values stand, ``statistic.csv``; empty: not known.
        values_advice, tensors_advice: what makes its recorder write values, and more inputs and outputs of nodes;
            empty: not known.
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
    """A snapshot of long work; ``total`` 0 means unknown. Later ones replace earlier ones."""

    done: int
    total: int
    text: str = ""

    @property
    def part(self) -> float | None:
        """From 0 to 1; None when it is unknown."""
        return min(self.done / self.total, 1.0) if self.total else None


ProgressFn = Callable[[Progress], None]
"""Receives snapshots (at any rate; the receiver throttles). Raises CancelledError to stop the work."""


def no_progress(_: Progress) -> None:
    """The default receiver: ignores the snapshot."""
