"""The view of the audit: the answer, the list of what is wrong, coverage, and where its keys lead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import file_of
from tests.linked import linked, own
from tests.session.opened import opened as session_on
from tests.sources.memory import MemorySource, Op
from tests.tui.screens_host import HOSTILE, Opened
from tests.tui.views.host import PlainHost, opened_view
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.views.audit import AuditView
from tui_debugger.tui.views.registry import ViewTarget

WIDE, MIDDLE, NARROW = (200, 50), (120, 40), (80, 24)
MLP = "mindspore-2.0-mlp"


@pytest.fixture
def faulty(dumps: Callable[[str], Path], tmp_path: Path) -> Session:
    """Two operators are wrong at step 2."""
    copy = linked(dumps(MLP), tmp_path / "faulty")
    for name in ("Tanh", "Sigmoid"):
        first = next(copy.rglob(f"2/{name}.*.output.*"))
        file = own(file_of(first.parent, f"{first.name.partition('.output')[0].rpartition('.')[0]}*.output.0.*"))
        np.save(file, np.load(file) * np.float32(1.01))
    return session_on(copy)


def audited(
    session: Session, size: tuple[int, int] = NARROW, about: ViewTarget | None = None
) -> AbstractAsyncContextManager[tuple[Opened, PlainHost, AuditView]]:
    return opened_view(AuditView, session, size, about)


@pytest.mark.parametrize("size", [WIDE, MIDDLE, NARROW])
async def test_the_answer_and_the_coverage_are_on_the_first_screen(faulty: Session, size: tuple[int, int]) -> None:
    async with audited(faulty, size) as (screen, _, view):
        text = " ".join(screen.text.split())
        assert "2 outputs wrong" in text
        assert "Tanh-op88 at step 2: its output was written over before it was saved" in text
        assert view.findings.row_count == 2
        assert "operators checked of" in text
        assert "linear" in text
        screen.check_clean()


async def test_a_sound_run_says_so(dumps: Callable[[str], Path]) -> None:
    async with audited(session_on(dumps(MLP))) as (screen, _, view):
        assert "no known operator is wrong" in screen.text
        assert view.findings.row_count == 0
        assert view.extract() is not None


async def test_the_node_under_the_cursor_comes_first(faulty: Session) -> None:
    nodes = faulty.nodes(0)
    row = next(at for at, name in enumerate(nodes.names) if name.endswith("Tanh-op88"))
    key = TensorKey(0, nodes.graph_of(row).name, nodes.names[row], Side.OUTPUT, 0, 1)
    async with audited(faulty, WIDE, ViewTarget(key, row)) as (screen, _, _):
        assert "Tanh-op88 at step 1: its arithmetic is right: r up to " in screen.text
    async with audited(faulty, WIDE, ViewTarget(key.at_step(2), row)) as (screen, _, _):
        assert "Tanh-op88 at step 2: its arithmetic is wrong: r = " in screen.text


async def test_enter_goes_to_the_tensor_and_v_to_its_worst_element(faulty: Session) -> None:
    async with audited(faulty) as (screen, host, view):
        await screen.press("v")
        ((kind, target),) = host.opened
        finding = view.finding
        assert finding is not None
        assert (kind, target.key, target.at) == ("values", finding.key, finding.check.worst)
        await screen.press("down", "H")
        assert host.opened[1] == ("trend", view.target_here)
        assert host.opened[1][1].key != target.key
        await screen.press("enter")
        assert host.gone == [view.target_here]


async def test_one_kind_of_operator_and_all_again(faulty: Session) -> None:
    async with audited(faulty) as (screen, _, view):
        kind = view.finding.kind if view.finding is not None else ""
        await screen.press("f")
        assert {each.kind for each in view._findings} == {kind}
        assert view.findings.row_count == 1
        assert f"only {kind}: f shows all again" in screen.text
        await screen.press("f")
        assert view.findings.row_count == 2
        await screen.press("tab", "enter")
        assert view.kind == view.coverage.cursor_key
        await screen.press("enter")
        assert view.kind == ""


async def test_looking_again_takes_in_what_changed(faulty: Session, tmp_path: Path) -> None:
    async with audited(faulty) as (screen, _, view):
        file = file_of(next((tmp_path / "faulty").rglob("3/Tanh*.output.*")).parent, "Tanh*Tanh-op88*.output.0.*")
        np.save(own(file), np.load(file) * np.float32(1.5))
        await screen.press("r")
        assert view.findings.row_count == 3


@pytest.mark.parametrize("size", [WIDE, NARROW, (40, 10)])
async def test_names_of_any_kind_are_shown_safely(size: tuple[int, int]) -> None:
    tensors = {0: {(name, 1, 0): np.array([np.nan]) for name in HOSTILE}}
    session = Session(MemorySource({0: tensors}, ops=[Op(name) for name in HOSTILE]))
    async with audited(session, size) as (screen, _, view):
        await screen.press("tab", *("down",) * 4, "f", "f", "r")
        screen.check_clean()
        assert view.extract() is not None
