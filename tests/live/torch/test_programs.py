"""Programs that do more than one plain loop: autocast, checkpoints, shared modules, microbatches, processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.live.conftest import Happened
from tests.live.torch.driving import Driven
from tui_debugger.live.server import Server
from tui_debugger.live.wire import Event

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

Train = Callable[..., Driven]
EVERYTHING = ("tensor_too_large", {"max_gt": -1e30}, ".")


def test_autocast_shows_half_types_as_they_are(train: Train) -> None:
    run = train("autocast", steps=2)
    run.watch(EVERYTHING)
    run.run()
    values = run.value("head/Linear")
    assert values is not None
    assert values.dtype == ml_dtypes.bfloat16
    hit = run.hits()["head/Linear"]
    assert hit.meta is not None
    assert hit.meta.dtype == "bfloat16"
    assert hit.stats is not None
    assert hit.stats.maximum == float(values.astype(np.float64).max())
    assert hit.stats.mean == pytest.approx(float(values.astype(np.float64).mean()), rel=1e-12)


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_what_a_checkpoint_computes_again_counts_once(train: Train, kind: str) -> None:
    run = train("checkpointed", steps=2, kind=kind)
    run.watch(EVERYTHING)
    run.run()
    seen = Counter((hit.node, hit.slot) for hit in run.training.hits)
    assert max(seen.values()) == 1
    names = {name for name, _ in seen}
    assert {"blocks/0/feed/1/ReLU", "blocks/1/Block", "Gradients/blocks/0/BlockGrad"} <= names
    assert "Gradients/blocks/0/feed/1/ReLUGrad" in names
    assert not any("#" in name for name in names)


def test_a_module_that_is_called_twice_has_two_nodes(train: Train) -> None:
    run = train("plain", steps=2, reuse=1)
    run.watch(EVERYTHING)
    run.run()
    first, second = run.value("blocks/0/Block"), run.value("blocks/0/Block#2")
    assert first is not None
    assert second is not None
    assert not np.array_equal(first, second)
    assert {"Gradients/blocks/0/BlockGrad", "Gradients/blocks/0/BlockGrad#2"} <= set(run.hits())


def test_a_step_block_with_microbatches_and_evaluation(train: Train) -> None:
    run = train("with_steps", steps=3)
    run.watch(EVERYTHING)
    run.run()
    assert run.stop.step == 0
    hits = run.hits()
    assert "Gradients/head/weight" in hits  # although the program sets gradients to None at the end of the step
    assert "momentum_buffer.head.weight" in hits
    assert not any("#" in name for name in hits)
    assert run.value("head/Linear").shape[0] == 4  # type: ignore[union-attr] - not that of the evaluation
    run.run()
    assert run.stop.step == 1


def test_two_processes_are_two_ranks(train: Train, server: Server, happened: Happened, tmp_path: Path) -> None:
    run = train("parallel", steps=3, file=tmp_path / "store")
    happened.wait(Event.STOPPED, 2)
    ranks = {training.info.rank: training for training in server.all()}
    assert set(ranks) == {0, 1}
    assert {training.info.world_size for training in ranks.values()} == {2}
    assert "head.weight" in run.table.names
    assert not any("module" in name for name in run.table.names)
    before = happened.count(Event.STOPPED)
    for training in ranks.values():
        training.run(1)
    happened.wait(Event.STOPPED, before + 2)
    assert [ranks[rank].stop.step for rank in (0, 1)] == [0, 0]  # type: ignore[union-attr]
    for training in ranks.values():
        training.release()
    assert run.outcome()[0] == 0


def test_a_graph_that_grows_is_sent_again_and_watchpoints_stay(train: Train) -> None:
    run = train("plain", steps=6, grow=2)
    run.watch(("tensor_too_large", {"max_gt": -1e30}, r"^blocks/0/Block$"))
    known = set(run.table.names)
    for _ in range(4):
        run.run()
        assert "blocks/0/Block" in run.hits()
        assert ("blocks/0/Block#2" in run.hits()) == (run.stop.step >= 2)  # watched like the first call
    run.arrived()
    assert set(run.table.names) - known >= {"blocks/0/Block#2", "Gradients/blocks/0/BlockGrad#2"}
