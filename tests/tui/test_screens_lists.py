"""Screens that list things: recommended set, filters, run history, help, notices, errors, source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sources.memory import Op, table_of
from tests.tui.screens_host import HOSTILE, opened
from tui_debugger.check.types import SourceExcerpt
from tui_debugger.errors import NotADumpError, TdbgError
from tui_debugger.graph.search import NodeQuery
from tui_debugger.graph.table import GraphInfo, NodeTable
from tui_debugger.live.wire import START
from tui_debugger.model import (
    Category,
    Frame,
    GraphRun,
    NodeKind,
    NodeSelection,
    NodeSelector,
    Watchpoint,
)
from tui_debugger.text.hits import selection_words, watch_words
from tui_debugger.tui.actions import ACTIONS, VALUE_ACTIONS
from tui_debugger.tui.dialogs.filters import FilterScreen, HitFilterScreen
from tui_debugger.tui.dialogs.modal import ErrorScreen
from tui_debugger.tui.dialogs.pages import (
    HelpScreen,
    HistoryScreen,
    NoticesScreen,
    SourceScreen,
    condition_entries,
    key_entries,
)
from tui_debugger.tui.panes.hit_rows import HitFilter
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.recommended import BIAS

SIZES = pytest.mark.parametrize("size", [(80, 24), (40, 12)])


def run_here(work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - handed to the caller's own handler, as a worker would
        failed(error)
    else:
        done(result)


def selection(kind: NodeKind, *texts: str) -> NodeSelection:
    return NodeSelection(tuple(NodeSelector(kind, text) for text in texts))


WEIGHTS = selection(NodeKind.CATEGORY, "weight")
RECOMMENDED = (
    Watchpoint(0, "weight_change_too_large", (("abs_mean_update_ratio_gt", 1.0),), WEIGHTS),
    Watchpoint(0, "tensor_overflow", (), selection(NodeKind.CATEGORY, "tensor")),
    Watchpoint(
        0,
        "activation_range",
        (("range_start_inclusive", -1.0), ("range_end_inclusive", 0.0), ("range_percentage_gt", 99.9)),
        selection(NodeKind.TYPE, "ReLU", "ReLUV2"),
    ),
)


class TestWords:
    def test_percentages_and_ranges(self) -> None:
        assert watch_words(RECOMMENDED[0]) == ("weights: changed too much since the previous step (update ratio > 1)")
        assert watch_words(RECOMMENDED[2]).endswith("(share in [-1, 0] > 99.9%)")

    def test_every_condition_has_words(self) -> None:
        for condition in CONDITIONS:
            assert watch_words(Watchpoint(0, condition, (), WEIGHTS)).startswith("weights: ")

    def test_selections(self) -> None:
        assert selection_words(NodeSelection()) == "no nodes"
        assert selection_words(selection(NodeKind.SCOPE, "a/b")) == "scope=a/b"
        mixed = NodeSelection(WEIGHTS.include, (NodeSelector(NodeKind.REGEX, "bias$"),))
        assert selection_words(mixed) == "weights without bias$"
        assert selection_words(NodeSelection(WEIGHTS.include, (NodeSelector(NodeKind.REGEX, BIAS),))) == (
            "weights without biases"
        )


def nodes_of(graphs: tuple[str, ...] = ("g0", "g1"), types: tuple[str, ...] = ("MatMul", "ReLU")) -> NodeTable:
    ops = [
        Op(f"n{i}", kind, category=Category.ACTIVATION if i % 2 else Category.OTHER, graph=graphs[0])
        for i, kind in enumerate(types)
    ]
    return table_of(ops, [GraphInfo(name, i) for i, name in enumerate(graphs)])


class TestNodeFilter:
    def screen(self, query: NodeQuery | None = None) -> FilterScreen:
        return FilterScreen(query or NodeQuery(), nodes_of(), {1: "TO overflow", 2: "TZ zeros"})

    async def test_offers_only_what_there_is(self) -> None:
        async with opened(self.screen(), (80, 40)) as view:
            for word in ("operator", "activation", "g0", "g1", "MatMul", "ReLU", "TO overflow", "nodes with a hit"):
                assert word in view.text
            assert "optimizer state" not in view.text

    async def test_space_turns_and_enter_applies(self) -> None:
        async with opened(self.screen(NodeQuery(text="abc", regex=True))) as view:
            await view.press("space")
            await view.type("relu")
            await view.press("space")
            assert "● ReLU" in view.text
            await view.press("enter")
            assert view.result == NodeQuery(text="abc", regex=True, types=frozenset({"relu"}), hit=True)

    async def test_starts_from_the_current_query_and_gives_it_back(self) -> None:
        query = NodeQuery(
            text="x",
            categories=frozenset({Category.ACTIVATION, Category.WEIGHT}),
            types=frozenset({"relu"}),
            graphs=frozenset({"g1"}),
            watched=2,
            hit=True,
            line=("/root/[b]net.py", 12),
            structural=True,
        )
        async with opened(self.screen(query)) as view:
            await view.press("enter")
            assert view.result == query

    async def test_backspace_turns_everything_off_when_nothing_is_typed(self) -> None:
        query = NodeQuery(hit=True, line=("/x.py", 1), types=frozenset({"relu"}))
        async with opened(self.screen(query)) as view:
            await view.type("ab")
            await view.press("backspace", "backspace")
            assert "● nodes with a hit" in view.text
            await view.press("backspace", "enter")
            assert view.result == NodeQuery()

    async def test_only_one_watchpoint_at_a_time(self) -> None:
        async with opened(self.screen()) as view:
            await view.type("watched")
            await view.press("down", "space", "down", "space", "enter")
            assert view.result.watched == 2

    async def test_arrows_jump_over_headings(self) -> None:
        async with opened(self.screen(), (80, 40)) as view:
            await view.press("down", "space", "up", "space", "pagedown", "space", "pageup", "enter")
            assert view.result == NodeQuery(watched=0, hit=True, structural=True)

    async def test_esc_changes_nothing(self) -> None:
        async with opened(self.screen()) as view:
            await view.press("space", "escape")
            assert view.result is None

    @pytest.mark.turns("size")
    @SIZES
    async def test_hostile_names(self, size: tuple[int, int]) -> None:
        nodes = nodes_of(graphs=HOSTILE, types=HOSTILE)
        query = NodeQuery(line=(HOSTILE[1], 3))
        async with opened(FilterScreen(query, nodes, dict(enumerate(HOSTILE, 1))), size) as view:
            for _ in range(4):
                view.check_clean()
                await view.press("pagedown")


class TestHitFilter:
    def screen(self, current: HitFilter | None = None) -> HitFilterScreen:
        return HitFilterScreen(current or HitFilter(), {1: "TO", 4: "TZ"}, ["a", "b"], [0, 1])

    async def test_chooses_watchpoints_ranks_and_graphs(self) -> None:
        async with opened(self.screen()) as view:
            await view.type("to")
            await view.press("space", "ctrl+u")
            await view.type("rank 1")
            await view.press("space", "ctrl+u")
            await view.type("b")
            await view.press("enter")
            assert view.result == HitFilter(watchpoints=frozenset({1}), ranks=frozenset({1}))

    async def test_chooses_origins_this_step_and_one_scope(self) -> None:
        current = HitFilter(scope="Default/old")
        async with opened(HitFilterScreen(current, {1: "TO"}, ["a"], [0], "Default/new")) as view:
            await view.press("space", "down", "space")
            await view.type("new")
            await view.press("space", "enter")
            assert view.result == HitFilter(here=True, origins=True, scope="Default/new")

    async def test_gives_the_current_one_back(self) -> None:
        current = HitFilter(frozenset({4}), frozenset({"b"}), frozenset({0}), True, True, True, "Default/a")
        async with opened(self.screen(current)) as view:
            await view.press("enter")
            assert view.result == current

    async def test_one_rank_and_one_graph_are_no_choice(self) -> None:
        async with opened(HitFilterScreen(HitFilter(), {1: "TO"}, ["a"], [0])) as view:
            assert "Rank" not in view.text
            assert "Graph" not in view.text


RUNS = [GraphRun(step, graph, f"kernel_graph_{graph}", step % 5 == 0) for step in range(50) for graph in (0, 3)]


class TestHistory:
    async def test_starts_at_the_current_step_and_enter_goes(self) -> None:
        async with opened(HistoryScreen(RUNS, 10)) as view:
            assert "100 of 100 runs" in view.text
            await view.press("down", "enter")
            assert view.result == GraphRun(10, 3, "kernel_graph_3", True)

    async def test_a_run_without_data_cannot_be_chosen(self) -> None:
        async with opened(HistoryScreen(RUNS, 11)) as view:
            await view.press("enter")
            assert "nothing was dumped of kernel_graph_0 at step 11" in view.text
            assert view.open

    async def test_d_shows_only_runs_with_data(self) -> None:
        async with opened(HistoryScreen(RUNS, 10)) as view:
            await view.press("d")
            assert "20 of 100 runs, with data only" in view.text
            assert "no data" not in view.text.replace("with data only", "")
            await view.press("d")
            assert "100 of 100 runs" in view.text

    async def test_f_chooses_a_graph_and_backspace_shows_all(self) -> None:
        async with opened(HistoryScreen(RUNS, 10)) as view:
            await view.press("f")
            assert "Runs of which graph?" in view.text
            await view.type("_3")
            await view.press("enter")
            assert "50 of 100 runs, graph kernel_graph_3" in view.text
            await view.press("f", "escape")
            assert "50 of 100 runs" in view.text
            await view.press("backspace")
            assert "100 of 100 runs" in view.text

    async def test_the_stop_before_the_first_step_has_its_name(self) -> None:
        async with opened(HistoryScreen([GraphRun(START, 0, "g", True), *RUNS], 0)) as view:
            assert next(line for line in view.lines if "dumped" in line).split()[0] == "start"

    async def test_no_run(self) -> None:
        async with opened(HistoryScreen([], 0)) as view:
            await view.press("enter", "d", "down")
            assert "no run matches" in view.text
            await view.press("escape")
            assert view.result is None

    async def test_hundreds_of_thousands_of_runs(self) -> None:
        runs = [GraphRun(step, 0, "g", True) for step in range(200_000)]
        async with opened(HistoryScreen(runs, 150_000)) as view:
            await view.press("enter")
            assert view.result.step == 150_000

    @pytest.mark.turns("size")
    @SIZES
    async def test_hostile_names(self, size: tuple[int, int]) -> None:
        runs = [GraphRun(0, i, name, has_data=False) for i, name in enumerate(HOSTILE)]
        async with opened(HistoryScreen(runs, 0), size) as view:
            for key in ("enter", "down", "enter", "down", "down", "enter", "f"):
                await view.press(key)
                view.check_clean()


class TestHelp:
    async def test_keys_are_grouped_and_can_be_searched(self) -> None:
        async with opened(HelpScreen((*ACTIONS, *VALUE_ACTIONS)), (120, 30)) as view:
            await view.type("neighbour")
            await view.press("ctrl+u")
            await view.type("scientific notation")
            assert "Values (Enter on a tensor)" in view.text
            assert ":              Scientific: Scientific notation on and off." in view.text
            assert "One line up." not in view.text

    @pytest.mark.turns("size")
    @SIZES
    @pytest.mark.parametrize(
        ("word", "heading", "keys"),
        [
            ("execution history", "Steps, ranks, graphs", "y Run history: Lists which graphs ran"),
            ("summary-base-dir", "--summary-base-dir (MindInsight)", "tdbg open DIR: the dumps below"),
            ("tensor check view", "Moving", "Enter Open: "),
        ],
    )
    async def test_a_word_of_the_old_debugger_finds_the_key_of_today(
        self, size: tuple[int, int], word: str, heading: str, keys: str
    ) -> None:
        async with opened(HelpScreen((*ACTIONS, *VALUE_ACTIONS)), size) as view:
            assert "MindInsight" not in view.text, "only for those who look for it"
            await view.type(word)
            shown = " ".join(view.text.split()).replace("▌ ", "")  # a narrow screen wraps
            assert heading in shown
            assert keys in shown

    async def test_what_is_listed_already_is_not_said_again(self) -> None:
        async with opened(HelpScreen(ACTIONS)) as view:
            await view.type("checks the watchpoints at this step")
            assert view.text.count("Checks the watchpoints at this step.") == 1
            assert "MindInsight" not in view.text

    async def test_every_action_is_there(self) -> None:
        entries = key_entries(ACTIONS)
        assert {entry.action for entry in entries} == set(ACTIONS)
        assert all(entry.action.help in entry.text for entry in entries if entry.action is not None)

    async def test_tab_leads_to_all_17_conditions_with_all_parameters(self) -> None:
        async with opened(HelpScreen(ACTIONS)) as view:
            await view.press("tab")
            assert "TZ  tensor_all_zero" in view.text
            await view.type("epsilon")
            assert "Only as text, not in the form." in view.text
            await view.press("tab")
            assert "▲  the device recorded that the operator overflowed" in view.text
            await view.press("tab")
            assert "One line up." in view.text
        entries = condition_entries()
        for condition in CONDITIONS.values():
            mine = [entry.term for entry in entries if entry.heading.startswith(f"{condition.abbr}  ")]
            assert [term for term in mine if term] == [spec.name for spec in condition.params]

    async def test_moves_and_ends(self) -> None:
        async with opened(HelpScreen(ACTIONS)) as view:
            before = view.text
            await view.press("pagedown", "pagedown", "down")
            assert view.text != before
            await view.press("pageup", "pageup", "up", "enter")
            assert view.open
            await view.press("escape")
            assert view.result is None

    async def test_nothing_matches(self) -> None:
        async with opened(HelpScreen(ACTIONS)) as view:
            await view.type("zzzzz")
            assert "nothing matches" in view.text

    @pytest.mark.turns("size")
    @SIZES
    async def test_wraps_to_any_width(self, size: tuple[int, int]) -> None:
        async with opened(HelpScreen(ACTIONS), size) as view:
            await view.resize(60, 20)
            assert "Moving" in view.text
            view.check_clean()


class TestNotices:
    @pytest.mark.turns("size")
    @SIZES
    async def test_shows_every_sentence_in_full(self, size: tuple[int, int]) -> None:
        async with opened(NoticesScreen(["first [b]notice[/b]", *HOSTILE]), size) as view:
            assert "! first [b]notice[/b]" in view.text
            for _ in range(6):
                view.check_clean()
                await view.press("pagedown")
            await view.press("escape")
            assert view.result is None

    async def test_nothing_to_report(self) -> None:
        async with opened(NoticesScreen(())) as view:
            assert "nothing to report" in view.text
            await view.press("enter", "down")
            assert view.open


class TestError:
    async def test_what_where_do(self) -> None:
        error = NotADumpError("nothing here\nlooks like a dump", where="/a/[b]b[/b]", hint="look elsewhere")
        async with opened(ErrorScreen(error)) as view:
            assert "looks like a dump" in view.text
            assert "where  /a/[b]b[/b]" in view.text
            assert "do     look elsewhere" in view.text

    @pytest.mark.parametrize("key", ["escape", "enter", "space", "q"])
    async def test_ends(self, key: str) -> None:
        async with opened(ErrorScreen(TdbgError("x"))) as view:
            await view.press(key)
            assert view.result is None

    @pytest.mark.turns("size")
    @SIZES
    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    async def test_hostile_and_long_text(self, text: str, size: tuple[int, int]) -> None:
        async with opened(ErrorScreen(TdbgError(text * 5, where=text * 5, hint=text * 5)), size) as view:
            view.check_clean()
            await view.press("down", "pagedown", "end")
            view.check_clean()


FRAMES = (
    Frame("/usr/lib/python3/site-packages/mindspore/nn/layer/basic.py", 312, "x = self.matmul(x)", framework=True),
    Frame("/root/net.py", 10, "def construct(self, x):", end_line=14, context=True),
    Frame("/root/net.py", 12, "    return self.fc(x)", end_line=12),
    Frame("/root/train.py", 3, "loss = net(x)", forward=True, depth=1),
)


def excerpt(frame: Frame, context: int) -> SourceExcerpt | None:
    if frame.path != "/root/net.py":
        return None
    first = max(1, frame.line - context)
    return SourceExcerpt("/here/net.py", first, tuple(f"line {first + i}" for i in range(2 * context + 1)), frame.line)


class TestSource:
    async def test_marks_frames_and_shows_lines_around(self) -> None:
        async with opened(SourceScreen("Default/[b]x", FRAMES, excerpt, run=run_here)) as view:
            assert "Source of Default/[b]x" in view.text
            assert "· basic.py:312" in view.text
            assert "⋯ net.py:10" in view.text
            assert "in: def construct(self, x):" in view.text
            assert "● net.py:12" in view.text
            assert "◀ train.py:3" in view.text
            assert "└ forward: loss = net(x)" in view.text
            assert "This file is not on this machine" in view.text
            await view.press("down", "down")
            assert "/here/net.py:12" in view.text
            assert "▶ 12 line 12" in view.text

    async def test_n_goes_to_frames_outside_the_framework(self) -> None:
        async with opened(SourceScreen("x", FRAMES, excerpt, run=run_here)) as view:
            await view.press("n")
            assert "/here/net.py:12" in view.text
            await view.press("n")
            assert "/root/train.py:3" in view.text
            await view.press("N")
            assert "/here/net.py:12" in view.text

    async def test_all_of_the_framework(self) -> None:
        async with opened(SourceScreen("x", FRAMES[:1], excerpt, run=run_here)) as view:
            await view.press("n")
            assert "no frame outside the framework" in view.text

    async def test_starts_where_the_caller_was(self) -> None:
        async with opened(SourceScreen("x", FRAMES, excerpt, focus=2, run=run_here)) as view:
            assert "/here/net.py:12" in view.text

    async def test_no_stack(self) -> None:
        async with opened(SourceScreen("x", (), excerpt, run=run_here)) as view:
            await view.press("n", "down")
            assert "this node has no source stack" in view.text
            await view.press("escape")
            assert view.result is None

    async def test_a_reader_that_fails_is_a_file_that_is_not_here(self) -> None:
        def broken(frame: Frame, context: int) -> SourceExcerpt | None:
            raise OSError(frame.path, context)

        async with opened(SourceScreen("x", FRAMES, broken, run=run_here)) as view:
            assert "This file is not on this machine" in view.text

    async def test_a_late_answer_for_another_frame_is_dropped(self) -> None:
        jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        run = lambda work, done, failed: jobs.append((work, done))  # noqa: E731, ARG005 - a runner in one line
        async with opened(SourceScreen("x", FRAMES, excerpt, focus=2, run=run)) as view:
            await view.press("down")
            stale, newest = jobs[-2], jobs[-1]
            newest[1](newest[0]())
            stale[1](stale[0]())
            await view.pilot.pause()
            assert "/root/train.py:3" in view.text

    @pytest.mark.turns("size")
    @SIZES
    async def test_hostile_stacks(self, size: tuple[int, int], tmp_path: Path) -> None:
        frames = tuple(Frame(f"{tmp_path}/{name}", 1, name) for name in HOSTILE)

        def read(frame: Frame, context: int) -> SourceExcerpt:
            return SourceExcerpt(frame.path, 1, (frame.code,) * context, 1)

        async with opened(SourceScreen(HOSTILE[1], frames, read, run=run_here), size) as view:
            for _ in HOSTILE:
                view.check_clean()
                await view.press("down")
