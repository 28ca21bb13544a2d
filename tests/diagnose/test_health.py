"""The health map against the hits themselves, counted one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened, watch
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import MLP, DumpWriter, Graph, Node, write_dump, write_step
from tui_debugger.diagnose.health import (
    HealthChecks,
    HealthMap,
    StepColumns,
    cell_text,
    health,
    map_parts,
    rows_of,
    tensor_of,
)
from tui_debugger.errors import CancelledError
from tui_debugger.model import Hit, Progress, Verdict
from tui_debugger.session import Session
from tui_debugger.stats.health import Health

Dumps = Callable[[str], Path]
MATMUL, RELU, MOMENTUM = (node.name for node in MLP.nodes)
NAN = np.full((2, 3), np.nan, np.float32)


def mapped(session: Session, steps: Sequence[int] | None = None) -> HealthMap:
    """The map after checking some steps."""
    checks = HealthChecks(session)
    checks.check(session.pairs(steps=steps))
    return health(session, checks)


def entry_of(map_: HealthMap, node: str) -> int:
    return map_.tree.index_of_row(map_.nodes.find(node))


def shown(map_: HealthMap, node: str, ranks: Sequence[int] | None = None) -> list[str]:
    """The cells of a node as words."""
    entries = np.array([entry_of(map_, node)])
    return [Health(code).name for code in map_.cells(entries, map_.steps, ranks or map_.ranks)[0].tolist()]


def expected(hits: Sequence[Hit]) -> Health:
    """How bad some tensors are, one by one."""
    worst = Health.ABSENT
    for hit in hits:
        stats = hit.stats
        if hit.verdict is Verdict.CANNOT_JUDGE:
            worst = max(worst, Health.UNREADABLE)
        elif hit.verdict is Verdict.FINDING:
            bad = Health.HIT
            bad = Health.INF if stats is not None and stats.inf else bad
            bad = Health.NAN if stats is not None and stats.nan else bad
            worst = max(worst, Health.ORIGIN if hit.origin else bad)
    return worst


@pytest.mark.parametrize("recommended", [True, False])
def test_every_cell_is_the_worst_hit_in_it(dumps: Dumps, recommended: bool) -> None:
    session = opened(dumps("mindspore-2.0-nan"), *([] if recommended else ["TO"]))
    if recommended:
        session.add_recommended()
    map_ = mapped(session)
    hits = session.check(session.pairs()).hits
    by_cell: dict[tuple[str, int], list[Hit]] = {}
    for hit in hits:
        path = map_.nodes.paths[hit.row]
        parts = path.split("/")
        for scope in ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]:
            by_cell.setdefault((scope, hit.key.step), []).append(hit)
    cells = map_.cells(np.arange(len(map_.tree)), map_.steps, map_.ranks)
    for entry in range(len(map_.tree)):
        for column, step in enumerate(map_.steps):
            worst = expected(by_cell.get((map_.tree.path(entry), step), []))
            code = Health(int(cells[entry, column]))
            assert code == worst if worst else code < Health.UNREADABLE, (map_.tree.path(entry), step)
            if entry % 7:
                continue
            cell = map_.cell(entry, [step], map_.ranks)
            assert cell.health == code
            assert (cell.hit is not None) == (code >= Health.UNREADABLE)
            if cell.hit is not None:
                assert expected([cell.hit]) == code
                assert cell.pair == (0, step)
            assert dict(cell.counts) == counted(by_cell.get((map_.tree.path(entry), step), []))


def counted(hits: Sequence[Hit]) -> dict[Health, int]:
    counts: dict[Health, int] = {}
    for hit in hits:
        if code := expected([hit]):
            counts[code] = counts.get(code, 0) + 1
    return counts


def test_the_demo_dump_begins_at_step_three(dumps: Dumps) -> None:
    map_ = mapped(opened(dumps("mindspore-2.0-nan")))
    assert map_.by_default
    assert shown(map_, "Default/network-WithLossCell/_backbone-Net/Log-op381") == [
        *("CLEAN", "CLEAN", "CLEAN", "ORIGIN", "CLEAN", "CLEAN"),
    ]
    assert shown(map_, "head.weight") == ["CLEAN", "CLEAN", "CLEAN", "NAN", "NAN", "NAN"]
    assert map_.covered_text() == "2,292 tensors checked in all 6 steps, 910 findings"
    lines = ["  ".join(parts) for parts in map_parts(map_, rows_of(map_, map_.shown), map_.ranks, 40)]
    assert lines[:2] == ["0 1 2 3 4 5   step", "· · · ◆ N N   Default/"]


def test_a_healthy_run_is_clean_all_over(dumps: Dumps) -> None:
    map_ = mapped(opened(dumps("mindspore-2.0-mlp")))
    assert map_.findings == 0
    assert not map_.noteworthy(map_.ranks).any()
    cells = map_.cells(rows_of(map_, map_.shown, flat=True), map_.steps, map_.ranks)
    assert set(np.unique(cells).tolist()) <= {Health.ABSENT, Health.CLEAN}


def test_what_was_not_checked_is_not_clean(tmp_path: Path) -> None:
    session = opened(write_dump(tmp_path).root, "TO")
    checks = HealthChecks(session)
    map_ = health(session, checks)
    assert shown(map_, RELU) == ["UNCHECKED"] * 3
    assert map_.covered_text() == "nothing is checked yet of 3 steps"
    assert map_.missing == [(0, 0), (0, 1), (0, 2)]
    checks.check([(0, 1)])
    map_ = health(session, checks)
    assert shown(map_, RELU) == ["UNCHECKED", "CLEAN", "UNCHECKED"]
    assert "checked in 1 of 3 steps, the watchpoints found nothing" in map_.covered_text()
    assert checks.missing(session.pairs()) == [(0, 0), (0, 2)]
    assert map_.cell(0, map_.steps, map_.ranks).health is Health.UNCHECKED


def test_results_of_other_watchpoints_do_not_count(tmp_path: Path) -> None:
    session = opened(write_dump(tmp_path).root, "TO")
    assert shown(mapped(session), RELU) == ["CLEAN"] * 3
    watch(session, "TL max_gt=100")
    assert shown(health(session, HealthChecks(session)), RELU) == ["UNCHECKED"] * 3


def test_what_no_watchpoint_covers_was_not_judged(tmp_path: Path) -> None:
    map_ = mapped(opened(write_dump(tmp_path).root, "TO @ type=ReLU"))
    assert shown(map_, RELU) == ["CLEAN"] * 3
    assert shown(map_, MATMUL) == ["NOT_JUDGED"] * 3
    cell = map_.cell(0, [0], (0,))
    assert (cell.health, cell.judged, cell.dumped, cell.nodes) == (Health.CLEAN, 1, 6, 6)


def test_what_had_nothing_to_be_compared_with_was_not_judged(tmp_path: Path) -> None:
    map_ = mapped(opened(write_dump(tmp_path).root, "WNC @ category=weight"))
    assert shown(map_, "fc1.weight") == ["NOT_JUDGED", "CLEAN", "CLEAN"]


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    (file,) = (tmp_path / "rank_0" / writer.net / "0" / "1").glob("ReLU*output*")
    file.write_bytes(b"broken")
    map_ = mapped(opened(tmp_path, "TO"))
    assert shown(map_, RELU) == ["CLEAN", "UNREADABLE", "CLEAN"]
    assert map_.covered_text().endswith("the watchpoints found nothing; 1 unreadable")
    assert map_.noteworthy(map_.ranks)[entry_of(map_, RELU)]


def test_a_finding_on_finite_values_is_a_hit(tmp_path: Path) -> None:
    map_ = mapped(opened(write_dump(tmp_path).root, "TL max_gt=-1000 @ type=ReLU"))
    assert shown(map_, RELU) == ["HIT"] * 3


def test_a_node_that_is_not_dumped_at_a_step_is_absent_there(tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    for file in (tmp_path / "rank_0" / writer.net / "0" / "2").glob("MatMul*"):
        file.unlink()
    assert shown(mapped(opened(tmp_path)), MATMUL) == ["CLEAN", "CLEAN", "ABSENT"]


@pytest.fixture
def bad_rank(tmp_path: Path) -> Path:
    """Three ranks; in rank 1 the ReLU gives NaN at step 1."""
    writer = write_dump(tmp_path, ranks=(0, 1, 2))
    (file,) = (tmp_path / "rank_1" / writer.net / "0" / "1").glob("ReLU*output*")
    np.save(file, NAN)
    return tmp_path


def test_ranks_are_merged_by_the_worst(bad_rank: Path) -> None:
    map_ = mapped(opened(bad_rank))
    assert map_.ranks == (0, 1, 2)
    assert shown(map_, RELU) == ["CLEAN", "ORIGIN", "CLEAN"]
    assert shown(map_, RELU, ranks=(0, 2)) == ["CLEAN"] * 3
    cell = map_.cell(0, map_.steps, map_.ranks)
    assert (cell.pair, cell.checked, cell.pairs) == ((1, 1), 9, 9)
    text = cell_text(map_, 0, map_.steps, cell, ranks=3)
    assert text.health == "◆ origin  step 0–2 (worst at 1) rank 1"
    assert text.details.startswith("ReLU-op2:out:0 TO NaN 6 of 6")
    assert map_.covered_text() == "54 tensors checked in all 3 steps of each of 3 ranks, 1 finding"


def test_ranks_with_other_nodes_have_all_of_them_in_one_map(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for rank in (0, 1):
        name = f"Default/stage{rank}-Net/Add-op{rank}"
        graph = Graph((Node(name, "Add", (("x", 0),)),), ("x",))
        writer.metadata(rank=rank)
        writer.graph(graph, rank=rank)
        write_step(writer, 0, graph, rank=rank)
        writer.history([0], rank=rank)
    (file,) = (tmp_path / "rank_1" / writer.net / "0" / "0").glob("Add*output*")
    np.save(file, NAN)
    session = opened(tmp_path)
    map_ = mapped(session)
    assert shown(map_, "Default/stage0-Net/Add-op0") == ["CLEAN"]
    assert shown(map_, "Default/stage1-Net/Add-op1") == ["ORIGIN"]
    assert shown(map_, "Default/stage1-Net/Add-op1", ranks=(0,)) == ["ABSENT"]
    row = map_.nodes.find("Default/stage1-Net/Add-op1")
    key, own = tensor_of(session, map_.nodes, row, (1, 0))
    assert (key.rank, key.node, key.step) == (1, "Default/stage1-Net/Add-op1", 0)
    assert session.nodes(1).names[own] == key.node


def test_merged_steps_never_hide_a_finding() -> None:
    tensors = {step: {("a", 1, 0): np.array([np.nan if step == 617 else 1.0])} for step in range(1000)}
    session = Session(MemorySource({0: tensors}, ops=[Op("a")]))
    map_ = mapped(session)
    for room in (1, 7, 80, 999, 1000):
        columns = StepColumns.laid_out(map_.steps, room, fit=True)
        cells = columns.cells(map_, np.array([0]), map_.ranks, 0, len(columns))[0]
        assert np.flatnonzero(cells == Health.ORIGIN).tolist() == [columns.at(617)]
        assert 617 in columns.of(columns.at(617))


def test_a_check_that_is_stopped_keeps_what_it_finished(tmp_path: Path) -> None:
    session = opened(write_dump(tmp_path, steps=range(6)).root, "TO")
    checks = HealthChecks(session)

    def stop(snapshot: Progress) -> None:
        if snapshot.done >= 2000:
            raise CancelledError("stopped")

    checks.check(session.pairs(), stop)
    map_ = health(session, checks)
    assert 0 < len(map_.coverage.steps) < 6
    assert set(shown(map_, RELU)) == {"CLEAN", "UNCHECKED"}


def test_rows_are_scopes_to_a_depth_or_nodes_in_execution_order(dumps: Dumps) -> None:
    map_ = mapped(opened(dumps("mindspore-2.0-nan")))
    top = rows_of(map_, map_.shown, depth=1)
    assert [map_.tree.label[entry] for entry in top.tolist()] == ["Default", "Gradients"]
    flat = rows_of(map_, map_.noteworthy(map_.ranks), flat=True)
    names = [map_.nodes.names[int(map_.tree.row[entry])].rpartition("/")[2] for entry in flat.tolist()]
    assert names[:4] == ["Log-op381", "ReduceSum-op382", "Mul-op383", "Div-op385"]
    assert len(rows_of(map_, map_.shown, most=40)) <= 40
