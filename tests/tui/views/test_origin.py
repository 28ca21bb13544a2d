"""The path upstream on screen: what one sees, what the keys do, what can be copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from textual.strip import Strip

from tests.session.opened import opened as opened_session
from tests.session.runs import LOG, MATMUL, MOMENTUM, REDUCE, write_run
from tests.sources.writer import Graph, Node
from tests.tui.conftest import OpenScreen
from tests.tui.screens_host import Opened, opened
from tests.tui.views.host import PlainHost
from tui_debugger.diagnose.origin.path import questions_about
from tui_debugger.model import Hit, Side, TensorKey, Verdict
from tui_debugger.session import Session
from tui_debugger.tui.views.origin import OriginView
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.widgets.virtual_table import VirtualTable

WIDE, NARROW = (200, 50), (80, 24)


@pytest.fixture(scope="module")
def checked(dumps: Callable[[str], Path]) -> Callable[[], tuple[Session, list[Hit]]]:
    @cache
    def check() -> tuple[Session, list[Hit]]:
        session = opened_session(dumps("mindspore-2.0-nan"))
        session.add_recommended()
        return session, list(session.check(session.pairs()).hits)

    return check


def hit_on(hits: list[Hit], end: str, step: int) -> Hit:
    return next(hit for hit in hits if hit.key.node.endswith(end) and hit.key.step == step)


def focus_on(session: Session, name: str, step: int, *, rank: int = 0, side: Side = Side.OUTPUT) -> ViewTarget:
    nodes = session.nodes(rank)
    row = nodes.find(name)
    return ViewTarget(TensorKey(rank, nodes.graph_of(row).name, name, side, 0, step), row)


def marks(screen: Opened) -> list[str]:
    """The first glyph of every line of the path."""
    view = screen.app.opened
    assert isinstance(view, OriginView)
    rows = view.table.rows
    return [str(rows.cells(at)[0]) for at in range(rows.row_count)]


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_the_answer_stands_above_and_the_cursor_on_the_origin(
    size: tuple[int, int], checked: Callable[[], tuple[Session, list[Hit]]]
) -> None:
    session, hits = checked()
    async with opened(
        OriginView(PlainHost(session), ViewTarget.of_hit(hit_on(hits, "moment2.head.bias", 5))), size
    ) as screen:
        assert screen.lines[1].strip() == "origin: Log-op381 (Log), step 3 (-Inf 1 of 4)"
        assert "the logarithm of 0: 1 of 4 elements of in:0 is 0" in screen.text
        assert "8 hops upstream, from step 5 back to step 3" in screen.text
        assert marks(screen) == [*"✗" * 8, "◆"]
        assert any(line.startswith(" ▌◆    3 Log-op381") for line in screen.lines)
        assert "train_nan.py:53  e = self.log(" in screen.text
        inputs = [line.partition("▌  ")[2].split()[:6] for line in screen.lines if "▌  in:0" in line]
        assert inputs == [["in:0", "0", "0", "0", "99.547", "float32"]]
        screen.check_clean()


async def test_moving_shows_the_hop_below(checked: Callable[[], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked()
    async with opened(
        OriginView(PlainHost(session), ViewTarget.of_hit(hit_on(hits, "moment2.head.bias", 5))), WIDE
    ) as screen:
        await screen.press("k")
        assert "in:1 of Mul-op383" in screen.text
        assert "ReduceSum-op382  out:0  kernel_graph_0  rank 0" in screen.text
        await screen.press("g")
        assert "moment2.head.bias  out:0  kernel_graph_0" in screen.text
        assert "value of step 4" in screen.text


async def test_enter_goes_there_and_v_shows_the_values(checked: Callable[[], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked()
    host = PlainHost(session)
    async with opened(OriginView(host, ViewTarget.of_hit(hit_on(hits, "head.bias", 4))), WIDE) as screen:
        await screen.press("enter")
        (gone,) = host.gone
        assert (gone.key.node.rpartition("/")[2], gone.key.step) == ("Log-op381", 3)
        assert session.nodes(0).names[gone.row] == gone.key.node
        await screen.press("v", "tab", "v", "E")
        assert {focus.key.node for _, focus in host.opened} == {gone.key.node}
        assert [(view, focus.key.side.label) for view, focus in host.opened] == [
            ("values", "out"),
            ("values", "in"),
            ("explain", "in"),
        ]


async def test_other_bad_inputs_open_and_have_paths_of_their_own(
    checked: Callable[[], tuple[Session, list[Hit]]],
) -> None:
    session, hits = checked()
    async with opened(OriginView(PlainHost(session), ViewTarget.of_hit(hit_on(hits, "/Add-op440", 3))), WIDE) as screen:
        assert "+1 more bad" in screen.text
        before = marks(screen)
        await screen.press("g", "space")
        assert len(marks(screen)) == len(before) + 1
        assert "also in:0 of Add-op440" in screen.text
        await screen.press("j", "space")
        assert len(marks(screen)) > len(before) + 2
        assert "MatMulBiasAddFusion-op439: origin: Div-op385" in screen.text
        assert marks(screen).count("◆") == 2
        await screen.press("space", "k", "space")
        assert marks(screen) == before
        await screen.press("G", "space")
        assert "nothing else bad went into this tensor" in screen.text


async def test_a_clean_tensor_is_said_to_be_clean(checked: Callable[[], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked()
    host = PlainHost(session)
    log = hit_on(hits, "Log-op381", 3)
    async with opened(OriginView(host, ViewTarget.of_hit(log).at_step(2)), NARROW) as screen:
        assert "clean: Log-op381:out:0 of step 2 has no NaN or Inf" in screen.text
        assert "the nearest origin is Log-op381:out:0, rank 0, step 3" in screen.text
        assert marks(screen) == [" ", "◆"]
        await screen.press("enter")
        assert host.gone == [ViewTarget(log.key, log.row)]


async def test_a_finding_that_is_not_nan_asks_its_watchpoint_upstream(
    checked: Callable[[], tuple[Session, list[Hit]]],
) -> None:
    session, hits = checked()
    hit = next(hit for hit in hits if hit.stats is not None and not hit.stats.bad and hit.verdict.name == "FINDING")
    async with opened(OriginView(PlainHost(session), ViewTarget.of_hit(hit)), WIDE) as screen:
        assert "bad here means: " in screen.text


async def test_m_shows_the_next_thing_that_was_found(checked: Callable[[], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked()
    hit = next(hit for hit in hits if len(questions_about(session, hit)) > 1)
    async with opened(OriginView(PlainHost(session), ViewTarget.of_hit(hit)), WIDE) as screen:
        first = next(line for line in screen.lines if "bad here means: " in line)
        assert "(finding 1 of" in first
        await screen.press("m")
        second = next(line for line in screen.lines if "bad here means: " in line)
        assert "(finding 2 of" in second
        assert second.partition("(")[0] != first.partition("(")[0]
    single = hit_on(hits, "Log-op381", 3)
    async with opened(OriginView(PlainHost(session), ViewTarget.of_hit(single)), WIDE) as screen:
        await screen.press("m")
        assert "nothing else was found" in screen.text


async def test_several_ranks_are_told_apart(tmp_path: Path) -> None:
    bad = {(0, 0): {REDUCE, MOMENTUM, "w"}, (1, 0): {LOG, REDUCE, MOMENTUM, "w"}}
    session = opened_session(write_run(tmp_path, bad, ranks=(0, 1)))
    async with opened(OriginView(PlainHost(session), focus_on(session, "w", 0)), WIDE) as screen:
        assert "origin: Log-op2 (Log), rank 1, step 0" in screen.text
        assert "over ranks 0, 1" in screen.text
        assert "sent by rank 1: in:0 of AllReduce-op3" in screen.text
        await screen.press("k")
        assert "in:0 r1" in screen.text, "what the other rank put in stands below"


async def test_a_lost_path_says_both_ends(tmp_path: Path) -> None:
    graph = Graph(
        (Node(MATMUL, "MatMul", (("x", 0),)), Node(LOG, "Log", ((MATMUL, 0),)), Node("Abs", "Abs", ((LOG, 0),))), ("x",)
    )
    session = opened_session(write_run(tmp_path, {(0, 0): {"Abs"}}, graph=graph, hidden={LOG}))
    async with opened(OriginView(PlainHost(session), focus_on(session, "Abs", 0)), NARROW) as screen:
        assert "not dumped: the path is lost before Abs" in screen.text
        assert "clean end: MatMul-op1:out:0 of step 0" in screen.text
        assert marks(screen) == ["?"]


async def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "Default/[red]x[/]\x1b[2J\u202e-op1"
    graph = Graph((Node(name, "Log", (("x", 0),)),), ("x",))
    session = opened_session(write_run(tmp_path, {}, graph=graph, hidden={name}))
    async with opened(OriginView(PlainHost(session), focus_on(session, name, 0)), NARROW) as screen:
        screen.check_clean()
        assert "[red]x[/]" in screen.text


async def test_everything_can_be_copied(checked: Callable[[], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked()
    view = OriginView(PlainHost(session), ViewTarget.of_hit(hit_on(hits, "/Mul-op383", 3)))
    assert view.extract() is None
    async with opened(view, NARROW):
        found = view.extract()
        assert found is not None
        assert found.text.splitlines()[-1] == "origin: Log-op381 (Log), step 3 (-Inf 1 of 4)"
        assert "train_nan.py:53" in found.text
        assert [str(row[2]).rpartition("/")[2] for row in found.rows] == ["Mul-op383", "ReduceSum-op382", "Log-op381"]
        assert found.rows[-1][7] == 1, "a number, not text"
        assert len(found.header) == len(found.rows[0])
        assert found.one.startswith("Log-op381:out:0")


async def test_a_cursor_key_draws_two_lines_of_the_path(checked: Callable[[], tuple[Session, list[Hit]]]) -> None:
    session, hits = checked()
    async with opened(
        OriginView(PlainHost(session), ViewTarget.of_hit(hit_on(hits, "moment2.head.bias", 5))), WIDE
    ) as screen:
        view = screen.app.opened
        assert isinstance(view, OriginView)
        drawn: list[int] = []
        render = view.table.render_line

        def counted(y: int) -> Strip:
            drawn.append(y)
            return render(y)

        view.table.render_line = counted  # type: ignore[method-assign]  # counts
        await screen.press("k")
        assert 0 < len(set(drawn)) <= 2


async def test_o_opens_it_from_the_hits_and_enter_leads_back_to_the_panes(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        await screen.press("s", "4", "enter")
        await screen.settled()
        await screen.press("4", "o")
        await screen.until(lambda: "origin: " in screen.text)
        assert type(screen.app.screen).__name__ == "OriginView"
        assert "step 3" in screen.lines[1]
        await screen.press("enter")
        await screen.settled()
        assert screen.app.screen is screen.main
        assert (screen.main.state.step, screen.main.current_pane) == (3, "tensors")
        row = screen.main.tensors_pane.current
        assert row is not None
        assert row.key.step == 3
        assert isinstance(screen.main.tensors_pane.table, VirtualTable)


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_end_of_the_path_says_how_far_it_spread_where_the_step_was_checked(
    dumps: Callable[[str], Path], size: tuple[int, int]
) -> None:
    session = opened_session(dumps("mindspore-2.0-nan"))
    session.add_recommended()
    hits = session.check(session.pairs(steps=[3])).hits.with_verdict(Verdict.FINDING)
    hit = next(hit for hit in hits if hit.key.node.endswith("Log-op381"))
    async with opened(OriginView(PlainHost(session), ViewTarget.of_hit(hit)), size) as screen:
        await screen.pilot.pause()
        text = " ".join(screen.text.split())
        spread = (
            "spread: from it and 1 more origin to 312 findings at step 3: ReduceSum-op382, Mul-op383, LayerNorm-op386"
        )
        assert spread in text, "the other origin came of something else"
        assert "M shows the map of it" in text
        screen.check_clean()


@pytest.mark.parametrize("size", [WIDE, (120, 40), NARROW])
async def test_details_stand_beside_the_path_or_right_below_it(
    size: tuple[int, int], checked: Callable[[], tuple[Session, list[Hit]]]
) -> None:
    session, hits = checked()
    view = OriginView(PlainHost(session), ViewTarget.of_hit(hit_on(hits, "Log-op381", 3)))
    async with opened(view, size):
        path, detail = view.table.region, view.query_one("#hop").region
        if size == WIDE:
            assert (detail.y, detail.x > path.right) == (path.y, True)
        else:
            assert (detail.x, detail.y) == (path.x, path.bottom), "no empty lines between them"
