"""Several ranks against another number of several: a layer of a transformer, really split by hand over a grid of ranks.

Each rank computes its share with its own slices of the weights, as Megatron does: the batch over data-parallel ranks,
heads and the inner features of the MLP over tensor-parallel ones, and what comes out of a row-parallel layer is a
partial sum before the all-reduce. SGLang's dumper is the layout, with and without what it records of the places of
ranks and of dimensions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diagnose.runs.test_judge import OPS, OUT, W, X, compared_runs, forward
from tests.diagnose.runs.test_shards import CUTS, by_rank, halves, plain, tensor, whole_step
from tests.session.opened import opened
from tests.sources.memory import Key
from tests.thorough import examples, few
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.distance import ComparedBy
from tui_debugger.diagnose.runs.layouts import GivenDims
from tui_debugger.diagnose.runs.results import RunsReport
from tui_debugger.diagnose.runs.shards import Joiner

torch = pytest.importorskip("torch")

BATCH, LENGTH, WIDTH, HEADS, INNER = 8, 6, 16, 4, 32
STEPS = 2


class Grid(NamedTuple):
    """Ranks by tensor- and data-parallel places; the tensor-parallel ones are neighbours."""

    dp: int
    tp: int


class Fault(NamedTuple):
    """One rank's tensor is wrong, and what follows from it."""

    name: str
    rank: int
    change: Callable[[Any], Any]
    step: int = 1


GRIDS = [Grid(2, 2), Grid(1, 4), Grid(4, 1), Grid(1, 2), Grid(2, 1)]
PAIRS = [(a, b) for a, b in itertools.product(GRIDS, GRIDS) if a != b]
FACTS = ("dims", "places", "none")

DIMS = {
    "emb": "b[dp] s d # tp:replicated",
    "qkv": "b[dp] s three h[tp] e",
    "ctx": "b[dp] s h[tp] e",
    "proj_partial": "b[dp] s d[tp:partial]",
    "attn_out": "b[dp] s d # tp:replicated",
    "fc1_out": "b[dp] s f[tp]",
    "act": "b[dp] s f[tp]",
    "fc2_partial": "b[dp] s d[tp:partial]",
    "out": "b[dp] s d # tp:replicated",
    "param__fc1.weight": "f[tp] d # dp:replicated",
    "param__fc2.weight": "d f[tp] # dp:replicated",
    "param__norm.weight": "d # tp:replicated dp:replicated",
}


def weights(seed: int) -> dict[str, Any]:
    made = torch.Generator().manual_seed(seed)
    shapes = {"emb": (64, WIDTH), "qkv": (3, HEADS, WIDTH // HEADS, WIDTH), "proj": (WIDTH, HEADS, WIDTH // HEADS)}
    shapes |= {"fc1": (INNER, WIDTH), "fc2": (WIDTH, INNER)}
    found = {name: torch.randn(shape, generator=made) / 4 for name, shape in shapes.items()}
    return found | {"norm": torch.ones(WIDTH)}


def layer(grid: Grid, step: int, fault: Fault | None) -> list[dict[str, Any]]:
    """What each rank records of one step."""
    whole = weights(step)
    ids = torch.randint(0, 64, (BATCH, LENGTH), generator=torch.Generator().manual_seed(100 + step))
    ranks = [divmod(rank, grid.tp) for rank in range(grid.dp * grid.tp)]
    records: list[dict[str, Any]] = [{} for _ in ranks]

    def note(name: str, values: list[Any]) -> list[Any]:
        if fault is not None and (fault.name, fault.step) == (name, step):
            values = [fault.change(value) if at == fault.rank else value for at, value in enumerate(values)]
        for record, value in zip(records, values, strict=True):
            record[name] = value.clone()
        return values

    def reduced(values: list[Any]) -> list[Any]:
        """The all-reduce over tensor-parallel ranks."""
        return [sum(values[other] for other, (d, _) in enumerate(ranks) if d == dp) for dp, _ in ranks]

    def cut(name: str, axis: int) -> list[Any]:
        return [whole[name].chunk(grid.tp, axis)[tp].contiguous() for _, tp in ranks]

    fc1, fc2 = note("param__fc1.weight", cut("fc1", 0)), note("param__fc2.weight", cut("fc2", 1))
    norm = note("param__norm.weight", [whole["norm"] for _ in ranks])
    x = note("emb", [whole["emb"][ids.chunk(grid.dp)[dp]] for dp, _ in ranks])
    qkv = [torch.einsum("bsd,thed->bsthe", x[at], own) for at, own in enumerate(cut("qkv", 1))]
    qkv = note("qkv", qkv)
    ctx = []
    for own in qkv:
        q, k, v = (own[:, :, n].transpose(1, 2) for n in range(3))
        ctx.append(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous())
    ctx = note("ctx", ctx)
    proj = [torch.einsum("bshe,dhe->bsd", ctx[at], own) for at, own in enumerate(cut("proj", 1))]
    attn = [one + other for one, other in zip(x, reduced(note("proj_partial", proj)), strict=True)]
    attn = note("attn_out", attn)
    hidden = [torch.nn.functional.layer_norm(one, (WIDTH,)) * own for one, own in zip(attn, norm, strict=True)]
    act = note("fc1_out", [one @ own.T for one, own in zip(hidden, fc1, strict=True)])
    act = note("act", [torch.nn.functional.gelu(each) for each in act])
    parts = note("fc2_partial", [one @ own.T for one, own in zip(act, fc2, strict=True)])
    note("out", [one + other for one, other in zip(attn, reduced(parts), strict=True)])
    return records


def dump(path: Path, grid: Grid, facts: str, fault: Fault | None = None) -> Path:
    """Writes a dump of SGLang's dumper."""
    path.mkdir(parents=True)
    for step in range(STEPS):
        for rank, record in enumerate(layer(grid, step, fault)):
            dp, tp = divmod(rank, grid.tp)
            info = {"tp_rank": tp, "tp_size": grid.tp, "dp_rank": dp, "dp_size": grid.dp}
            for number, (name, value) in enumerate(record.items()):
                meta: dict[str, Any] = {"name": name, "step": step, "rank": rank}
                if facts != "none":
                    meta["megatron_parallel_info"] = info
                if facts == "dims":
                    meta["dims"] = DIMS[name]
                tags = f"step={step}___rank={rank}___dump_index={STEPS * step * 100 + number}___name={name}"
                torch.save({"value": value, "meta": meta}, path / f"{tags}___recompute_status=disabled.pt")
    return path


def compared(path: Path, a: Grid, b: Grid, facts: str, fault: Fault | None = None) -> RunsReport:
    sessions = opened(dump(path / "A", a, facts)), opened(dump(path / "B", b, facts, fault))
    try:
        return compare_runs(*sessions)
    finally:
        for session in sessions:
            session.close()


@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize(("a", "b"), few(PAIRS, 8), ids=str)
def test_healthy_runs_of_other_grids_are_the_same(tmp_path: Path, a: Grid, b: Grid, facts: str) -> None:
    report = compared(tmp_path, a, b, facts)
    assert (report.findings, report.doubts) == ((), ())
    assert report.exit_code == 0
    assert all(step.ranks == (tuple(range(a.dp * a.tp)), tuple(range(b.dp * b.tp))) for step in report.steps)


def scaled(value: Any) -> Any:
    return value * 1.01


def one_element(value: Any) -> Any:
    other = value.clone()
    other.reshape(-1)[int(other.abs().argmax())] *= 0.5
    return other


def nan(value: Any) -> Any:
    other = value.clone()
    other.reshape(-1)[3] = float("nan")
    return other


CHANGES = {"scale": scaled, "sign": torch.neg, "element": one_element, "nan": nan}
PLANTS = [
    ((a, b), facts, name, change)
    for (a, b), facts, name, change in itertools.product(PAIRS, FACTS, DIMS, CHANGES)
    if b.dp * b.tp > 2
]


@pytest.mark.parametrize(("grids", "facts", "name", "change"), few(PLANTS, 40), ids=str)
def test_a_fault_of_one_rank_is_the_headline(
    tmp_path: Path, grids: tuple[Grid, Grid], facts: str, name: str, change: str
) -> None:
    """Without any facts a large one may leave nothing that proves how the parts fit: that is a doubt, never the same.

    Nobody recorded what reads a parameter: it is a finding beside the first output that is wrong for it.
    """
    last = grids[1].dp * grids[1].tp - 1
    report = compared(tmp_path, *grids, facts, Fault(name, last, CHANGES[change]))
    node = name.removeprefix("param__")
    if report.headline is None:
        assert facts != "dims"
        assert report.exit_code == 2
        assert any(node in doubt for doubt in report.doubts)
        return
    assert report.headline.place.step_a == 1
    if name == node:
        assert report.headline.name == node
    else:
        assert node in {finding.name for finding in report.findings}


# -- parts against parts -------------------------------------------------------------------------------

BOTH = {name: cut for name, (cut, _) in CUTS.items() if name not in {"striped", "zigzag"}}
COUNTS = ((2, 4), (4, 2), (2, 3), (3, 2), (4, 8))


def terms(whole: Any, count: int, name: str) -> list[Any]:
    """Terms of a sum or a mean: other ones for another number of ranks."""
    made = np.random.default_rng(count)
    found = [made.normal(size=whole.shape).astype(whole.dtype) for _ in range(count - 1)]
    found.append((whole - sum(found)).astype(whole.dtype))
    return [each * np.float32(count) for each in found] if name == "mean" else found


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("name", BOTH)
def test_parts_of_two_numbers_of_ranks_make_one_whole(name: str, counts: tuple[int, int]) -> None:
    whole = tensor(0, (5, 24, 3))
    if name in {"sum", "mean"}:
        sides = terms(whole, counts[0], name), terms(whole, counts[1], name)
    elif name == "fused" and 3 in counts:
        return  # a third of 24 is not divided by 3
    else:
        cut = plain if name == "fused" else BOTH[name]
        sides = BOTH[name](whole, counts[0], 1), cut(whole, counts[1], 1)
    found = Joiner(GivenDims()).compare(sides, "x:OUTPUT0", "x", backward=False)
    assert found.how is ComparedBy.VALUES
    assert found.relative <= 3 * found.unit


@pytest.mark.parametrize("name", ["plain", "padded", "sum", "mean"])
@given(st.integers(0, 2**32 - 1), st.sampled_from(["scale", "swap", "nan", "other"]))
@examples(60)
def test_parts_that_make_another_whole_are_not_the_same(name: str, seed: int, kind: str) -> None:
    """Ranks in another order hold another whole: two sums that are equal prove nothing there."""
    whole = tensor(seed, (5, 24, 3))
    good, parts = BOTH[name](whole, 2, 1), list(BOTH[name](whole, 4, 1))
    if kind == "swap":
        if name in {"sum", "mean"}:
            return
        good = [good[1], good[0]]
    elif kind == "scale":
        parts[2] = parts[2] * np.float32(1.02)
    elif kind == "nan":
        parts[3] = parts[3].copy()
        parts[3].reshape(-1)[0] = np.nan
    else:
        parts[1] = tensor(seed + 1, parts[1].shape)
    found = Joiner(GivenDims()).compare((good, parts), "x:OUTPUT0", "x", backward=False)
    assert not found.compared or found.relative > 3 * found.unit


def test_replicas_in_another_order_are_no_terms_of_one_sum() -> None:
    one, other = tensor(1), tensor(2)
    for name in ("x", "y"):
        found = Joiner(GivenDims()).compare(([one, other], [other, one, other, one]), name, name, backward=False)
        assert not found.compared or found.relative > 0.1


ONE, OTHER = tensor(1), tensor(2)
ONES = np.ones_like(ONE)
WRONG_COPIES = {
    "another": ([ONE, ONE], [ONE, OTHER, ONE]),
    "turned": ([ONE, ONE], [ONE, ONE, -ONE]),
    "turned, as many": ([ONE, ONE], [ONE, ONE, ONE, -ONE]),
    "turned, against one": ([ONE], [ONE, ONE, -ONE]),
    "ones": ([ONES, ONES], [ONES, ONES, ONES, -ONES]),
    "nothing": ([ONE, ONE], [ONE, ONE, 0 * ONE]),
    "nothing, of two": ([ONE, ONE], [ONE, 0 * ONE]),
    "nothing, against one": ([ONE], [ONE, 0 * ONE]),
    "nothing, of half": ([ONE, ONE], [ONE, ONE, 0 * ONE, 0 * ONE]),
    "slices": ([*plain(ONE, 2, 1), *plain(ONE, 2, 1)], [ONE, ONE, -ONE]),
}


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", WRONG_COPIES)
def test_a_copy_that_is_wrong_is_no_term_of_a_sum(name: str, *, swapped: bool, weight: bool) -> None:
    """Of a weight it is a difference, of that rank. Of others it may be a doubt, where too few ranks have the same."""
    sides = WRONG_COPIES[name]
    joiner = Joiner(GivenDims())
    found = joiner.compare(sides[::-1] if swapped else sides, "x:OUTPUT0", "x", backward=False, weight=weight)
    if not weight and (name == "ones" or name.startswith("nothing,")):
        assert not found.compared
        return
    assert found.relative > 0.9
    good = sides[1][0]
    side, rank = found.unlike
    assert side == (0 if swapped else 1)
    assert np.any(sides[1][rank] != good)


def test_shares_of_a_batch_in_other_rounds_are_no_wrong_copies() -> None:
    """Two tensor-parallel ranks have the first half of a batch in the first round; data-parallel ones have both."""
    found = Joiner(GivenDims()).compare(([ONE, ONE], [ONE, OTHER]), "x:OUTPUT0", "x", backward=False)
    assert not found.compared


def test_copies_of_an_earlier_step_are_copies_later() -> None:
    joiner = Joiner(GivenDims())
    for wrong in (ONE, OTHER):
        found = joiner.compare(([ONE] * 4, [ONE, wrong]), "x:OUTPUT0", "x", backward=False)
        assert found.compared
        assert found.equal == (wrong is ONE)


def staged(step: dict[Key, Any], first: set[str], *, at: str = "") -> dict[int, dict[int, dict[Key, Any]]]:
    """Two stages of a pipeline: the first rank has some of the operators, the second one the others."""
    found: dict[int, dict[Key, Any]] = {0: {}, 1: {}}
    for key, value in step.items():
        found[key[0] not in first][key] = value * np.float32(1.01) if key == (at, OUT, 0) else value
    return by_rank(found)


@pytest.mark.parametrize("at", ["", "Custom-op1", "Other-op2", "Third-op3"])
def test_stages_that_are_cut_elsewhere_are_one_run(at: str) -> None:
    early, late = {"x", "w", "Custom-op1"}, {"x", "w", "Custom-op1", "Other-op2"}
    report = compared_runs(staged(forward(X, W), early), staged(forward(X, W), late, at=at))
    assert report.doubts == ()
    assert report.exit_code == bool(at)
    assert report.headline is None if not at else report.headline is not None and report.headline.name == at
    assert sum(len(step.judged) for step in report.steps) == len(OPS)


@pytest.mark.parametrize("at", ["", "Custom-op1", "Third-op3"])
def test_stages_and_shares_of_a_batch_are_one_run(at: str) -> None:
    """Two stages with the whole batch each, against two ranks that have half of it each."""
    whole = whole_step()
    parts = by_rank(halves(whole, at=at, factor=1.01))
    report = compared_runs(staged(whole, {"x", "w", "Custom-op1"}), parts)
    assert report.doubts == ()
    assert report.exit_code == bool(at)
    assert report.headline is None if not at else report.headline is not None and report.headline.name == at


def test_a_step_that_one_rank_lacks_is_a_doubt_that_names_it() -> None:
    two = {0: forward(X, W), 1: forward(X, W)}
    report = compared_runs({0: two, 1: two}, {0: two, 1: {0: two[0]}})
    assert (report.exit_code, report.findings) == (2, ())
    assert report.doubts == ("step 1 of rank 1 is in the first run only",)


def test_a_rank_that_is_lost_is_a_doubt_and_the_others_are_compared() -> None:
    step = forward(X, W)
    report = compared_runs(by_rank(dict.fromkeys(range(4), step)), by_rank(dict.fromkeys(range(3), step)))
    assert (report.exit_code, report.findings) == (2, ())
    assert report.doubts == ("rank 3 is in the first run only",)
