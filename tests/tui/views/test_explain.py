"""The view that explains a tensor: what stands there, following its advice, handing it out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as session_on
from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node, write_dump
from tests.tui.screens_host import HOSTILE, Opened, opened
from tests.tui.views.host import PlainHost, opened_view
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import lines
from tui_debugger.model import Hit, Side, TensorKey, Verdict
from tui_debugger.session import Session
from tui_debugger.tui.views.explain import ExplainView
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.widgets.virtual_table import VirtualTable

WIDE, NARROW = (200, 50), (80, 24)


@pytest.fixture
def session(dumps: Callable[[str], Path]) -> Session:
    found = session_on(dumps("mindspore-2.0-nan"))
    found.add_recommended()
    return found


def hit_on(session: Session, node: str, step: int) -> Hit:
    hits = session.check(session.pairs(steps=[step])).hits.with_verdict(Verdict.FINDING)
    return next(hit for hit in hits if hit.key.node.endswith(node))


def explained(
    session: Session, hit: Hit, size: tuple[int, int] = NARROW
) -> AbstractAsyncContextManager[tuple[Opened, PlainHost, ExplainView]]:
    return opened_view(ExplainView, session, size, ViewTarget.of_hit(hit))


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_the_cause_its_evidence_and_the_advice_are_on_the_first_screen(
    session: Session, size: tuple[int, int]
) -> None:
    async with explained(session, hit_on(session, "Log-op381", 3), size) as (screen, _, _):
        text = " ".join(screen.text.split())
        assert "● likely: the logarithm of 0" in text
        assert "1 of 4 elements of in:0 is 0, where the logarithm gives -Inf" in text
        assert "– ruled out: inputs with NaN or Inf" in text
        assert "o See that its inputs are clean" in text
        assert "M See how far it spread" in text
        screen.check_clean()


async def test_enter_on_an_advice_opens_the_view_on_the_tensor_it_speaks_of(session: Session) -> None:
    async with explained(session, hit_on(session, "Log-op381", 3)) as (screen, host, _):
        await screen.press("n", "enter")
        ((view, focus),) = host.opened
        assert view == "values"
        assert (focus.key.side.label, focus.key.slot, focus.key.step) == ("in", 0, 3)
        await screen.press("n", "enter")
        assert host.opened[1] == ("origin", ViewTarget.of_hit(hit_on(session, "Log-op381", 3)))
        await screen.press("N", "enter")
        assert host.opened[2] == host.opened[0]


async def test_a_key_of_another_view_is_about_the_tensor_of_the_advice_under_the_cursor(session: Session) -> None:
    async with explained(session, hit_on(session, "head.weight", 3)) as (screen, host, _):
        await screen.press("H")
        assert host.opened[0][1].key.node == "head.weight"
        await screen.press("n", "o")
        view, focus = host.opened[1]
        assert view == "origin"
        assert focus.key.node.endswith("MatMul-op445")


async def test_enter_above_the_advice_follows_the_first_and_below_it_says_that_there_is_none(session: Session) -> None:
    async with explained(session, hit_on(session, "Log-op381", 3)) as (screen, host, _):
        await screen.press("enter")
        ((view, focus),) = host.opened
        assert (view, focus.key.side.label, focus.key.slot) == ("values", "in", 0)
        await screen.press("end", "enter")
        assert len(host.opened) == 1
        assert "no advice from here on" in screen.text


async def test_no_character_of_a_long_name_is_lost(tmp_path: Path) -> None:
    name = f"Default/{'long' * 30}/{'x/' * 10}Mul-op1"
    writer = DumpWriter(tmp_path, Generation.V2_3)
    writer.graph(Graph(nodes=(Node(name, "Mul"),)))
    writer.tensor(0, "Mul", name, np.ones((2, 3), np.float32))
    session = session_on(tmp_path)
    row = session.nodes(0).find(name)
    key = TensorKey(0, session.nodes(0).graph_of(row).name, name, Side.OUTPUT, 0, 0)
    async with opened(ExplainView(PlainHost(session), ViewTarget(key, row)), NARROW) as screen:
        shown = "".join(line.strip(" ▌") for line in screen.lines[1:])
        assert f"{name}:out:0" in shown


async def test_lines_are_broken_anew_when_the_screen_gets_another_size(session: Session) -> None:
    async with explained(session, hit_on(session, "Div-op385", 3), WIDE) as (screen, _, view):
        before = view.query_one(VirtualTable).row_count
        await screen.resize(60, 24)
        await screen.pilot.pause()
        assert view.query_one(VirtualTable).row_count > before
        screen.check_clean()


async def test_everything_can_be_copied_and_exported(session: Session) -> None:
    async with explained(session, hit_on(session, "Log-op381", 3)) as (_, _, view):
        extract = view.extract()
        assert extract is not None
        assert extract.text.startswith("Default/network-WithLossCell/_backbone-Net/Log-op381:out:0\nrank 0, step 3\n")
        assert "the logarithm of 0" in extract.text
        assert extract.header == ("conditions", "cause", "standing", "evidence")
        assert extract.rows[0][1:3] == ("the logarithm of 0", "likely")
        assert extract.stem == "Log-op381.out0.rank0.step3.explain"
        assert extract.one


async def test_a_tensor_without_a_hit_is_said_to_be_clean(session: Session) -> None:
    hit = hit_on(session, "Log-op381", 3)
    host = PlainHost(session)
    view = ExplainView(host, ViewTarget(hit.key, hit.row).at_step(0))
    async with opened(view, NARROW) as screen:
        await screen.pilot.pause()
        assert "No NaN or Inf" in screen.text
        assert "all 4 elements are finite" in screen.text


async def test_names_of_the_users_data_never_reach_the_terminal_raw(session: Session) -> None:
    from dataclasses import replace

    for name in HOSTILE:
        hit = hit_on(session, "Log-op381", 3)
        view = ExplainView(PlainHost(session), ViewTarget(replace(hit.key, node=name), hit.row))
        async with opened(view, NARROW) as screen:
            await screen.pilot.pause()
            screen.check_clean()


def test_without_a_watchpoint_nothing_is_said_of_a_list(tmp_path: Path) -> None:
    write_dump(tmp_path)
    session = session_on(tmp_path)
    nodes = session.nodes(0)
    row = nodes.find(MLP.nodes[1].name)
    key = TensorKey(0, nodes.graph_of(row).name, MLP.nodes[1].name, Side.OUTPUT, 0, 1)
    said = " ".join(line.text for line in lines(explain(session, key)))
    assert "no watchpoint is enabled: only NaN and Inf were looked for" in said
