"""The results of a comparison of two runs: where differences begin, what is known of every node, and what is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.diagnose.runs.conversions import WeightConversion
from tui_debugger.diagnose.runs.distance import ComparedBy, Distance, Tolerance
from tui_debugger.diagnose.runs.layouts import GivenDims
from tui_debugger.diagnose.runs.matching import NameMaps, NodeMatch
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import TensorKey

NO_OUTPUT: Final = "no output of it was dumped in both runs"
"""Why a node was not compared that has nothing to compare."""
COVERED: Final = "neither run recorded it; all that it is made from and all that is made from it agrees"
"""Why a node was not compared that needs no comparison."""


class NodeJudgement(IntEnum):
    """The facts that are known of a node at a step."""

    NOT_COMPARED = 0
    """None of its outputs could be compared."""
    SAME = 1
    ROUNDING = 2
    """The tensors differ by no more than rounding explains."""
    INHERITED = 3
    """The node passes on a difference of its inputs."""
    UNPROVEN = 4
    """The output differs by more than its known inputs explain, and not all inputs are known."""
    INSIDE = 5
    """A module around other calls: they tell what happened."""
    INTRODUCED = 6
    """Its inputs agree and its outputs do not."""


class DiffKind(IntEnum):
    """The kinds of findings; the value only counts."""

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
        """For people and for JSON."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a comparison: what is compared, and how.

    Attributes:
        maps: what the user says of names.
        steps, ranks: which of the first run are which of the second; empty: those of one number. A rank that is named
            several times is compared with all of those together.
        only_steps, only_ranks: those of the first run that are asked for; None: all.
        tolerance: replaces the rule of rounding.
        dims: what the user says of how ranks share tensors.
    """

    maps: NameMaps = field(default_factory=NameMaps)
    steps: tuple[tuple[int, int], ...] = ()
    ranks: tuple[tuple[int, int], ...] = ()
    only_steps: frozenset[int] | None = None
    only_ranks: frozenset[int] | None = None
    tolerance: Tolerance | None = None
    dims: GivenDims = field(default_factory=GivenDims)


class StepPlace(NamedTuple):
    """A step of a rank of both runs."""

    rank_a: int
    rank_b: int
    step_a: int
    step_b: int


@dataclass(frozen=True, slots=True)
class DiffFinding:
    """A place where a difference begins.

    Attributes:
        kind: what it is.
        place: where.
        order: position in the execution order of the first run.
        row_a, row_b: the node; -1 where a run has none.
        name: of the node, or of the parameter.
        other_name: in the second run, where it is another one.
        keys: the tensor that differs, in each run; None where it has none.
        distance: of that tensor.
        given: distance of the inputs.
        times: error over what is expected.
        consumer: the node that reads it first, of parameters and inputs.
        text: what else there is to say, a sentence.
        side: 0, 1 where one of the runs is known to be wrong; -1 where that is not known.
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


@dataclass(frozen=True, slots=True)
class JudgedNode:
    """A node that both runs have, at a step.

    Attributes:
        match: its rows.
        judgement: what is known of it.
        order: position in the execution order of the first run.
        dx, dy: largest distance of its inputs, and of its outputs.
        times: error over what is expected: q.
        worst: the output that differs most; None where nothing was compared.
        slot: its number.
        why: what kept it from being compared.
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
    """A node that only one run has.

    Attributes:
        side: 0 for the first run, 1 for the second.
        row: its row there.
        name: its name.
        order: position in the execution order.
        covered: what agrees around it: empty where nothing tells whether it matters.
    """

    side: int
    row: int
    name: str
    order: int
    covered: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step of both runs.

    Attributes:
        place: which.
        judged: nodes that both have, in execution order.
        one_sided: nodes that only one has.
        compared: pairs of tensors that were compared, by what.
        failed: (tensor of the first run, why) of what could not be compared.
        doubtful: pairs of nodes that may be others: more would have fitted, or no value proves the pair.
        ranks: of both runs; several of one of them where they share what one rank of the other holds.
        converted: parameters of one run that others of the other one make, proven by values.
        joined: tensors that were put together of parts, by how: split, sum, mean, replicated.
        covered: tensors that neither run recorded, and all around them agrees.
    """

    place: StepPlace
    judged: tuple[JudgedNode, ...]
    one_sided: tuple[OneSided, ...]
    compared: dict[ComparedBy, int]
    failed: tuple[tuple[str, str], ...]
    doubtful: tuple[NodeMatch, ...]
    ranks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    joined: Mapping[str, int] = field(default_factory=dict)
    converted: tuple[WeightConversion, ...] = ()
    covered: int = 0


@dataclass(frozen=True, slots=True)
class RunsReport:
    """Two runs, compared.

    Attributes:
        runs: both.
        steps: in order.
        findings: where differences begin, earliest first.
        doubts: why "same" could not be said.
        notes: what else to know: steps that were paired by order, ranks left out.
        asked: steps of ranks that were asked for.
        cancelled: the comparison was stopped before all of them were compared.
    """

    runs: tuple[DiagnosedRun, DiagnosedRun]
    steps: tuple[StepReport, ...]
    findings: tuple[DiffFinding, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    asked: int = 0
    cancelled: bool = False

    @property
    def headline(self) -> DiffFinding | None:
        """The first difference that something introduced."""
        return self.findings[0] if self.findings else None

    @property
    def exit_code(self) -> int:
        """0 the same within what is expected, 1 different, 2 cannot judge, 130 interrupted."""
        if self.cancelled:
            return CancelledError.exit_code
        if self.findings:
            return 1
        return TdbgError.exit_code if self.doubts else 0

    @property
    def compared(self) -> dict[ComparedBy, int]:
        """Pairs of tensors that were compared, by what."""
        total: dict[ComparedBy, int] = defaultdict(int)
        for step in self.steps:
            for how, count in step.compared.items():
                total[how] += count
        return dict(total)
