"""The report on many ranks: which broke first, which differ where they must not, which read another batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from tui_debugger.check.contents import BY_WORDS, KnownBy
from tui_debugger.check.results import parts_text
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.check.verdicts import CheckJudgement, Outcome
from tui_debugger.diagnose.ranks.layout import Ranks
from tui_debugger.diagnose.ranks.results import KIND_WORDS, KINDS_WORDS, Difference, NotReduced, ReplicaKind, Replicas
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, TensorKey, UnreadablePart, Verdict, no_progress
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import contents, said_words
from tui_debugger.text.numbers import are, first_of, named, plural
from tui_debugger.text.tensors import place_text

_MOST: Final = 6
"""The most findings of a kind that are listed one by one."""


@dataclass(frozen=True, slots=True)
class OtherRunDifference:
    """The first tensor of a rank that differs in another run; a ``batch`` is an input such as token ids."""

    key: TensorKey
    batch: bool


@dataclass(frozen=True, slots=True)
class OtherRunRanks:
    """The comparison of each rank with the same rank of another run.

    Attributes:
        path: of the other run.
        first: by rank, the first tensor that differs; None where no compared tensor does.
        compared: by rank, the number of tensors compared until then.
        missing: ranks that the other run does not have.
        parts: the parts of the other run that could not be read.
    """

    path: str
    first: dict[int, OtherRunDifference | None]
    compared: dict[int, int]
    missing: Ranks = ()
    parts: tuple[UnreadablePart, ...] = ()


def compare_with(
    run: DiagnosedRun, other: DiagnosedRun, path: str, pairs: Sequence[Pair], progress: ProgressFn = no_progress
) -> OtherRunRanks:
    """Finds on each rank the first tensor that differs in another run, step by step in execution order."""
    there = set(other.ranks())
    first: dict[int, OtherRunDifference | None] = {}
    compared: dict[int, int] = {}
    for rank, step in pairs:
        if rank not in there or first.get(rank) is not None:
            continue
        found, count = _first_other(run, other, rank, step, progress)
        first[rank] = found
        compared[rank] = compared.get(rank, 0) + count
    missing = sorted({rank for rank, _ in pairs} - there)
    parts = other.unreadable([pair for pair in pairs if pair[0] in there])
    return OtherRunRanks(path, first, compared, tuple(missing), parts)


_TOGETHER: Final = 64
"""The number of tensors that are compared at once."""


def _first_other(
    run: DiagnosedRun, other: DiagnosedRun, rank: int, step: int, progress: ProgressFn
) -> tuple[OtherRunDifference | None, int]:
    here, there = run.flow(rank, progress), other.flow(rank, progress)
    table, their = here.table(step), there.table(step)
    rows, partners = [], []
    for row in range(len(table)):
        node = int(table.node[row])
        of = there.nodes.find(here.nodes.names[node], here.nodes.graph_of(node).name)
        at = their.find(of, Side(int(table.side[row])), int(table.slot[row]), int(table.round[row])) if of >= 0 else -1
        if at >= 0:
            rows.append(row)
            partners.append(at)
    count = 0
    for start in range(0, len(rows), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        ours = run.contents.of(here, step, rows[part], progress)
        others = other.contents.of(there, step, partners[part], progress)
        for row, one, two in zip(rows[part], ours, others, strict=True):
            if not one.by or one.by is not two.by:
                continue
            count += 1
            if one.value != two.value:
                node, side = int(table.node[row]), Side(int(table.side[row]))
                key = here.nodes.key(rank, step, node, side, int(table.slot[row]), round=int(table.round[row]))
                return OtherRunDifference(key, _is_batch(run, key, here.nodes.category_of(node) in PARAMETERS)), count
    return None, count


def _is_batch(run: DiagnosedRun, key: TensorKey, parameter: bool) -> bool:
    meta = run.measure([run.row_of(key)])[0].meta
    return not parameter and meta is not None and meta.dtype.startswith(("int", "uint"))


class Subject(Enum):
    """The subjects of findings; of one step, the first subject comes first."""

    BATCH = "another batch"
    BROKE = "broke first"
    SHARED = "one batch on several ranks"
    NOT_REDUCED = "not reduced"
    DIFFERS = "ranks differ"
    OTHER = "differs from the other run"


@dataclass(frozen=True, slots=True)
class RanksFinding:
    """One thing that is wrong, in a sentence; ``step`` is the first at which it shows."""

    story: Subject
    step: int
    ranks: Ranks
    key: TensorKey
    text: str


@dataclass(frozen=True, slots=True)
class RankReport:
    """The result of ``rank_report``.

    Attributes:
        findings: the earliest first.
        first_bad: by rank, the first tensor with a finding.
        against: the comparison with another run.
        doubts: why the run cannot be called clean.
        headline: the outcome in one line.
    """

    findings: tuple[RanksFinding, ...]
    first_bad: dict[int, Hit]
    replicas: Replicas
    against: OtherRunRanks | None
    doubts: tuple[str, ...]
    outcome: Outcome
    headline: str


def rank_report(
    result: CheckResult, judgement: CheckJudgement, replicas: Replicas, against: OtherRunRanks | None = None
) -> RankReport:
    """Puts together what is wrong with the ranks of a run, from a check of all of them and comparisons."""
    first_bad = _first_bad(result)
    findings = [
        *_broke(first_bad, several=len(replicas.layout.ranks) > 1),
        *_shared(replicas),
        *_not_reduced(replicas),
        *_differ(replicas),
        *_others(against),
    ]
    findings.sort(key=lambda each: (each.step, list(Subject).index(each.story)))
    doubts = [doubt.text for doubt in judgement.doubts]
    ranks = replicas.layout.ranks
    if len(ranks) < 2:
        doubts.append("there is one rank: nothing to compare")
    elif not sum(replicas.compared.values()):
        doubts.append(f"no tensor was dumped that must be equal on several ranks ({replicas.layout.why})")
    if replicas.unknown:
        key, why = replicas.unknown[0]
        doubts.append(f"{plural(len(replicas.unknown), 'tensor')} could not be compared, first {_place(key)}: {why}")
    doubts += _doubts_of_layout(replicas)
    for tie in replicas.loosened:
        step = next(step for step, equal in tie.equal.items() if not equal)
        (rank, embedding), (there, weight) = tie.embedding, tie.weight
        doubts.append(
            f"{clean(weight)} of rank {there} began as {clean(embedding)} of rank {rank} and differs at step {step}; "
            "whether they are tied was not recorded"
        )
    if against is not None and against.missing:
        doubts.append(f"{named('rank', against.missing)}: not in {against.path}")
    if against is not None and against.parts:
        doubts.append(f"{against.path}: {parts_text(against.parts)}")
    if against is not None and not sum(against.compared.values()):
        doubts.append(f"no tensor could be compared with {against.path}")
    if judgement.outcome is Outcome.INTERRUPTED:
        outcome = Outcome.INTERRUPTED
    elif findings:
        outcome = Outcome.FINDING
    else:
        outcome = Outcome.CANNOT_JUDGE if doubts else Outcome.CLEAN
    return RankReport(
        tuple(findings),
        first_bad,
        replicas,
        against,
        tuple(doubts),
        outcome,
        _headline(outcome, findings, doubts, result, replicas),
    )


def _doubts_of_layout(replicas: Replicas) -> list[str]:
    """Returns the weights that may have to be equal, and are not."""
    told = (
        (
            replicas.went_apart,
            "began as one on all ranks and differ from the first dumped step on; that they must be equal",
        ),
        (
            replicas.norms_apart,
            "norms that differ between ranks which have other weights in common; whether they must be equal",
        ),
        (
            replicas.unlike,
            "differ between ranks whose other weights are almost all equal; whether they are parts of larger weights",
        ),
    )
    doubts = [f"{first_of([*map(clean, names)], _MOST)}: {text} was not recorded" for names, text in told if names]
    if replicas.lacked:
        lacked = [f"{clean(each.name)} ({named('rank', each.ranks)} at step {each.step})" for each in replicas.lacked]
        doubts.append(
            f"weights that some of the ranks lack, whose others are almost all equal: {first_of(lacked, _MOST)}"
        )
    return doubts


def _first_bad(result: CheckResult) -> dict[int, Hit]:
    """The first finding of each rank, origins before other findings of the same step."""
    found = result.hits.chosen(result.hits.verdict == Verdict.FINDING)
    first: dict[int, Hit] = {}
    for rank in np.unique(found.rank).tolist():
        own = found.chosen(found.rank == rank)
        earliest = own.chosen(own.step == own.step[0])
        origins = np.flatnonzero(earliest.origin)
        first[rank] = earliest[int(origins[0]) if len(origins) else 0]
    return first


def _broke(first_bad: dict[int, Hit], *, several: bool) -> list[RanksFinding]:
    if not first_bad:
        return []
    ordered = sorted(first_bad.values(), key=lambda hit: (*_when(hit), hit.key.rank))
    first = ordered[0]
    begins = [hit for hit in ordered if _when(hit) == _when(first)]
    follow = [hit for hit in ordered if _when(hit) != _when(first)]
    ranks = tuple(hit.key.rank for hit in begins)
    what = contents(first.stats) or said_words(first)
    who = f"{_who(ranks)} broke first" if several else f"{_who(ranks)}, the only rank of the dump"
    text = f"{who}: step {first.key.step}, {_place(first.key)}, {what}"
    if follow:
        at = follow[0]
        behind = sorted(hit.key.rank for hit in follow)
        text += f"; {named('rank', behind)} from step {at.key.step} on, first {_place(at.key)}"
    return [RanksFinding(Subject.BROKE, first.key.step, ranks, first.key, text)]


def _when(hit: Hit) -> tuple[int, bool, int]:
    """A sort key: within one run of a graph, an origin comes before findings on other ranks that may follow from it."""
    turn, at = hit.order
    return turn, not hit.origin, at


def _who(ranks: Sequence[int]) -> str:
    return named("Rank", sorted(ranks))


def _place(key: TensorKey) -> str:
    return clean(place_text(key))


def _shared(replicas: Replicas) -> list[RanksFinding]:
    found = []
    for each in replicas.shared:
        text = f"{_who(each.ranks)} read one batch at step {each.key.step}: {_place(each.key)} is the same on them"
        if each.steps > 1:
            text += f", and at {plural(each.steps - 1, 'other step')}"
        found.append(RanksFinding(Subject.SHARED, each.key.step, each.ranks, each.key, text))
    return found


def _not_reduced(replicas: Replicas) -> list[RanksFinding]:
    first: dict[str, NotReduced] = {}
    for each in replicas.not_reduced:
        first.setdefault(each.parameter, each)
    found = []
    for name, each in first.items():
        later = next((d for d in replicas.firsts if d.key.node == name and d.key.step >= each.key.step), None)
        text = (
            f"The gradient of {clean(name)} was not reduced over {named('rank', each.group)} at step {each.key.step}: "
            f"it went into no collective operation, {each.others[0]} of {each.others[1]} others did"
        )
        if later is not None:
            text += f"; the weight differs between ranks from step {later.key.step} on"
        found.append(RanksFinding(Subject.NOT_REDUCED, each.key.step, each.group, each.key, text))
    return found


def _differ(replicas: Replicas) -> list[RanksFinding]:
    told = {each.parameter for each in replicas.not_reduced}
    return [
        RanksFinding(Subject.DIFFERS, each.key.step, each.named, each.key, difference_text(each))
        for each in replicas.firsts
        if each.key.node not in told
    ]


def difference_text(found: Difference) -> str:
    twin = f" ({clean(found.twin[1])} on rank {found.twin[0]})" if found.twin is not None else ""
    what = f"{KIND_WORDS[found.kind]} {_place(found.key)}{twin} at step {found.key.step}"
    if found.kind is ReplicaKind.UPDATE:
        text = f"{_who(found.astray)}: {what} is not what the optimizer makes of it; no other rank holds it"
        return f"{text}; {found.why}" if found.why else text
    if found.outliers:
        most = len(found.parts[0])
        who = f"{_who(found.outliers)} {'differs' if len(found.outliers) == 1 else 'differ'}"
        text = f"{who} from {most} other ranks: {what}"
    else:
        text = f"{_who(found.group)} differ: {what}"
    if found.equal_at is None:
        text += ", from the first dumped step on"
    else:
        text += f", equal at step {found.equal_at}"
        if found.astray:
            text += f"; on {named('rank', found.astray)} it is not what the optimizer makes of it"
        elif found.changed is not None and not found.outliers:
            every = len(found.changed) == len(found.group)
            text += "; it changed on " + ("all of them since" if every else f"{named('rank', found.changed)} only")
    return f"{text}: {found.why}" if found.why else text


def _others(against: OtherRunRanks | None) -> list[RanksFinding]:
    if against is None:
        return []
    found = {rank: other for rank, other in against.first.items() if other is not None}
    if not found:
        return []
    step = min(other.key.step for other in found.values())
    begins = {rank: other for rank, other in found.items() if other.key.step == step}
    batches = {rank: other for rank, other in begins.items() if other.batch}
    told = batches or begins
    ranks, key = tuple(told), next(iter(told.values())).key
    rest = sorted(set(against.first) - set(begins))
    who = _who(ranks)
    if batches:
        text = f"{who} {'reads' if len(ranks) == 1 else 'read'} another batch than in {clean(against.path)}"
    else:
        text = f"{who} {'differs' if len(ranks) == 1 else 'differ'} from {clean(against.path)} first"
    text += f": step {step}, {_place(key)}"
    if rest:
        text += f"; {named('rank', rest)} {are(len(rest))} equal there"
    return [RanksFinding(Subject.BATCH if batches else Subject.OTHER, step, ranks, key, text)]


def _headline(
    outcome: Outcome, findings: Sequence[RanksFinding], doubts: Sequence[str], result: CheckResult, replicas: Replicas
) -> str:
    if findings:
        more = len(findings) - 1
        return findings[0].text + (f" · {plural(more, 'more finding')}" if more else "")
    if outcome is Outcome.CANNOT_JUDGE:
        return f"Cannot judge: {'; '.join(map(clean, doubts))}"
    if outcome is Outcome.INTERRUPTED:
        return "Interrupted: no finding so far"
    return f"Clean: {compared_text(replicas)}; {plural(result.coverage.checked, 'tensor')} looked at"


def compared_text(replicas: Replicas) -> str:
    """``4 ranks, 74 tensors compared between them by their bytes (74 weights)``."""
    total = sum(replicas.compared.values())
    kinds = ", ".join(f"{KINDS_WORDS[kind]} {count:,}" for kind, count in sorted(replicas.compared.items()) if count)
    by = f" {BY_WORDS[replicas.by]}" if replicas.by not in (None, KnownBy.NOTHING) else ""
    ranks = plural(len(replicas.layout.ranks), "rank")
    text = f"{ranks}, {plural(total, 'tensor')} compared between them{by}" + (f" ({kinds})" if kinds else "")
    alone = [
        f"{count:,} {words}"
        for count, words in (
            (replicas.updated, "compared with what the optimizer makes of them"),
            (len(replicas.not_updated), "not compared"),
        )
        if count
    ]
    return text + (f"; weights that no other rank holds: {', '.join(alone)}" if alone else "")


def finding_lines(report: RankReport) -> list[str]:
    lines: list[str] = []
    for story in Subject:
        of = [each for each in report.findings if each.story is story]
        lines += [each.text for each in of[:_MOST]]
        if len(of) > _MOST:
            lines.append(f"... and {len(of) - _MOST} more: {story.value}")
    return lines
