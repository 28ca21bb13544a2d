"""The first screen answers: what came out, where, and which key leads on; nothing that is known is lost on the way."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE
from tests.session.opened import watch
from tests.sources.writer import MLP, write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened, opened_by
from tests.tui.live_driver import attached
from tests.tui.sizes import every_size
from tui_debugger.check.verdicts import Outcome
from tui_debugger.diagnose.headline import Headline
from tui_debugger.graph.tree import ScopeTree
from tui_debugger.model import Hit, ProgressFn
from tui_debugger.session import CheckResult, Session
from tui_debugger.sources.registry import open_source
from tui_debugger.tui import checker
from tui_debugger.tui.navigator import Navigator
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.views.explain import ExplainView
from tui_debugger.tui.views.origin import OriginView

NAN, MLP_DUMP = "mindspore-2.0-nan", "mindspore-2.10-mlp"
RELU = MLP.nodes[1].name


def overflow_only(path: Path, size: tuple[int, int]) -> AbstractAsyncContextManager[Driver]:
    """The screen of a dump of which only NaN and Inf are asked."""

    def open_session(progress: ProgressFn) -> Session:
        session = Session(open_source(path))
        session.open(progress)
        watch(session, "TO")
        return session

    return opened_by(open_session, size=size, title=str(path), recommended=False)


def answer(screen: Driver) -> str:
    """The line of the answer without the scope that it names where there is room."""
    return re.sub("Default/(network-WithLossCell/_backbone-Net/|network-Net/act-ReLU/)?", "", screen.lines[1])


@pytest.mark.covering
@every_size
@pytest.mark.parametrize(("key", "view"), [("o", OriginView), ("E", ExplainView)])
async def test_one_key_leads_from_the_first_screen_to_the_reason(
    open_screen: OpenScreen, size: tuple[int, int], key: str, view: type
) -> None:
    async with open_screen(NAN, size=size) as screen:
        assert answer(screen).startswith(
            " Begins at step 3: Log-op381, -Inf 1 of 4 (the logarithm of 0) · 1 more origin"
        )
        assert screen.main.state.step == 3
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        assert nodes.names[screen.main.state.row].endswith("Log-op381")
        assert screen.main.current_pane == ("hits" if size == (80, 24) else "nodes")
        await screen.press(key)
        await screen.settled()
        assert isinstance(screen.app.screen, view)
        assert "the logarithm of 0" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_names_of_another_version_lead_to_the_same_cause(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen("mindspore-2.10-nan", size=size) as screen:
        because = "logarithm of 0" if size == (80, 24) else "the logarithm of 0"
        assert screen.lines[1].startswith(f" Begins at step 3: _backbone-Net/Log-op0, -Inf 1 of 4 ({because})")
        assert "o path" in screen.lines[1], "an article goes before the next key"
        assert screen.lines[-1].startswith(" n Hit  o Origin  E Explain  ")
        await screen.press_each("E")
        assert "the logarithm of 0" in screen.text


@every_size
async def test_frozen_weights_and_dead_units_are_told_on_the_first_screen(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(MLP_DUMP, size=size) as screen:
        found, more, keys = ", tensor all zero", " · 21 more findings", "o path  E explain"
        if size == (80, 24):  # fewer words, so that the next key stays; a number is never cut
            found, more, keys = ", all zero", " …", "o path"
        assert answer(screen).startswith(f" Found at step 0: act3-ReLU/ReLU-op0{found} (the units are dead){more}  ")
        assert screen.lines[1].rstrip().endswith(f"  {keys}")
        await screen.press("enter")
        await screen.settled()
        assert screen.main.current_pane == "tensors"
        assert screen.main.tensors_pane.current is not None


@pytest.mark.turns("size")
@every_size
async def test_a_clean_run_says_so_and_how_much_was_looked_at(tmp_path: Path, size: tuple[int, int]) -> None:
    write_dump(tmp_path)
    async with overflow_only(tmp_path, size) as screen:
        result = screen.main.state.result
        assert result is not None
        assert screen.lines[1].startswith(f" Clean: {result.coverage.checked} tensors of steps 0–2 looked at")
        assert "● steps 0–2 checked" in screen.lines[2]
        assert "goes on to the next step" not in screen.text
        assert screen.lines[1].rstrip().endswith("Q audit")


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize(("key", "view"), [("o", OriginView), ("E", ExplainView)])
async def test_on_a_clean_run_the_keys_have_a_tensor_at_once(
    tmp_path: Path, size: tuple[int, int], key: str, view: type
) -> None:
    write_dump(tmp_path)
    async with overflow_only(tmp_path, size) as screen:
        assert screen.main.nodes_pane.current_row == screen.main.state.row >= 0
        await screen.press(key)
        await screen.settled()
        assert isinstance(screen.app.screen, view)
        await screen.press("escape", "enter", "enter")
        await screen.settled()
        assert isinstance(screen.app.screen, ValuesScreen)


@pytest.mark.turns("size")
@every_size
async def test_a_clean_run_of_several_ranks_leads_to_what_compares_them(tmp_path: Path, size: tuple[int, int]) -> None:
    write_dump(tmp_path, ranks=(0, 1))
    async with overflow_only(tmp_path, size) as screen:
        assert screen.lines[1].startswith(" Clean: ")
        assert "of 2 ranks looked at" in screen.lines[1]
        assert screen.lines[1].rstrip().endswith("K ranks  Q audit")


@pytest.mark.turns("size")
@every_size
async def test_a_training_that_waits_for_its_first_step_leads_to_running_one(size: tuple[int, int]) -> None:
    async with attached(1, size=size) as screen:
        await screen.until(lambda: "Nothing to judge yet: no tensor came so far" in screen.lines[1])
        assert screen.lines[1].rstrip().endswith("] run a step  c continue")
        await screen.press("4")
        assert "nothing to check yet: ] runs a step" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_of_several_ranks_the_first_screen_names_the_one_that_broke(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    writer = write_dump(tmp_path, ranks=(0, 1))
    for path in writer.step(1, rank=1).glob("ReLU.*output*"):
        path.unlink()
    writer.tensor(1, "ReLU", RELU, np.array([np.nan, 1.0], np.float32), rank=1)
    async with opened(tmp_path, size=size, recommended=True) as screen:
        assert answer(screen).startswith(" Begins at step 1 of rank 1: ReLU-op")
        assert (screen.main.state.rank, screen.main.state.step) == (1, 1)


@pytest.mark.turns("size")
@every_size
async def test_recorded_statistics_are_enough_for_the_first_screen(tmp_path: Path, size: tuple[int, int]) -> None:
    writer = write_dump(tmp_path, steps=(0,))
    for path in writer.step(0).glob("*.npy"):
        path.unlink()
    writer.statistics(0, [("ReLU", RELU, "output", 0, np.array([1.0, np.nan], np.float32))])
    async with opened(tmp_path, size=size, recommended=True) as screen:
        assert screen.lines[1].startswith(" First known bad at step 0: ReLU-op")


@every_size
async def test_a_long_answer_keeps_what_was_found_how_much_and_why(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    name, found, why = (
        "layer_normalisation_of_the_decoder-op381",
        "-Inf 1 of 4,096",
        "the logarithm of 0",
    )
    async with open_screen(NAN, size=size) as screen:

        async def shown(answer: Headline) -> str:
            screen.main.state.headline = answer
            screen.main.update_header()
            await screen.settled()
            return screen.lines[1].strip()

        line = await shown(Headline(Outcome.FINDING, "Begins at step 3:", f"{name}, {found}", why, "12 more origins"))
        assert line.startswith("Begins at step 3: ")
        if size == (80, 24):
            assert line.endswith(f"op381, {found} ({why}) …"), "the name is cut, in its middle"
        else:
            assert f"{found} ({why})" in line
        why = "the logarithm of a negative number"
        line = await shown(Headline(Outcome.FINDING, "Begins at step 3:", "Torch.log.12, NaN 13 of 512", why))
        short = "(logarithm of a negative number)" if size == (80, 24) else f"({why})"
        assert line.startswith(f"Begins at step 3: Torch.log.12, NaN 13 of 512 {short}"), (
            "no name is cut for an article"
        )
        name, why, hit = "_backbone-Net/Log-op0", "the logarithm of 0", screen.main.hits_pane.current
        line = await shown(
            Headline(Outcome.FINDING, "Begins at step 3:", f"{name}, -Inf 1 of 4", why, "1 more origin", hit)
        )
        rest = "(logarithm of 0)" if size == (80, 24) else f"({why}) · 1 more origin"
        assert line.startswith(f"Begins at step 3: {name}, -Inf 1 of 4 {rest}  "), "fewer words before no key"
        assert line.endswith("o path" if size == (80, 24) else "o path  E explain")
        name = "layers.1.self_attention.linear_qkv/activation"
        line = await shown(
            Headline(Outcome.FINDING, "First known bad at step 3 of rank 0:", f"{name}, NaN 256 of 1024", "", "98 more")
        )
        where = "…1…near_qkv/activation" if size == (80, 24) else name
        assert line.startswith(f"First known bad at step 3 of rank 0: {where}, NaN 256 of 1024"), "which layer it is"
        doubts = [f"{number} tensors of rank {number} cannot be read" for number in range(11, 19)]
        line = await shown(Headline(Outcome.CANNOT_JUDGE, "Cannot judge:", "; ".join(doubts)))
        assert line.endswith("cannot be read …"), "no reason is cut in two"
        rest = " of the steps before and of the steps after, of every rank and of every graph that was recorded" * 2
        line = await shown(
            Headline(
                Outcome.CANNOT_JUDGE, "Cannot judge:", f"2 tensors could not be compared: needs values, sums{rest}"
            )
        )
        assert line.startswith("Cannot judge: 2 tensors could not be compared: needs values"), "a sentence is no name"


@pytest.mark.turns("size")
@every_size
async def test_what_cannot_be_judged_is_the_answer(tmp_path: Path, size: tuple[int, int]) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    next(writer.step(1).glob("ReLU.*output*")).write_bytes(b"damaged")
    async with overflow_only(tmp_path, size) as screen:
        assert screen.lines[1].startswith(" Cannot judge: 1 tensor cannot be read")
        assert screen.lines[1].rstrip().endswith("4 which  E explain")
        assert screen.main.current_pane == ("hits" if size == (80, 24) else "nodes")
        await screen.press("E")
        await screen.settled()
        assert "a file that cannot be read" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_a_stop_of_a_training_with_a_hit_says_so_and_leads_there(size: tuple[int, int]) -> None:
    async with attached(size=size) as screen:
        await screen.press("right_square_bracket")
        await screen.ordered("run 1")
        await screen.stopped(screen.trainings.trainings[0], 3)
        assert answer(screen).startswith(" Begins at step 3: Log-op2, -Inf 6 of 6")
        current = screen.main.hits_pane.current
        assert current is not None
        assert current.key.node.endswith("Log-op2")
        assert screen.main.current_pane == ("hits" if size == (80, 24) else "nodes")
        assert screen.main.footer.notice == "step 3: 1 hit"
        await screen.press("o")
        await screen.settled()
        assert isinstance(screen.app.screen, OriginView)
        assert "Log-op2" in screen.text


async def test_a_stop_of_a_training_moves_nothing_under_a_person_who_looks_around() -> None:
    async with attached() as screen:
        await screen.press("1", "end", "up")
        await screen.settled()
        row = screen.main.nodes_pane.current_row
        await screen.press("right_square_bracket")
        await screen.ordered("run 1")
        await screen.stopped(screen.trainings.trainings[0], 3)
        assert screen.main.nodes_pane.current_row == row
        assert "n goes to the first" in screen.main.footer.notice
        await screen.press("n")
        await screen.settled()
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        assert nodes.names[screen.main.state.row].endswith("Log-op2")


@pytest.mark.turns("size")
@every_size
async def test_what_would_be_read_is_said_before_it_is_read(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(checker, "QUICK", -1)
    async with open_screen(NAN, size=size, measured=False) as screen:
        assert screen.lines[1].strip() == "○ not checked yet: r checks this step (1.081 MB), R every step and rank"
        assert screen.lines[2].strip() == ""
        await screen.press("4")
        assert "4 Hits" in screen.text
        assert "outdated" not in screen.text, "there is nothing yet that could be"


async def test_a_key_that_was_pressed_first_keeps_the_cursor(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        await screen.press("down", "a")
        await screen.settled()
        assert screen.lines[1].startswith(" Begins at step 3")
        assert screen.main.state.step == 0, "who has begun to look around is not taken elsewhere"


@every_size
async def test_an_answer_that_comes_before_the_nodes_still_leads_to_its_tensor(
    dumps: Callable[[str], Path], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    led = threading.Event()
    lead = Navigator.lead

    def lead_and_tell(self: Navigator, result: CheckResult, hit: Hit | None) -> None:
        lead(self, result, hit)
        led.set()

    class LateNodes(Session):
        def tree(self, rank: int) -> ScopeTree:
            if threading.current_thread().name == "tdbg-nodes":
                assert led.wait(PATIENCE)
            return super().tree(rank)

    def open_session(progress: ProgressFn) -> Session:
        session = LateNodes(open_source(dumps(NAN)))
        session.open(progress)
        return session

    monkeypatch.setattr(Navigator, "lead", lead_and_tell)
    async with opened_by(open_session, size=size, title=NAN, recommended=True) as screen:
        await screen.settled()
        assert screen.main.tensors_pane.count.endswith("Log-op381")
        assert screen.main.state.step == 3


async def test_where_a_step_was_asked_for_the_screen_starts_there(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, step=4) as screen:
        current = screen.main.hits_pane.current
        assert current is not None
        assert (screen.main.state.step, current.key.step) == (4, 4)


@pytest.mark.turns("size")
@every_size
async def test_a_scope_stands_for_the_worst_below_it_and_a_node_for_its_first_output(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("1", "home")
        assert screen.main.nodes_pane.current_row < 0
        target = screen.main.views.here()
        assert target is not None
        assert target.key.node.endswith("Log-op381")
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        row = nodes.names.index(next(name for name in nodes.names if name.endswith("ReduceSum-op380")))
        screen.main.navigator.go_to_row(row)
        await screen.settled()
        target = screen.main.views.here()
        assert target is not None
        assert (target.row, target.key.slot, target.hit) == (row, 0, None)


@every_size
async def test_switching_watchpoints_off_and_on_is_a_filter(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        before = screen.pane("hits")
        await screen.press("3", "down", "down", "down", "space")
        await screen.settled()
        assert screen.main.session is not None
        fewer = screen.pane("hits")
        assert 0 < len(fewer) < len(before)
        assert "● steps 0–5 checked" in screen.lines[2]
        await screen.press("space")
        await screen.settled()
        assert screen.pane("hits") == before


@every_size
async def test_marks_tell_this_step_from_others(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("1", "home")
        assert screen.pane("nodes")[0].startswith("◆")
        await screen.press("left_square_bracket")
        await screen.settled()
        assert screen.pane("nodes")[0].startswith("◇")


@pytest.mark.turns("size")
@every_size
async def test_nodes_that_only_a_later_step_has_are_listed_and_marked(tmp_path: Path, size: tuple[int, int]) -> None:
    """The list was made of the first step; a check reads them all."""
    for step, names in enumerate((("a", "b"), ("a", "b", "c", "d"))):
        (tmp_path / f"step_{step}").mkdir()
        for name in names:
            np.save(tmp_path / f"step_{step}" / f"{name}.npy", np.array([np.nan if (name, step) == ("b", 1) else 1.0]))
    async with overflow_only(tmp_path, size) as screen:
        assert screen.lines[1].startswith(" First known bad at step 1: b, NaN 1 of 1")
        await screen.press("1", "home")
        await screen.settled()
        shown = [" ".join(line.split()[:2]) for line in screen.pane("nodes")[:4]]
        assert shown == ["● a", "✗● b", "● c", "● d"]


@pytest.mark.turns("size")
@every_size
async def test_the_cursor_of_the_hits_takes_tensors_and_stack_along(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("4", "end")
        await screen.settled()
        last = screen.main.hits_pane.current
        assert last is not None
        assert (screen.main.state.step, screen.main.state.row) == (last.key.step, last.row)
        assert last.key.node in screen.text
        await screen.press("1")
        assert screen.main.nodes_pane.current_row == last.row


@every_size
async def test_the_footer_can_be_clicked(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        x = screen.lines[-1].index("E Explain")
        await screen.pilot.click(screen.main.footer, offset=(x, 1))
        await screen.settled()
        assert isinstance(screen.app.screen, ExplainView)


@every_size
async def test_messages_leave_the_keys_where_they_are(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        keys = screen.lines[-1]
        await screen.press("n")
        await screen.settled()
        assert screen.lines[-2].strip() == "hit 2 of 914"
        assert screen.lines[-1] == keys
        await screen.press("down")
        assert "hit 2 of 914" not in screen.text


@pytest.mark.turns("size")
@every_size
async def test_the_answer_names_the_scope_where_there_is_room_and_the_nodes_open_with_it(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        scope = "Default/network-WithLossCell/_backbone-Net/"
        assert (f"{scope}Log-op381, -Inf 1 of 4" in screen.lines[1]) == (size[0] == 200)
        assert ("o path  E explain" in screen.lines[1]) == (size[0] > 80), "keys before the scope"
        await screen.press("1")
        for part in scope.split("/")[:-1]:
            assert f"▾ {part}" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_scopes_around_a_node_far_below_come_into_sight_with_it(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen("msprobe-L1-nan", size=size) as screen:
        await screen.press("1")
        lines = [line.strip(" │▌") for line in screen.lines]
        at = next(at for at, line in enumerate(lines) if line.startswith("◆") and "log.0" in line)
        assert any("▾ Torch" in line for line in lines[:at])
