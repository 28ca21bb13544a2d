"""The rule in columns against the rule one by one: the same start and the same values, of every bad tensor."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.causes.doors import in_memory, on_disk
from tests.causes.generated import generated
from tests.causes.one_by_one import Answer, Bad, OneByOne, Value, bad_tensors, measure_all, ordered
from tests.mounts.places import LAYOUTS, local
from tests.session.opened import checked, opened
from tests.thorough import few, later
from tui_debugger.causes.rule import Examination
from tui_debugger.causes.table import OVERFLOW, Criterion, Examined, InputState, OriginKind
from tui_debugger.check.measure import Measurements, Needs
from tui_debugger.model import Hit, ProgressFn, TensorKey, Watchpoint, no_progress
from tui_debugger.session import Session
from tui_debugger.stats.records import RecordState as RowState

Dumps = Callable[[str], Path]
Part = tuple[float, float, float, float]
"""Parts of the files that get a NaN, an Inf in all elements, are lost, or cannot be read."""
PARTS: tuple[Part, ...] = (
    (0.02, 0, 0, 0),
    (0.3, 0.1, 0.1, 0.05),
    (0.9, 0.05, 0.3, 0),
    (0.5, 0, 0, 0),
    (0.1, 0.1, 0.6, 0.1),
)
SEEDS = range(1, 6)
REPEATED = ("mindspore-2.10-multi-gan", "mindspore-2.10-multi-flow")
"""Dumps with several runs of a graph in a step."""
GRAPHLESS = tuple(each for each in LAYOUTS if not each.startswith("mindspore"))
OTHERS = (
    Criterion(Watchpoint(1, "tensor_too_large", (("max_gt", 0.5),))),
    Criterion(Watchpoint(2, "weight_not_changed")),
)
"""What else can be wrong with a tensor: large values, and those that hardly change."""


# -- what is held against what ------------------------------------------------------------------------


def compare(session: Session, criterion: Criterion = OVERFLOW, fresh: Session | None = None) -> Counter[OriginKind]:
    """Holds every bad tensor of a dump against the oracle; returns how many have which start.

    Args:
        session: measures all of the dump.
        criterion: what is bad.
        fresh: another session on the dump; it has measured these tensors only.
    """
    found: Counter[OriginKind] = Counter()
    for rank in session.ranks():
        measurements = session.measurements(rank)
        measure_all(measurements, session.steps(rank), criterion.need)
        for step in session.steps(rank):
            bad = bad_tensors(measurements, step, criterion)
            right = list(OneByOne(measurements, step, bad, criterion).answers())
            found.update(each.start for each in right)
            for key, given, wanted in zip(*said(measurements, step, bad, criterion), right, strict=True):
                assert decisive(given) == decisive(wanted), key
            if fresh is None:
                continue
            quick = fresh.measurements(rank)
            at = [quick.flow.located(step, *each).index for each in bad]
            quick.ensure({(step, each): criterion.need for each in at})
            for key, given, wanted in zip(*said(quick, step, bad, criterion), right, strict=True):
                assert decisive(given) == decisive(wanted), key
    return found


def decisive(answer: Answer) -> Answer:
    """An answer without what does not matter: of what was passed on not every value is looked at closely."""
    if answer.start is not OriginKind.TAINTED:
        return answer
    assert any(state is InputState.BAD for *_, state, _, _ in answer.values)
    return replace(answer, values=tuple((*each[:3], None, InputState.UNKNOWN, False, False) for each in answer.values))


def said(
    measurements: Measurements, step: int, bad: list[Bad], criterion: Criterion
) -> tuple[list[TensorKey], list[Answer]]:
    """The bad tensors of a step, and what the program says of each."""
    nodes, rank = measurements.flow.nodes, measurements.flow.rank
    keys = [nodes.key(rank, step, row, side, slot, round=round_) for row, side, slot, round_ in bad]
    asked = [(Hit(key, each[0], (), (0, 0)), (criterion,)) for key, each in zip(keys, bad, strict=True)]
    examination = Examination(measurements, step, asked)
    return keys, [answer_of(examination.of(number)) for number in range(len(bad))]


def answer_of(given: Examined) -> Answer:
    """What the program says of a tensor, as the oracle says it."""
    values: list[Value] = [
        (
            each.node,
            each.slot,
            each.side,
            None if each.at is None else (each.at.step, each.at.index),
            each.state,
            each.constant,
            each.missing,
        )
        for each in given.values
    ]
    return Answer(
        given.start, given.made_by, given.beside, given.node, given.parameter, given.exchanged, ordered(values)
    )


def marked_as_by_the_oracle(session: Session) -> None:
    """The marks of ``check`` are the oracle's origins, and so are the tensors of the origins of ``origin``."""
    for rank, step in session.pairs():
        measurements = session.measurements(rank)
        hits = [hit for hit in session.check([(rank, step)]).hits if hit.stats is not None and hit.stats.bad]
        bad = [(hit.row, hit.key.side, hit.key.slot, hit.key.round) for hit in hits]
        right = OneByOne(measurements, step, bad, OVERFLOW).answers()
        origins = {hit.key for hit, each in zip(hits, right, strict=True) if each.start.is_origin(step)}
        assert {hit.key for hit in hits if hit.origin} == origins
        report = session.find_origin([(rank, step)])
        named = [origin for each in report.searches for origin in (*each.origins, *each.before)]
        assert {hit.key for origin in named for hit in origin.hits} == origins


# -- damage -------------------------------------------------------------------------------------------


def spoiled(dump: Path, target: Path, part: Part, seed: int, steps: int = 2) -> Path:
    """The first steps of rank 0 of a dump of MindSpore, with random damage."""
    chance = np.random.default_rng([seed, *(round(100 * each) for each in part)])
    nan, inf, lost, unreadable = part
    for folder in ("graphs", "execution_order", ".dump_metadata"):
        if (dump / "rank_0" / folder).is_dir():
            shutil.copytree(dump / "rank_0" / folder, target / "rank_0" / folder)
    for source in sorted(each for step in range(steps) for each in dump.glob(f"rank_0/*/*/{step}/*.npy")):
        copy = target / source.relative_to(dump)
        copy.parent.mkdir(parents=True, exist_ok=True)
        values, dice, fate = np.load(source), chance.random(), chance.random()
        if values.dtype.kind == "f" and values.size and dice < nan + inf:
            values[() if dice < inf else (0,) * values.ndim] = np.inf if dice < inf else np.nan
        if fate >= lost:
            np.save(copy, values)
        if lost <= fate < lost + unreadable:
            copy.write_bytes(copy.read_bytes()[:60])
    return target


def spoil_records(session: Session, part: Part, seed: int) -> None:
    """Damages what was measured, whatever the layout."""
    nan, inf, _, unreadable = part
    for rank in session.ranks():
        measurements = session.measurements(rank)
        measure_all(measurements, session.steps(rank), OVERFLOW.need)
        for step in session.steps(rank):
            rows = measurements.records(step).rows
            chance = np.random.default_rng([seed, rank, abs(step), *(round(100 * each) for each in part)])
            dice, fate = chance.random(len(rows)), chance.random(len(rows))
            measured = (rows["state"] == RowState.MEASURED) & (rows["count"] > 0)
            rows["pos_inf"][measured & (dice < inf)] = rows["count"][measured & (dice < inf)]
            rows["nan"][measured & (inf <= dice) & (dice < inf + nan)] = 1
            rows["state"][measured & (fate < unreadable)] = RowState.UNREADABLE


# -- dumps of MindSpore -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part", "seed"),
    few(
        [
            (name, part, seed)
            for part in PARTS
            for seed in SEEDS
            for name in ("mindspore-2.0-mlp", "mindspore-2.10-mlp", "mindspore-2.0-nan", "mindspore-2.10-nan")
        ],
        4,
    ),
    ids=str,
)
def test_random_damage_gets_the_same_answers(name: str, part: Part, seed: int, tmp_path: Path, dumps: Dumps) -> None:
    dump = spoiled(dumps(name), tmp_path / "dump", part, seed)
    assert compare(opened(dump), fresh=opened(dump))
    marked_as_by_the_oracle(opened(dump, "TO"))


@pytest.mark.parametrize(
    ("name", "part", "seed"), few([(n, p, s) for p in PARTS for s in SEEDS for n in REPEATED], 3), ids=str
)
def test_a_step_of_several_rounds_gets_the_same_answers(
    name: str, part: Part, seed: int, tmp_path: Path, dumps: Dumps
) -> None:
    dump = spoiled(dumps(name), tmp_path / "dump", part, seed)
    session = opened(dump)
    assert any(session.source.tensors(0, step).round.any() for step in session.steps(0))
    assert compare(session, fresh=opened(dump))


# -- other layouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, later(2), later(3)])
@pytest.mark.parametrize("part", [PARTS[1], later(PARTS[0]), later(PARTS[3])], ids=str)
@pytest.mark.parametrize("layout", GRAPHLESS)
def test_layouts_without_a_graph_get_the_same_answers(
    layout: str, part: Part, seed: int, tmp_path: Path, dumps: Dumps
) -> None:
    session = opened(local(layout, tmp_path / "dump", dumps))
    spoil_records(session, part, seed)
    assert compare(session) or part == PARTS[0]


# -- generated steps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", few(range(240), 12))
def test_generated_steps_get_the_same_answers(seed: int, tmp_path: Path) -> None:
    case = generated(seed)
    compare(opened(in_memory(case)), fresh=opened(in_memory(case)))
    for inputs in (False, True):
        dump = on_disk(case, tmp_path / f"inputs {inputs}", inputs=inputs)
        compare(opened(dump), fresh=opened(dump))


# -- other criteria -----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", OTHERS, ids=lambda each: str(each.watchpoint.condition))
@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", later("mindspore-2.10-mlp"), later("msprobe-L1-nan")])
def test_whatever_is_wrong_gets_the_same_answers(name: str, criterion: Criterion, dumps: Dumps) -> None:
    assert compare(opened(dumps(name)), criterion)


# -- what is measured ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
def test_of_a_run_that_broke_hardly_any_value_is_measured(
    name: str, dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most bad tensors got something bad, which the other bad tensors tell: their other values are not asked for."""
    places: set[tuple[int, int]] = set()
    ensure = Measurements.ensure

    def counted(self: Measurements, needs: Needs, progress: ProgressFn = no_progress, text: str = "") -> None:
        if text.endswith("origins"):
            places.update(needs)
        ensure(self, needs, progress, text)

    monkeypatch.setattr(Measurements, "ensure", counted)
    hits = checked(opened(dumps(name), "TO"))
    assert {hit.key.node.rsplit("/", 1)[-1].split("-")[0] for hit in hits if hit.origin} == {"Log", "Div"}
    assert 0 < len(places) < 0.1 * len(hits)
