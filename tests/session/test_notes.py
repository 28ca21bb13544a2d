"""Notes of a run as a session, the commands and the screen show them; the loss that a dump holds is recognised."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.graph.graphs import graph, op
from tests.hostile import EVIL, unsafe
from tests.linked import linked
from tests.session.opened import opened
from tests.tui.screens_host import opened as on_screen
from tests.tui.views.test_trend import LOG, view_of
from tui_debugger.diagnose.loss import loss_nodes
from tui_debugger.graph.build import build_table
from tui_debugger.live.client import Flight, Recorder
from tui_debugger.model import Side, TensorKey
from tui_debugger.notes import NOTES_FILE, ShownNote, notes_line
from tui_debugger.session import Session
from tui_debugger.text.notes import notes_text

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
LOSS = (
    "Default/network-WithLossCell/_loss_fn-SoftmaxCrossEntropyWithLogits/SparseSoftmaxCrossEntropyWithLogits-op{number}"
)


def value_of(session: Session, rank: int, step: int, node: str) -> float:
    nodes = session.nodes(rank)
    graph = nodes.graph_of(nodes.find(node)).name
    return float(session.read(TensorKey(rank, graph, node, Side.OUTPUT, 0, step)))


@pytest.mark.parametrize(
    ("dump", "nodes"),
    [
        ("mindspore-2.0-nan", {"loss": LOSS.format(number=441)}),
        ("mindspore-2.0-mlp", {"loss": LOSS.format(number=94)}),
        ("mindspore-2.10-nan", {"loss": LOSS.format(number=0)}),
        ("mindspore-2.10-mlp", {"loss": LOSS.format(number=0)}),
        ("msprobe-L1-nan", {"loss": "Functional.cross_entropy.0"}),
        ("msprobe-mix/good", {"loss": "Functional.cross_entropy"}),
        ("sglang-megatron/sglang-2rank", {"loss": "loss"}),
    ],
)
def test_the_loss_of_a_real_dump_is_recognised(dumps: Dumps, dump: str, nodes: dict[str, str]) -> None:
    archive, _, path = dump.partition("/")
    session = opened(dumps(archive) / path, "TO")
    session.check(session.pairs())
    for rank, step in session.pairs():
        found = session.notes_at(rank, step)
        assert {each.name: each.node for each in found} == nodes
        assert all(each.recognised for each in found)
        for each in found:
            np.testing.assert_equal(np.float32(each.value), np.float32(value_of(session, rank, step, each.node)))


def test_each_root_graph_of_a_dump_has_its_own_loss(dumps: Dumps) -> None:
    session = opened(dumps("mindspore-2.10-multi-gan"), "TO")
    session.check(session.pairs())
    found = {(each.name, each.node) for pair in session.pairs() for each in session.notes_at(*pair)}
    assert found == {
        ("loss DiscLoss", "Default/network-DiscLoss/Sub-op1"),
        ("loss GenLoss", "Default/network-GenLoss/Neg-op0"),
    }


@pytest.mark.parametrize(
    ("name", "reader", "recognised"),
    [
        ("Functional.cross_entropy", "Gradients/Functional.cross_entropy", True),
        ("head/Functional.mse_loss.3", "Gradients/head/Functional.mse_loss.3", True),
        ("Functional.cross_entropy", "Tensor.__add__", False),
        ("Functional.cross_entropies", "Gradients/Functional.cross_entropies", False),
        ("Gradients/Functional.cross_entropy", "Gradients/Linear", False),
        ("loss", "Gradients/loss", True),
        ("aux/loss", "Gradients/aux/loss", False),
        ("loss", "Tensor.__mul__", False),
        ("loss.weight", "Gradients/loss.weight", False),
    ],
)
def test_only_what_nothing_else_of_the_program_reads_may_be_the_loss(name: str, reader: str, recognised: bool) -> None:
    nodes = [op(1, name, op_type="call"), op(2, reader, ["1"], op_type="call")]
    table = build_table([graph(nodes)], {0: [name, reader]})
    assert (table.find(name) in loss_nodes(table)) == recognised


def test_a_loss_that_was_not_dumped_is_nothing(dumps: Dumps, tmp_path: Path) -> None:
    path = linked(dumps("mindspore-2.0-mlp"), tmp_path / "dump")
    for file in path.rglob("*SparseSoftmaxCrossEntropyWithLogits-op94*output*.npy"):
        file.unlink()
    session = opened(path, "TO")
    session.check(session.pairs())
    assert all(not session.notes_at(*pair) for pair in session.pairs())


@pytest.fixture
def noted(dumps: Dumps, tmp_path: Path) -> Path:
    """The nan dump, whose program noted its learning rate and hostile texts."""
    path = linked(dumps("mindspore-2.0-nan"), tmp_path / "dump")
    lines = [notes_line(step, {"lr": 1e-4 * (step + 1), EVIL[:40]: EVIL}) for step in range(6)]
    (path / "rank_0" / NOTES_FILE).write_text("".join(lines), encoding="utf-8")
    return path


def test_notes_of_a_dump_stand_beside_the_recognised_loss(noted: Path) -> None:
    session = opened(noted, "TO")
    assert [each.name for each in session.notes_at(0, 3)] == ["lr", EVIL[:40]]
    session.check([(0, 3)])
    names = [each.name for each in session.notes_at(0, 3)]
    assert names == ["lr", EVIL[:40], "loss"]
    assert session.run_notes(0).curve("lr")[0] == [0, 1, 2, 3, 4, 5]
    steps, losses = session.run_notes(0).curve("loss (recognised)")
    assert steps == [3]
    assert math.isnan(losses[0])
    assert not session.unreadable()


def test_a_noted_loss_is_the_loss(noted: Path) -> None:
    with (noted / "rank_0" / NOTES_FILE).open("a", encoding="utf-8") as file:
        file.write(notes_line(3, {"loss": 0.5}))
    session = opened(noted, "TO")
    session.check(session.pairs())
    assert session.notes_at(0, 3)[-1] == ShownNote("loss", 0.5)
    assert session.notes_at(0, 2)[-1].recognised


def test_a_file_of_notes_that_grows_is_read_again(noted: Path) -> None:
    session = opened(noted, "TO")
    assert session.notes(0).at(9) == {}
    with (noted / "rank_0" / NOTES_FILE).open("a", encoding="utf-8") as file:
        file.write(notes_line(9, {"loss": 0.5}))
    session.refresh()
    assert session.notes(0).at(9) == {"loss": 0.5}


def test_a_broken_file_of_notes_is_a_notice(noted: Path) -> None:
    (noted / "rank_0" / NOTES_FILE).write_bytes(b"\x00nonsense\n" + notes_line(1, {"a": 1}).encode())
    session = opened(noted, "TO")
    assert session.notes(0).at(1) == {"a": 1}
    assert f"1 line of {NOTES_FILE} of rank 0 without a note" in session.info.notices


def test_the_commands_show_notes(noted: Path, capsys: Capsys) -> None:
    runs = run(capsys, "ls", "--steps", noted, "--json").json["runs"]
    assert [each["notes"]["lr"] for each in runs] == [pytest.approx(1e-4 * step) for step in range(1, 7)]
    assert [each["recognised"]["loss"]["value"] for each in runs][3:] == ["nan"] * 3
    check = run(capsys, "check", noted, "--watch", "TO", "--json").json
    assert [(each["step"], each["recognised"]["loss"]["node"]) for each in check["notes"]] == [
        (step, LOSS.format(number=441)) for step in range(6)
    ]
    trend = run(capsys, "trend", noted, "--notes", "--json").json
    assert trend["tensors"] == []
    assert [each["notes"]["loss (recognised)"] for each in trend["notes"][0]["steps"]][3:] == ["nan"] * 3
    assert trend["exit_code"] == 0
    for command in (["ls", "--steps"], ["check", "--watch", "TO"], ["trend", "--notes"], ["trend", LOG, "--notes"]):
        text = run(capsys, command[0], noted, *command[1:]).out
        assert "lr" in text
        assert not unsafe(text)


def test_a_step_with_many_notes_takes_little_room() -> None:
    notes = [ShownNote(f"name{number}", number / 7) for number in range(20)]
    assert notes_text(notes, 36) == "name0 0  name1 0.14286  …"
    assert len(notes_text([ShownNote("n" * 40, "t" * 100)], 36)) == 36
    assert notes_text([ShownNote("a", True), ShownNote("b", -math.inf), ShownNote("c", 7)]) == "a yes  b -Inf  c 7"


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_view_through_the_steps_has_curves_of_notes(noted: Path, size: tuple[int, int]) -> None:
    session = opened(noted, "TO")
    session.check(session.pairs())
    view, _ = view_of(session, LOG, 3)
    async with on_screen(view, size) as screen:
        assert "lr 4e-4" in screen.text
        await screen.command("notes")
        assert "note lr" in screen.text
        await screen.press("m")
        assert "note loss (recognised)" in screen.text
        axis = screen.text.partition("note loss (recognised)")[2].partition("└")[2].partition("\n")[0]
        assert axis.count("N") == 3
        await screen.command("notes")
        assert "note lr" in screen.text
        await screen.command("notes")
        assert "max, mean, min" in screen.text
        assert not unsafe(screen.text)


def test_a_recorder_notes_for_its_own_dumps(tmp_path: Path) -> None:
    recorder = Recorder("", flight=Flight(str(tmp_path)))
    for step in range(3):
        recorder.note(loss=np.float32(0.5), batch=step)
        recorder.record("h", np.array([1.0, math.nan if step == 2 else 2.0]), kind="relu")
        recorder.note(late=np.array([[step]]))
        recorder.step()
    recorder.close()
    (dump,) = [each for each in tmp_path.iterdir() if each.is_dir()]
    session = opened(dump, "TO")
    assert session.notes(0).all() == [(step, {"loss": 0.5, "batch": step, "late": step}) for step in range(3)]
    first = (dump / "rank_0" / NOTES_FILE).read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first) == {"step": 0, "notes": {"loss": 0.5, "batch": 0, "late": 0}}
