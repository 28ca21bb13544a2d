"""The results of a comparison of two runs: where differences begin, and what is known of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from tui_debugger.diagnose.ranks.layout import Ranks
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.diagnose.runs.conversions import WeightConversion
from tui_debugger.diagnose.runs.distance import ComparedBy, Distance, Tolerance
from tui_debugger.diagnose.runs.layouts import GivenDims
from tui_debugger.diagnose.runs.matching import NameMaps, NodeMatch
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import TensorKey

NO_OUTPUT: Final = "no output of it was dumped in both runs"
"""The reason that a node without common outputs was not compared."""
COVERED: Final = "neither run recorded it; all that it is made from and all that is made from it agrees"
"""The reason that a node needs no comparison."""


BothRuns = tuple[DiagnosedRun, DiagnosedRun]


class NodeJudgement(IntEnum):
    """What is known of a node at a step."""

    NOT_COMPARED = 0
    """None of its outputs could be compared."""
    SAME = 1
    ROUNDING = 2
    """The tensors differ no more than rounding explains."""
    INHERITED = 3
    """The node passes on a difference of its inputs."""
    UNPROVEN = 4
    """The output differs more than its known inputs explain, but not all inputs are known."""
    INSIDE = 5
    """A module: its inner calls tell what happened."""
    INTRODUCED = 6
    """Its inputs agree and its outputs do not."""


class DiffKind(IntEnum):
    """The kinds of findings; their numbers have no meaning."""

    INTRODUCED = 0
    RANDOM = 1
    ARGUMENT = 2
    PARAMETER = 3
    INPUT = 4
    UPDATE = 5
    MISSING = 6
    REGION = 7
    LOGGED = 8
    SAVED = 9

    @property
    def word(self) -> str:
        return self.name.lower()


ACTIVATION_SCALE: Final = "a scale of activations: no weight depends on it"
"""Why a tensor that one run alone has is not compared, though nothing proves what it holds."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is compared, and how.

    Attributes:
        steps, ranks: pairs (first run, second run); empty: equal numbers. A rank in several pairs is compared with all
            of its partners together.
        only_steps, only_ranks: of the first run; None: all.
        tolerance: replaces the rule of rounding.
        dims: how ranks share tensors.
    """

    maps: NameMaps = field(default_factory=NameMaps)
    steps: tuple[tuple[int, int], ...] = ()
    ranks: tuple[tuple[int, int], ...] = ()
    only_steps: frozenset[int] | None = None
    only_ranks: frozenset[int] | None = None
    tolerance: Tolerance | None = None
    dims: GivenDims = field(default_factory=GivenDims)


class StepPlace(NamedTuple):
    """A step of a rank in both runs."""

    rank_a: int
    rank_b: int
    step_a: int
    step_b: int


@dataclass(frozen=True, slots=True)
class DiffFinding:
    """A place where a difference begins.

    Attributes:
        order: position in the execution order of the first run.
        row_a, row_b: the node; -1 where a run has none.
        name: of the node or the parameter.
        other_name: its name in the second run.
        keys: the tensor that differs, in each run.
        given: distance of the inputs.
        times: error over what is expected.
        consumer: the first reader of a parameter or input.
        side: the wrong run, 0 or 1; -1 where unknown.
    """

    kind: DiffKind
    place: StepPlace
    order: float
    row_a: int
    row_b: int
    name: str
    other_name: str
    keys: tuple[TensorKey | None, TensorKey | None]
    distance: Distance | None
    given: float = 0.0
    times: float = 0.0
    consumer: str = ""
    text: str = ""
    side: int = -1

    def only_in(self, side: int, row: int, name: str, key: TensorKey | None) -> DiffFinding:
        """Returns the same finding at a node that only one run has."""
        rows, keys = ((row, -1), (key, None)) if side == 0 else ((-1, row), (None, key))
        return replace(self, row_a=rows[0], row_b=rows[1], name=name, other_name="", keys=keys)


@dataclass(frozen=True, slots=True)
class JudgedNode:
    """A node that both runs have, at a step.

    Attributes:
        order: position in the execution order of the first run.
        dx, dy: largest distance of its inputs, and of its outputs.
        times: q, error over what is expected.
        worst: the distance of the output that differs most, at ``slot``; None where nothing was compared.
        why: why it was not compared.
    """

    match: NodeMatch
    judgement: NodeJudgement
    order: float
    dx: float
    dy: float
    times: float
    worst: Distance | None
    slot: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class OneSided:
    """A node that only run ``side`` has; ``covered`` tells why it makes no difference, empty where unknown."""

    side: int
    row: int
    name: str
    order: int
    covered: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """The comparison of a step.

    Attributes:
        judged: nodes that both runs have, in execution order.
        compared: number of tensor pairs, by how they were compared.
        failed: (tensor of the first run, why) for tensors that could not be compared.
        doubtful: pairs that may be wrong: others would have fitted, or no value proves the pair.
        ranks: of both runs; several of a run where they share what one rank of the other run holds.
        joined: number of tensors put together from parts, by how: split, sum, mean, replicated.
        converted: parameters made of other parameters of the other run, proven by values.
        covered: number of tensors that neither run recorded, but whose neighbours all agree.
    """

    place: StepPlace
    judged: tuple[JudgedNode, ...]
    one_sided: tuple[OneSided, ...]
    compared: dict[ComparedBy, int]
    failed: tuple[tuple[str, str], ...]
    doubtful: tuple[NodeMatch, ...]
    ranks: tuple[Ranks, Ranks] = ((), ())
    joined: Mapping[str, int] = field(default_factory=dict)
    converted: tuple[WeightConversion, ...] = ()
    covered: int = 0


@dataclass(frozen=True, slots=True)
class RunsReport:
    """The comparison of two runs.

    Attributes:
        findings: where differences begin, earliest first.
        doubts: why "same" cannot be said.
        notes: what else to know, such as steps that were paired by order.
        asked: number of steps of ranks to compare.
        cancelled: not all of them were compared.
    """

    runs: BothRuns
    steps: tuple[StepReport, ...]
    findings: tuple[DiffFinding, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    asked: int = 0
    cancelled: bool = False

    @property
    def headline(self) -> DiffFinding | None:
        return self.findings[0] if self.findings else None

    @property
    def exit_code(self) -> int:
        """0: the same within what is expected; 1: different; 2: cannot judge; 130: interrupted."""
        if self.cancelled:
            return CancelledError.exit_code
        if self.findings:
            return 1
        return TdbgError.exit_code if self.doubts else 0

    @property
    def compared(self) -> dict[ComparedBy, int]:
        total: Counter[ComparedBy] = Counter()
        for step in self.steps:
            total.update(step.compared)
        return dict(total)
