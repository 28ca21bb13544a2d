"""Parts of a tensor on several ranks: put together as they were cut, and a doubt where nothing proves how."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diagnose.runs.test_judge import OPS, OUT, W, X, compared_runs, forward, values
from tests.session.opened import opened
from tests.sources.memory import Key, Op
from tests.thorough import examples, few, later
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.distance import ComparedBy
from tui_debugger.diagnose.runs.layouts import GivenDims, PartRelation, PartsLayout, parse_dims
from tui_debugger.diagnose.runs.matching import Rule
from tui_debugger.diagnose.runs.results import NodeJudgement, Options
from tui_debugger.diagnose.runs.shards import Joiner
from tui_debugger.errors import TdbgError

Array = npt.NDArray[Any]
Dumps = Callable[[str], Path]


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def plain(whole: Array, ranks: int, axis: int) -> list[Array]:
    return np.split(whole, ranks, axis)


def zigzag(whole: Array, ranks: int, axis: int) -> list[Array]:
    """Of 2n chunks rank r has the r-th and the r-th but last, so that causal attention costs all of them the same."""
    chunks = np.split(whole, 2 * ranks, axis)
    return [np.concatenate([chunks[rank], chunks[2 * ranks - 1 - rank]], axis) for rank in range(ranks)]


def fused(whole: Array, ranks: int, axis: int) -> list[Array]:
    """Query, key and value in one tensor: each rank has its heads of each of the three."""
    thirds = [np.split(third, ranks, axis) for third in np.split(whole, 3, axis)]
    return [np.concatenate([third[rank] for third in thirds], axis) for rank in range(ranks)]


def striped(whole: Array, ranks: int, axis: int) -> list[Array]:
    return [np.take(whole, range(rank, whole.shape[axis], ranks), axis) for rank in range(ranks)]


def padded(whole: Array, ranks: int, axis: int) -> list[Array]:  # noqa: ARG001 - all cuts are called alike
    """All values in one row, with zeros behind them so that ranks have as many."""
    each = -(-whole.size // ranks)
    row = np.zeros(each * ranks, whole.dtype)
    row[: whole.size] = whole.reshape(-1)
    return np.split(row, ranks)


def summands(whole: Array, ranks: int, axis: int) -> list[Array]:  # noqa: ARG001 - see padded
    terms = [rng(1 << 40 | rank).normal(size=whole.shape).astype(whole.dtype) for rank in range(1, ranks)]
    return [*terms, (whole - sum(terms)).astype(whole.dtype)]


def shares(whole: Array, ranks: int, axis: int) -> list[Array]:
    return [(term * ranks).astype(whole.dtype) for term in summands(whole, ranks, axis)]


CUTS = {
    "plain": (plain, PartsLayout((1,))),
    "zigzag": (zigzag, PartsLayout((1,), zigzag=True)),
    "fused": (fused, PartsLayout((1,), groups=3)),
    "striped": (striped, None),
    "padded": (padded, PartsLayout(flat=True)),
    "sum": (summands, PartsLayout(among=PartRelation.SUM)),
    "mean": (shares, PartsLayout(among=PartRelation.MEAN)),
}
WHOLE = (5, 24, 3)


def tensor(seed: int, shape: tuple[int, ...] = WHOLE) -> Array:
    return rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.covering
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", CUTS)
def test_parts_are_put_together_as_they_were_cut(name: str, ranks: int, *, swapped: bool) -> None:
    whole = tensor(0)
    cut, layout = CUTS[name]
    sides: tuple[Sequence[Array], Sequence[Array]] = [whole], cut(whole, ranks, 1)
    found = Joiner(GivenDims()).compare(sides[::-1] if swapped else sides, "x:OUTPUT0", "x", backward=False)
    assert found.how is ComparedBy.VALUES
    assert found.relative <= 3 * found.unit
    assert layout is None or found.joined == layout.text(ranks)


@pytest.mark.parametrize("name", [name for name in CUTS if name != "padded"])
@given(st.integers(0, 2**32 - 1), st.floats(1.001, 1.05))
@examples(40)
def test_a_fault_in_a_part_is_as_far_as_it_is_in_the_whole(name: str, seed: int, factor: float) -> None:
    whole = tensor(seed)
    parts = CUTS[name][0](whole, 2, 1)
    wrong = [parts[0], parts[1] * np.float32(factor)]
    found = Joiner(GivenDims()).compare(([whole], wrong), "x:OUTPUT0", "x", backward=False)
    assert found.how is ComparedBy.VALUES
    assert 0.05 * (factor - 1) < found.relative < 3 * (factor - 1)


@given(st.integers(2, 4), st.integers(0, 3), st.integers(0, 2**32 - 1))
@examples(40)
def test_a_replica_that_is_another_one_is_named(ranks: int, at: int, seed: int) -> None:
    whole = tensor(seed)
    parts = [whole.copy() for _ in range(ranks)]
    parts[at % ranks] = parts[at % ranks] * np.float32(1.01)
    found = Joiner(GivenDims()).compare(([whole], parts), "x:OUTPUT0", "x", backward=False)
    assert (found.replicas, found.unlike) == ((0, at % ranks), (1, at % ranks))
    assert found.relative == pytest.approx(0.01, rel=0.1)


def test_nan_in_one_part_is_a_difference() -> None:
    whole = tensor(3)
    for name in ("plain", "zigzag", "sum"):
        parts = CUTS[name][0](whole, 2, 1)
        parts[1] = parts[1].copy()
        parts[1].reshape(-1)[3] = np.nan
        found = Joiner(GivenDims()).compare(([whole], parts), "x:OUTPUT0", "x", backward=False)
        assert (found.how, found.relative) == (ComparedBy.VALUES, math.inf), name


def test_where_nothing_proves_the_layout_nothing_is_compared() -> None:
    joiner = Joiner(GivenDims())
    others = plain(tensor(9), 2, 1)
    assert joiner.compare(([tensor(1)], others), "x:OUTPUT0", "x", backward=False).how is ComparedBy.NOT
    odd = [tensor(1)[:, :7], tensor(1)[:, :7]]
    assert joiner.compare(([tensor(1)], odd), "x:OUTPUT0", "x", backward=False).how is ComparedBy.NOT


def test_a_proven_layout_is_believed_where_values_are_too_far_to_tell() -> None:
    joiner = Joiner(GivenDims())
    joiner.compare(([tensor(1)], plain(tensor(1), 2, 1)), "x:OUTPUT0", "x", backward=False)
    found = joiner.compare(([tensor(1)], plain(tensor(9), 2, 1)), "y:OUTPUT0", "y", backward=False)
    assert found.relative == pytest.approx(np.linalg.norm(tensor(1) - tensor(9)) / np.linalg.norm(tensor(9)), rel=0.1)


def test_another_order_at_a_later_step_is_a_difference() -> None:
    joiner = Joiner(GivenDims())
    sides = [tensor(1)], plain(tensor(1), 2, 1)
    assert joiner.compare(sides, "x:OUTPUT0", "x", backward=False).equal
    assert joiner.compare((sides[0], zigzag(tensor(1), 2, 1)), "x:OUTPUT0", "x", backward=False).relative > 0.5
    assert joiner.compare((sides[0], sides[1][::-1]), "x:OUTPUT0", "x", backward=False).relative > 0.5


def test_what_is_zero_at_first_may_be_anything_later() -> None:
    joiner = Joiner(GivenDims())
    zeros = np.zeros_like(tensor(1))
    assert joiner.compare(([zeros], [zeros, zeros]), "x:OUTPUT0", "x", backward=False).equal
    parts = summands(tensor(1), 2, 1)
    assert joiner.compare(([tensor(1)], parts), "x:OUTPUT0", "x", backward=False).joined == "2 ranks, added up"


def test_the_losses_of_shares_of_a_batch_are_averaged_though_they_are_near_each_other() -> None:
    losses = [np.float32(2.3125), np.float32(2.34375)]
    whole = np.asarray((losses[0] + losses[1]) / 2, np.float32)
    found = Joiner(GivenDims()).compare(
        ([whole], [np.asarray(each) for each in losses]), "x:OUTPUT0", "x", backward=False
    )
    assert (found.joined, found.relative) == ("2 ranks, averaged", 0.0)


def test_what_the_user_says_needs_no_proof() -> None:
    joiner = Joiner(GivenDims((parse_dims("x*=1"), parse_dims("y=sum"))))
    assert joiner.compare(([tensor(1)], plain(tensor(9), 2, 1)), "x:OUTPUT0", "x", backward=False).relative > 1
    assert joiner.compare(([tensor(1)], [tensor(2), tensor(3)]), "y:OUTPUT0", "y", backward=False).relative > 1


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("*=replicated", PartsLayout()),
        ("*=sum", PartsLayout(among=PartRelation.SUM)),
        ("*=mean", PartsLayout(among=PartRelation.MEAN)),
        ("*=flat", PartsLayout(flat=True)),
        ("a=b=0", PartsLayout((0,))),
        ("*=1:zigzag", PartsLayout((1,), zigzag=True)),
        ("*=2:3", PartsLayout((2,), groups=3)),
    ],
)
def test_layouts_are_parsed(text: str, layout: PartsLayout) -> None:
    assert parse_dims(text) == (text.rpartition("=")[0], layout)


@pytest.mark.parametrize("text", ["", "x", "=sum", "x=", "x=sums", "x=1:", "x=1:0", "x=10", "x=1:zag"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(TdbgError, match="does not say how ranks share"):
        parse_dims(text)


# -- whole runs ----------------------------------------------------------------------------------------


def halves(step: dict[Key, Array], *, at: str = "", factor: float = 1.0) -> dict[int, dict[Key, Array]]:
    """What two data-parallel ranks record: each has half of the batch, and all weights. ``at`` is wrong on rank 1."""
    found: dict[int, dict[Key, Array]] = {0: {}, 1: {}}
    for key, value in step.items():
        for rank, own in found.items():
            part = value if key[0] == "w" or key[1:] == (0, 1) else np.split(value, 2)[rank]
            own[key] = part * np.float32(factor) if rank == 1 and key == (at, OUT, 0) else part
    return found


def batch(step: dict[Key, Array]) -> dict[Key, Array]:
    """The same as rows of a batch; the weight is a row."""
    return {key: value.reshape(4, -1) for key, value in step.items()}


ROWS = np.tile(values(1)[:64], (4, 1)).reshape(-1)
WEIGHT = values(1)[:64].reshape(1, -1)


def whole_step() -> dict[Key, Array]:
    found = batch(forward(X, ROWS))
    return {key: WEIGHT if key[0] == "w" or key == ("Custom-op1", 0, 1) else value for key, value in found.items()}


def test_two_data_parallel_ranks_are_one_run() -> None:
    whole = whole_step()
    for sides in (({0: {0: whole}}, by_rank(halves(whole))), (by_rank(halves(whole)), {0: {0: whole}})):
        report = compared_runs(*sides)
        assert (report.exit_code, report.doubts) == (0, ())
        (step,) = report.steps
        assert sorted(map(len, step.ranks)) == [1, 2]
        assert step.joined["split"] >= 5
        assert {judged.judgement for judged in step.judged} == {NodeJudgement.SAME}


def by_rank(ranks: dict[int, dict[Key, Array]]) -> dict[int, dict[int, dict[Key, Array]]]:
    return {rank: {0: step} for rank, step in ranks.items()}


def test_a_fault_on_the_second_rank_only_is_found() -> None:
    report = compared_runs({0: {0: whole_step()}}, by_rank(halves(whole_step(), at="Other-op2", factor=1.01)))
    assert [finding.name for finding in report.findings] == ["Other-op2"]
    assert report.findings[0].distance is not None
    assert report.findings[0].distance.joined.startswith("2 ranks, cut along dimension 0")
    assert report.findings[0].text.endswith("(in B it is of 2 ranks, cut along dimension 0)")


def test_a_replica_that_is_another_one_is_the_tensor_to_look_at() -> None:
    step = forward(X, W)
    wrong = step | {("Other-op2", OUT, 0): step["Other-op2", OUT, 0] * np.float32(1.01)}
    (finding,) = compared_runs({0: {0: step}}, {0: {0: step}, 1: {0: wrong}}).findings
    assert (finding.name, finding.keys[1] and finding.keys[1].rank) == ("Other-op2", 1)
    assert finding.text.endswith("2 ranks, replicas: rank 1 differs most)")


def stages(step: dict[Key, Array], *, at: str = "") -> dict[int, dict[int, dict[Key, Array]]]:
    """Two stages of a pipeline: the first rank has the first operator, the second one has the others."""
    found: dict[int, dict[Key, Array]] = {0: {}, 1: {}}
    for key, value in step.items():
        wrong = value * np.float32(1.01) if key == (at, OUT, 0) else value
        found[key[0] in {"Other-op2", "Third-op3"}][key] = wrong
    return by_rank(found)


@pytest.mark.parametrize("swapped", [False, True])
def test_stages_of_a_pipeline_are_one_run(*, swapped: bool) -> None:
    whole = {0: {0: forward(X, W)}}
    for at in ("", "Custom-op1", "Other-op2"):
        sides = (whole, stages(forward(X, W), at=at))
        report = compared_runs(*(sides[::-1] if swapped else sides))
        assert report.doubts == ()
        assert all(not step.one_sided for step in report.steps)
        assert sum(len(step.judged) for step in report.steps) == len(OPS)
        assert report.exit_code == bool(at)
        assert report.headline is None if not at else report.headline is not None and report.headline.name == at


def test_a_node_that_only_another_rank_has_is_a_doubt() -> None:
    ranks = by_rank(halves(whole_step()))
    more = (*OPS, Op("Lonely-op9", "Lonely", [("Third-op3", 0)]))
    ranks[1][0] |= {("Lonely-op9", OUT, 0): X}
    report = compared_runs({0: {0: whole_step()}}, ranks, others=more)
    doubt = "rank 1 step 0: Lonely-op9 is in the second run only, and nothing around it tells"
    assert (report.exit_code, report.doubts) == (2, (doubt,))


def test_a_step_that_another_rank_lacks_is_a_doubt() -> None:
    parts = halves(whole_step())
    ranks = {0: {0: parts[0], 1: parts[0]}, 1: {0: parts[1]}}
    report = compared_runs({0: {0: whole_step(), 1: whole_step()}}, ranks)
    assert report.exit_code == 2
    assert "rank 1 of B has no step 1" in report.doubts


def test_ranks_that_belong_together_can_be_named() -> None:
    parts = by_rank(halves(whole_step()))
    four = {**parts, 2: parts[0], 3: parts[1]}
    two = {0: {0: whole_step()}, 1: {0: whole_step()}}
    mapped = Options(ranks=((0, 0), (0, 1), (1, 2), (1, 3)))
    report = compared_runs(two, four, mapped)
    assert report.exit_code == 0
    assert [step.ranks for step in report.steps] == [((0,), (0, 1)), ((1,), (2, 3))]
    report = compared_runs(two, four, Options(ranks=((0, 0), (0, 1), (1, 1))))
    assert [step.ranks for step in report.steps] == [((0, 1), (0, 1))], "several of both belong together"
    assert (report.findings, len(report.doubts)) == ((), 2)


@pytest.mark.parametrize(
    ("name", "swapped"), [("l_tp", False), later("l_tp", True), later("l_tp_bug", False), ("l_tp_bug", True)]
)
def test_a_layer_split_over_two_ranks(dumps: Dumps, name: str, *, swapped: bool) -> None:
    """Its bias is added behind the all-reduce in the good run, and before it on both ranks in the other one."""
    pair = dumps("msprobe-pairs-tp") / name
    sessions = [opened(pair / side) for side in ("BA" if swapped else "AB")]
    report = compare_runs(*sessions)
    step = report.steps[0]
    names = sessions[0].nodes(0).names
    judged = {names[each.match.a]: each.judgement for each in step.judged}
    assert {word: count > 0 for word, count in step.joined.items()} == dict.fromkeys(
        ("split", "sum", "replicated"), True
    )
    assert judged["b/0/mlp/fc1/Functional.linear"] in {NodeJudgement.ROUNDING, NodeJudgement.SAME}
    assert any(each.match.rule is Rule.GRADIENT for each in step.judged)
    if name == "l_tp":
        assert (report.exit_code, report.findings, report.doubts) == (0, (), ())
        assert judged["b/0/mlp/fc2/Functional.linear"] is NodeJudgement.ROUNDING
    else:
        assert report.headline is not None
        assert (report.headline.name, report.headline.place.step_a) == ("b/0/mlp/ColRow", 0)
    for session in sessions:
        session.close()


SPLIT_KEYS = [key for key in whole_step() if key[0] != "w" and key[1:] != (0, 1)]


@given(
    st.sampled_from(SPLIT_KEYS),
    st.integers(0, 1),
    st.sampled_from(["scale", "offset", "element", "nan", "gone", "spoilt", "shape"]),
    st.booleans(),
)
@examples(200)
def test_what_is_wrong_on_any_rank_is_a_difference_or_a_doubt(key: Key, rank: int, kind: str, swapped: bool) -> None:
    ranks: dict[int, dict[Key, Any]] = dict(halves(whole_step()))
    value = ranks[rank][key]
    if kind == "gone":
        if key[1] is not OUT:
            return  # an input that was not dumped is known by the output that it is
        del ranks[rank][key]
    elif kind == "spoilt":
        ranks[rank][key] = b"spoilt"
    elif kind == "shape":
        ranks[rank][key] = value.reshape(-1, 2)
    elif kind in {"scale", "offset"}:
        ranks[rank][key] = value * np.float32(1.02) if kind == "scale" else value + np.float32(0.1)
    else:
        other = value.copy()
        other.reshape(-1)[9] = np.nan if kind == "nan" else 7.5
        ranks[rank][key] = other
    sides = ({0: {0: whole_step()}}, by_rank(ranks))
    assert compared_runs(*(sides[::-1] if swapped else sides)).exit_code != 0


@pytest.mark.parametrize(
    ("file", "node"),
    few(
        [
            ("Functional.gelu.1.forward.output.0.pt", "b/1/mlp/act/Functional.gelu"),
            ("Functional.linear.4.forward.output.0.pt", "b/0/mlp/fc1/Functional.linear"),
            ("Functional.linear.5.forward.output.0.pt", "b/0/mlp/fc2/Functional.linear"),
            ("Functional.layer_norm.2.forward.output.0.pt", "b/1/ln1/Functional.layer_norm"),
            ("Torch.softmax.1.forward.output.0.pt", "b/1/attn/Torch.softmax"),
            ("Functional.gelu.0.backward.output.0.pt", "Gradients/b/0/mlp/act/Functional.gelu"),
        ],
        3,
    ),
)
def test_an_error_on_the_second_rank_only_is_the_headline(dumps: Dumps, tmp_path: Path, file: str, node: str) -> None:
    """The first rank's operator is right, and so it is when computed again."""
    torch = pytest.importorskip("torch")
    pair = dumps("msprobe-pairs-tp") / "l_tp"
    shutil.copytree(pair / "B", tmp_path / "B")
    target = tmp_path / "B" / "step1" / "rank1" / "dump_tensor_data" / file
    torch.save(torch.load(target) * 1.01, target)
    sessions = opened(pair / "A"), opened(tmp_path / "B")
    headline = compare_runs(*sessions).headline
    for session in sessions:
        session.close()
    assert headline is not None
    assert (headline.name, headline.place.step_a) == (node, 1)
