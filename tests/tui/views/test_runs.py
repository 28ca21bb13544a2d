"""Two runs on screen: the headline, both trees in one, where a difference goes, the heat map, the report."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.widgets import Input

from tests.linked import linked, own
from tests.patience import PATIENCE
from tests.sources.writer import DumpWriter, write_dump, write_step
from tests.terminal.large import open_large
from tests.tui.driver import Driver, opened, opened_by
from tests.tui.live_driver import demo
from tests.tui.screens_host import HOSTILE
from tests.tui.sizes import every_size
from tests.tui.views.growing import MARK, changed
from tests.unprivileged import forbidden, unprivileged
from tui_debugger.diagnose.runs.distance import ComparedBy, Distance, Tolerance
from tui_debugger.diagnose.runs.matching import NodeMatch, Rule
from tui_debugger.diagnose.runs.results import JudgedNode, NodeJudgement, Options, RunsReport, StepPlace, StepReport
from tui_debugger.model import no_progress
from tui_debugger.session.comparison import ComparedRun, RunComparison
from tui_debugger.tui.dialogs.prompts import RunPrompt, look_for_dumps
from tui_debugger.tui.main_screen import MainScreen
from tui_debugger.tui.views.compare import CompareView
from tui_debugger.tui.views.runs import RunsView, TreeRows
from tui_debugger.tui.views.runs_map import RunsMapView
from tui_debugger.tui.widgets.text import Cell

Dumps = Callable[[str], Path]
WIDE = (200, 50)
GELU = "b/1/mlp/act/Functional.gelu"


@asynccontextmanager
async def compared(
    a: Path, b: Path, size: tuple[int, int] = WIDE, options: Options | None = None, repeat: str = ""
) -> AsyncIterator[Driver]:
    """The screen that was opened with another run."""
    async with opened(a, size=size, against=ComparedRun(str(b), options or Options(), repeat)) as screen:
        await screen.until(lambda: is_answered(screen))
        await screen.settled()
        yield screen


def is_answered(screen: Driver) -> bool:
    """Whether the runs are compared, or it is said why they cannot be."""
    view = screen.app.screen
    if not isinstance(view, RunsView) or view.comparison is None or view.working:
        return False
    return view.comparison.whole or "w chooses another run" in screen.text


@asynccontextmanager
async def pair(dumps: Dumps, name: str, size: tuple[int, int] = WIDE) -> AsyncIterator[Driver]:
    """A real pair of runs."""
    folder = dumps("msprobe-pairs") / name
    async with compared(folder / "A", folder / "B", size) as screen:
        yield screen


def view_of(screen: Driver) -> RunsView:
    view = screen.app.screen
    assert isinstance(view, RunsView)
    return view


def name_here(view: RunsView) -> str:
    assert view._both is not None
    return view._both.name(view.row) if view.row >= 0 else ""


def line_with(screen: Driver, text: str) -> str:
    return next(line for line in screen.lines if text in line)


def outputs(run: Path, step: int, node: str) -> Path:
    (file,) = run.rglob(f"{step}/*{node}*output*")
    return file


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two ranks, three steps; in the second the ReLU of rank 1 is wrong at step 1, rank 0 at step 2."""
    writers = [write_dump(tmp_path / name, ranks=(0, 1), steps=range(3)) for name in ("one", "two")]
    spoil(writers[1], 1, 1, "ReLU")
    spoil(writers[1], 0, 2, "MatMul")
    return tmp_path / "one", tmp_path / "two"


def spoil(writer: DumpWriter, rank: int, step: int, node: str) -> None:
    (file,) = (writer.root / f"rank_{rank}" / writer.net / "0" / str(step)).glob(f"{node}*output*")
    np.save(file, np.load(file) * np.float32(1.5))


# -- what one sees at once ---------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_the_first_look_says_where_it_begins_and_where_it_goes(dumps: Dumps, size: tuple[int, int]) -> None:
    async with pair(dumps, "e_mul", size) as screen:
        view = view_of(screen)
        assert f"◆ {GELU} at step 1: its inputs agree and its output does" in screen.text
        assert "B is A times 1.01" in screen.text
        assert "B is wrong" in screen.text
        assert "error / expected 166000×" in screen.text
        assert name_here(view) == GELU
        line = line_with(screen, "▌◆")
        assert line.split()[1:5] == ["Functional.gelu", "0", "0.009901", "166000×"]
        assert "introduced" in line
        passed_on = next(line for line in screen.lines if "GELU  b/1/mlp/act" in line)
        assert passed_on.split()[0] in {"↓", "▌↓"}
        assert "step 1 (2 of 2)" in screen.text
        assert "◆ introduced" in screen.lines[-2] or "◆ introduced" in screen.lines[-3]


async def test_runs_that_are_the_same_say_so_with_what_was_compared(dumps: Dumps) -> None:
    async with pair(dumps, "c_kernels") as screen:
        assert "= the same, within what is expected" in screen.text
        assert "differ by rounding" in screen.text
        assert "pairs of tensors by their values; 2 steps of" in screen.text
        await screen.press("n")
        assert "no difference begins anywhere" in screen.text
        await only(screen, "begin")
        assert "nothing at this step: where differences begin; f chooses others" in screen.text


async def test_what_only_one_run_has_stands_in_its_scope(dumps: Dumps) -> None:
    async with pair(dumps, "d_sdpa") as screen:
        await only(screen, "in one")
        softmax, fused = (line_with(screen, name) for name in ("Torch.softmax", "scaled_dot_product_attention"))
        assert softmax.split()[:2] == ["+", "A"]
        assert fused.split()[:2] == ["+", "B"]
        assert softmax.index("Torch") == fused.index("Functional")
        assert "only in A: the module around it agrees: b/0/attn/Attn" in softmax
        at = view_of(screen).table
        await screen.until(lambda: at.move_to_key(_entry(view_of(screen), "Torch.softmax")))
        await screen.press("enter")
        assert "only A has this tensor" in screen.text


def _entry(view: RunsView, label: str) -> int:
    both = view._both
    assert both is not None
    return next(entry for entry in range(len(both.tree)) if both.tree.label[entry] == label)


async def test_a_call_that_one_run_leaves_out_is_the_finding_of_the_run_that_has_it(dumps: Dumps) -> None:
    async with pair(dumps, "k_noreduce") as screen:
        assert "only A has it, it is missing in B" in screen.text
        row = line_with(screen, "▌◆")
        assert row.split()[:3] == ["▌◆", "A", "all_reduce.14"]
        assert "missing" in row
        await screen.press("enter")
        assert "only A has this tensor" in screen.text


async def test_renamed_modules_are_matched_and_both_names_are_said(dumps: Dumps) -> None:
    async with pair(dumps, "n_prefix") as screen:
        view = view_of(screen)
        entry = _entry(view, "Functional.embedding")
        assert view._opened is not None
        view._opened.open_around(entry)
        view._arrange()
        view.table.move_to_key(entry)
        await screen.settled()
        assert "in B: " in line_with(screen, "emb/Functional.embedding  ")


# -- keys --------------------------------------------------------------------------------------------


async def test_n_walks_the_differences_of_all_steps_and_ranks(runs: tuple[Path, Path]) -> None:
    async with compared(*runs) as screen:
        view = view_of(screen)
        seen = []
        for _ in range(3):
            assert view.at is not None
            seen.append((view.at.rank_a, view.at.step_a, name_here(view).rpartition("/")[2]))
            await screen.press("n")
            await screen.settled()
        assert seen[0] == (1, 1, "ReLU-op2") == seen[2]
        assert seen[1] == (0, 2, "MatMul-op1")
        assert "difference 2 of 2" in screen.text
        await screen.press("N")
        assert "difference 1 of 2" in screen.text


async def test_n_walks_differences_that_share_a_node(runs: tuple[Path, Path]) -> None:
    """Parameters that were not dumped themselves: the node that reads them stands for them."""
    async with compared(*runs) as screen:
        view = view_of(screen)
        comparison = view.comparison
        assert comparison is not None
        assert comparison.report is not None
        (first, *rest) = comparison.report.findings
        twins = [replace(first, text=f"twin {number}") for number in range(3)]
        comparison.report = replace(comparison.report, findings=(*twins, *rest))
        view._trees.clear()
        view._show_report()
        seen = []
        for _ in range(4):
            await screen.press("n")
            await screen.settled()
            finding = view.finding_here
            seen.append(finding.text if finding is not None else "")
        assert sorted(seen) == sorted(["twin 0", "twin 1", "twin 2", rest[0].text])


async def test_steps_and_ranks_keep_the_cursor_on_its_node(runs: tuple[Path, Path]) -> None:
    async with compared(*runs) as screen:
        view = view_of(screen)
        here = name_here(view)
        await screen.press("left_square_bracket")
        assert "step 0 (1 of 3)" in screen.text
        assert name_here(view) == here
        assert "=" in line_with(screen, "▌")
        await screen.press("left_square_bracket")
        assert "no compared step comes before this one" in screen.text
        await screen.press("less_than_sign", "right_square_bracket", "right_square_bracket")
        assert "step 2 (3 of 3)  ·  rank 0" in screen.text
        assert name_here(view) == here
        await screen.press("greater_than_sign")
        assert "rank 1" in screen.text


async def only(screen: Driver, words: str) -> None:
    """Chooses which nodes are shown."""
    await screen.press("f")
    await screen.type(words)
    await screen.press("enter")


async def test_each_filter_shows_what_it_says(dumps: Dumps) -> None:
    async with pair(dumps, "e_mul") as screen:
        view = view_of(screen)
        await only(screen, "begin")
        assert view.table.row_count == 5  # the node and the scopes around it
        assert "where differences begin: 1 of 196 nodes" in screen.text
        await only(screen, "what differs")
        assert "what differs: 108 of 196 nodes" in screen.text
        await only(screen, "in one")
        assert "in one run only: 0 of 196 nodes" in screen.text
        await only(screen, "doubts")
        assert "doubts: 0 of 196 nodes" in screen.text
        await screen.press("n")  # which shows it, whatever the filter
        assert name_here(view) == GELU
        assert "all 196 nodes" in screen.text


async def test_scopes_open_and_close(dumps: Dumps) -> None:
    async with pair(dumps, "e_mul") as screen:
        view = view_of(screen)
        await screen.press("home")
        rows = view.table.row_count
        await screen.press("enter")
        assert view.table.row_count != rows
        await screen.press("space")
        assert view.table.row_count == rows
        await screen.press("asterisk")
        assert view.table.row_count != rows
        await only(screen, "begin")
        await screen.press("space")
        assert "all scopes are open here" in screen.text


async def test_a_search_finds_nodes_in_closed_scopes(dumps: Dumps) -> None:
    async with pair(dumps, "e_mul", (80, 24)) as screen:
        view = view_of(screen)
        await screen.press("slash")
        await screen.type("0/attn/torch.softmax")
        await screen.settled()
        await screen.press("enter")
        assert name_here(view) == "b/0/attn/Torch.softmax"


async def test_enter_shows_both_tensors_and_their_difference(dumps: Dumps) -> None:
    async with pair(dumps, "e_mul") as screen:
        await screen.press("enter")
        await screen.settled()
        compare = screen.app.screen
        assert isinstance(compare, CompareView)
        assert "✗ different: 768 of 768" in screen.text
        assert line_with(screen, "there  run").rstrip().endswith("2×6×64")
        assert str(dumps("msprobe-pairs") / "e_mul/B") in line_with(screen, "there  run")
        await screen.press("escape")
        await screen.settled()
        assert name_here(view_of(screen)) == GELU


async def test_the_path_is_walked_and_enter_compares_there(dumps: Dumps) -> None:
    async with pair(dumps, "e_mul") as screen:
        view = view_of(screen)
        await screen.press("tab", "down")
        assert view.path_table.has_focus
        assert name_here(view) == "b/1/mlp/fc2/Functional.linear"
        assert "inherited  out:0" in screen.text
        await screen.press("enter")
        await screen.settled()
        assert isinstance(screen.app.screen, CompareView)
        assert screen.app.screen.about.key.node == "b/1/mlp/fc2/Functional.linear"
        await screen.press("escape", "tab")
        assert view.table.has_focus


@pytest.mark.turns("size")
@every_size
async def test_the_heat_map_shows_every_node_and_step_and_leads_back(
    runs: tuple[Path, Path], size: tuple[int, int]
) -> None:
    async with compared(*runs, size) as screen:
        await screen.press("t")
        await screen.settled()
        map_ = screen.app.screen
        assert isinstance(map_, RunsMapView)
        assert "3 steps across" in screen.text
        assert "step 1  error ÷ expected" in screen.text
        assert line_with(screen, "step 1  error ÷ expected").rstrip().endswith("ReLU-op2")
        await screen.press("less_than_sign")
        await screen.settled()
        assert "rank 0" in screen.text
        await screen.press("n")
        assert "step 2  error ÷ expected" in screen.text
        await screen.press("enter")
        await screen.settled()
        view = view_of(screen)
        assert (view.at is not None and view.at.rank_a, view.at is not None and view.at.step_a) == (0, 2)
        assert name_here(view).endswith("MatMul-op1")


async def test_export_writes_the_report_and_a_row_for_every_node(dumps: Dumps, tmp_path: Path) -> None:
    async with pair(dumps, "e_mul") as screen:
        for name in ("report.md", "nodes.csv"):
            await screen.press("e")
            screen.app.screen.query_one(Input).value = str(tmp_path / name)
            await screen.press("enter")
            await screen.settled()
        report = (tmp_path / "report.md").read_text("utf-8")
        assert report.startswith("# Two runs compared\n")
        assert f"{GELU} at step 1" in report
        assert len((tmp_path / "nodes.csv").read_text("utf-8").splitlines()) == 393


async def test_values_and_other_views_open_on_the_node_under_the_cursor(dumps: Dumps) -> None:
    async with pair(dumps, "e_mul") as screen:
        view = view_of(screen)
        assert view.target_here.key.node == GELU
        assert view.target_here.row >= 0
        await screen.press("L")
        await screen.settled()
        assert GELU.rpartition("/")[2] in screen.text
        assert screen.app.screen is not view


# -- which run ---------------------------------------------------------------------------------------


async def test_d_offers_the_dumps_beside_this_one(runs: tuple[Path, Path]) -> None:
    async with opened(runs[0], size=(80, 24)) as screen:
        await screen.press("D")
        await screen.settled()
        assert isinstance(screen.app.screen, RunPrompt)
        assert "two" in screen.text
        await screen.press("down")
        assert screen.app.screen.query_one(Input).value == str(runs[1])
        await screen.press("enter")
        await screen.settled()
        assert "ReLU-op2 at rank 1 step 1" in screen.text
        await screen.press("escape")
        assert isinstance(screen.app.screen, MainScreen)
        await screen.press("D")  # what was compared is still there
        assert "ReLU-op2 at rank 1 step 1" in screen.text


async def test_dumps_found_before_the_prompt_is_laid_out_are_offered(runs: tuple[Path, Path]) -> None:
    async with opened(runs[0], size=(80, 24)) as screen:
        prompt = RunPrompt(str(runs[0]))
        prompt.show(look_for_dumps(str(runs[0]), lambda _: None, no_progress))
        screen.app.push_screen(prompt)
        await screen.settled()
        assert screen.app.screen is prompt
        assert "two" in screen.text
        assert "looking …" not in screen.text


async def test_a_typed_path_is_taken_and_a_part_of_one_picks_from_the_list(runs: tuple[Path, Path]) -> None:
    async with opened(runs[0]) as screen:
        await screen.press("D")
        await screen.settled()
        await screen.type("tw")
        await screen.press("enter")
        await screen.settled()
        assert view_of(screen).comparison is not None
        assert view_of(screen).host.comparison.path == str(runs[1])  # type: ignore[union-attr]


async def test_d_once_more_asks_for_another_run(runs: tuple[Path, Path]) -> None:
    async with compared(*runs) as screen:
        await screen.press("D")
        await screen.settled()
        assert isinstance(screen.app.screen, RunPrompt)
        await screen.press("escape")
        await screen.settled()
        assert "ReLU-op2 at rank 1 step 1" in screen.text


async def test_esc_in_the_prompt_leads_back_to_where_one_came_from(runs: tuple[Path, Path]) -> None:
    async with opened(runs[0]) as screen:
        await screen.press("D")
        await screen.settled()
        await screen.press("escape")
        await screen.until(lambda: isinstance(screen.app.screen, MainScreen))


async def test_steps_and_names_of_the_command_line_count(runs: tuple[Path, Path]) -> None:
    async with compared(*runs, options=Options(steps=((0, 1),), ranks=((0, 0),))) as screen:
        assert "step 0 of A, 1 of B (1 of 1)" in screen.text


@every_size
async def test_tolerances_of_the_command_line_count_and_are_said(
    runs: tuple[Path, Path], size: tuple[int, int]
) -> None:
    async with compared(*runs, size, Options(tolerance=Tolerance(0.5, 100.0))) as screen:
        assert "rtol 0.5, atol 100" in screen.text
        assert "the same, within what is expected" in screen.text


async def test_noise_of_a_repeat_counts_and_is_said(runs: tuple[Path, Path]) -> None:
    """The other run itself as the repeat: then all that differs is noise."""
    async with compared(*runs, repeat=str(runs[1])) as screen:
        assert "noise as in " in screen.text
        assert "the same, within what is expected" in screen.text


# -- what cannot be compared -------------------------------------------------------------------------


async def test_no_dump_says_so_and_another_run_can_be_chosen(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with compared(runs[0], tmp_path / "empty") as screen:
        assert "w chooses another run" in screen.text
        assert str(tmp_path / "empty") in screen.text
        await screen.press("w")
        await screen.settled()
        screen.app.screen.query_one(Input).value = str(runs[1])
        await screen.press("enter")
        await screen.settled()
        assert "ReLU-op2 at rank 1 step 1" in screen.text


async def test_the_run_itself_is_no_other_run(runs: tuple[Path, Path]) -> None:
    for other in (runs[0], runs[0] / "rank_0"):
        async with compared(runs[0], other) as screen:
            assert "both are the same run" in screen.text
            assert "choose another one" in screen.text


async def test_no_step_in_common_says_how_to_pair_them(runs: tuple[Path, Path]) -> None:
    async with compared(*runs, options=Options(steps=((7, 8),))) as screen:
        assert "the runs have no step in common" in screen.text
        assert "pair steps with --map-step A:B" in screen.text


async def test_what_may_not_be_read_says_so(runs: tuple[Path, Path]) -> None:
    async def look() -> str:
        async with compared(*runs) as screen:
            return screen.text

    with forbidden(runs[1]):
        shown = unprivileged(lambda: asyncio.run(look()))
    assert "ermission denied" in shown
    assert "w chooses another run" in shown


async def test_statistics_alone_are_compared_as_what_they_are(dumps: Dumps, tmp_path: Path) -> None:
    dump = dumps("msprobe-mix-2rank-mb-md5")
    async with compared(dump, linked(dump, tmp_path / "copy")) as screen:
        assert "the same, within what is expected" in screen.text
        assert "by hashes" in screen.text
        view = view_of(screen)
        await screen.press("home", "asterisk")
        for _ in range(12):
            await screen.press("down")
            await screen.settled()
        assert view.row >= 0
        await screen.press("enter")
        await screen.settled()
        assert isinstance(screen.app.screen, CompareView)
        assert "only statistics of this tensor were dumped" in screen.text


async def test_doubts_are_counted_and_listed(runs: tuple[Path, Path]) -> None:
    for folder in [each for each in (runs[1] / "rank_1").rglob("2") if each.is_dir()]:
        shutil.rmtree(folder)
    async with compared(*runs) as screen:
        assert "1 doubt (!)" in screen.text
        await screen.press("exclamation_mark")
        assert "step 2 of rank 1 is in the first run only" in screen.text


async def test_a_tensor_that_cannot_be_read_is_a_doubt_in_its_place(runs: tuple[Path, Path]) -> None:
    for run in runs:
        own(outputs(run / "rank_0", 0, "ReLU")).write_bytes(b"nothing")
    async with compared(*runs) as screen:
        await screen.press("less_than_sign", "left_square_bracket")
        await only(screen, "doubts")
        await screen.settled()
        (row,) = [row for row in screen.rows(view_of(screen).table) if "ReLU-op2" in row]
        assert row.startswith("? ")
        assert "doubt: " in row


# -- many nodes --------------------------------------------------------------------------------------


async def test_of_many_nodes_only_those_on_the_screen_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 nodes at 20 steps, all of which differ."""
    made: list[int] = []
    cells = TreeRows.cells

    def counted(rows: TreeRows, index: int) -> Sequence[Cell]:
        made.append(index)
        return cells(rows, index)

    monkeypatch.setattr(TreeRows, "cells", counted)
    async with opened_by(lambda _: open_large(5_000, 1), recommended=False) as screen:
        session = screen.session
        nodes = session.nodes(0)
        distance = Distance(ComparedBy.VALUES, relative=0.1)
        rows = [
            JudgedNode(NodeMatch(row, row, Rule.NAME), NodeJudgement.INHERITED, row, 0.1, 0.1, 1.0, distance)
            for row in range(len(nodes))
        ]
        steps = tuple(StepReport(StepPlace(0, 0, step, step), tuple(rows), (), {}, (), ()) for step in range(20))
        comparison = RunComparison(session, ComparedRun("other"))
        comparison.report = RunsReport((session, session), steps, (), ())
        screen.main.views.comparison = comparison
        screen.main.views.open_here("runs")
        await screen.settled()
        view = view_of(screen)
        await only(screen, "all nodes")
        await screen.press("home", "asterisk", "end")
        await screen.settled()
        assert view.table.row_count > 2_000
        page = view.table.page
        for key, most in (("up", 2), ("home", page), ("pagedown", page + 1), ("right_square_bracket", page)):
            made.clear()
            await screen.press(key)
            await screen.settled()
            assert len(set(made)) <= most + 1, key
        assert len(view._trees) == 2  # of the steps that were looked at


# -- stopping ----------------------------------------------------------------------------------------


async def test_esc_stops_the_comparison_and_what_was_compared_stays(runs: tuple[Path, Path]) -> None:
    """A comparison that waits after its fourth step until somebody pressed Esc."""
    reached, go_on = threading.Event(), threading.Event()

    class Waiting(RunComparison):
        def _tell(self, report: RunsReport) -> None:
            super()._tell(report)
            if len(report.steps) == 4:
                reached.set()
                assert go_on.wait(PATIENCE)

    async with opened(runs[0]) as screen:
        comparison = screen.main.views.comparison = Waiting(screen.session, ComparedRun(str(runs[1])))
        screen.main.views.open_here("runs")
        try:
            await screen.until(reached.is_set)
            await screen.press("escape")
            view = view_of(screen)
            assert "so far: " in screen.text
            assert "ReLU-op2 at rank 1 step 1" in screen.text
            assert "stopped: r compares all steps" in screen.text
        finally:
            go_on.set()
        await screen.settled()
        assert comparison.report is not None
        assert (len(comparison.report.steps), comparison.whole) == (4, False)
        await screen.press("escape", "D")
        await screen.settled()
        assert "stopped: r compares all steps" in screen.text
        await screen.press("r")
        await screen.settled()
        assert "so far: " not in screen.text
        assert (len(comparison.report.steps), comparison.whole) == (6, True)
        assert view is not view_of(screen)


async def test_a_run_that_goes_on_is_said_to_have_changed(tmp_path: Path) -> None:
    writer = write_dump(tmp_path / "one")
    write_dump(tmp_path / "two")
    async with compared(tmp_path / "one", tmp_path / "two") as screen:
        write_step(writer, 9)
        await changed(screen)
        assert MARK in screen.text
        await screen.press("r")
        await screen.settled()
        assert MARK not in screen.text
        assert "cannot judge: step 9 is in the first run only" in screen.text


async def test_another_run_is_chosen_while_one_is_compared(runs: tuple[Path, Path]) -> None:
    async with opened(runs[0]) as screen:
        views = screen.main.views
        run, views.run = views.run, lambda *_: None  # type: ignore[method-assign]
        views.comparison = RunComparison(screen.session, ComparedRun(str(runs[1])))
        views.open_here("runs")
        await screen.settled()
        assert "comparing …  Esc stops" in screen.text
        views.run = run  # type: ignore[method-assign]
        await screen.press("w", "escape")
        await screen.settled()
        assert "stopped: r compares all steps" in screen.text
        await screen.press("r")
        await screen.settled()
        assert "ReLU-op2 at rank 1 step 1" in screen.text


async def test_r_sees_what_the_other_run_is_now(runs: tuple[Path, Path]) -> None:
    async with compared(*runs) as screen:
        assert "2 differences (n)" in screen.text
        for name in ("ReLU", "MatMul"):
            for here, there in zip(*(sorted(run.rglob(f"{name}*output*")) for run in runs), strict=True):
                there.write_bytes(here.read_bytes())
        await screen.press("r")
        await screen.settled()
        assert "= the same, within what is expected" in screen.text


async def test_a_training_that_runs_says_what_to_do_instead() -> None:
    async with demo() as screen:
        await screen.press("D")
        await screen.settled()
        assert "a training that runs cannot be compared with another run" in screen.text
        assert "save what was kept as a dump (S on the main screen), and compare that" in screen.text
        await screen.press("escape")
        assert isinstance(screen.app.screen, MainScreen)


async def test_names_in_a_run_cannot_command_the_terminal(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for name in (HOSTILE[0], "\u202eevil", "a\tb"):
        copy = tmp_path / name.replace("/", "_")
        shutil.copytree(runs[1], copy)
        async with compared(runs[0], copy, (80, 24)) as screen:
            for line in screen.lines:
                assert not any(ord(char) < 32 or char == "\u202e" for char in line)
            assert "ReLU-op2 at rank 1 step 1" in screen.text
