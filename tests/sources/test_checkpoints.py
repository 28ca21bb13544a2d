"""Checkpoints: of trainers, of distributed trainings, state dicts of any nesting. Two checkpoints are two steps."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.cli.running import run  # noqa: E402 - see above
from tests.sources.arrays import write_safetensors  # noqa: E402
from tests.sources.checkpoints import cuts_of, write_checkpoint, write_shards  # noqa: E402
from tests.sources.test_tensor_files import BAD, ONES, held, parts, written  # noqa: E402
from tui_debugger.model import Category  # noqa: E402
from tui_debugger.sources import open_source  # noqa: E402


class TestCheckpoints:
    """What trainers save: two checkpoints are two steps."""

    def trajectory(self, root: Path, *, bad: int = -1) -> Path:
        for step in (1, 2, 3):
            folder = root / f"checkpoint-{step}"
            folder.mkdir(parents=True)
            weight = BAD if step == bad else np.array([1.0, step])
            write_safetensors(folder / "model-00001-of-00002.safetensors", {"z.weight": weight})
            write_safetensors(folder / "model-00002-of-00002.safetensors", {"a.norm.gamma": ONES * step})
            names = {"z.weight": "model-00001-of-00002.safetensors", "a.norm.gamma": "model-00002-of-00002.safetensors"}
            (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
            state = {0: {"exp_avg": torch.ones(2) * step, "step": torch.tensor(float(step))}}
            torch.save({"state": state, "param_groups": [{"lr": 0.1}]}, folder / "optimizer.pt")
            torch.save({"python": [1, 2], "numpy": np.random.RandomState(0).get_state()}, folder / "rng_state.pth")
            torch.save(object, folder / "training_args.bin")
            torch.save({"last_epoch": step}, folder / "scheduler.pt")
            (folder / "trainer_state.json").write_text('{"global_step": 3, "loss": NaN}')
        return root

    def test_a_trajectory(self, tmp_path: Path) -> None:
        source = open_source(self.trajectory(tmp_path))
        names = ["a.norm.gamma", "optimizer.state.0.exp_avg", "optimizer.state.0.step", "z.weight"]
        assert held(source) == {(0, step): [f"{name}:out:0" for name in names] for step in (1, 2, 3)}
        assert parts(source) == {}
        nodes = source.nodes(0)
        assert {nodes.names[row]: Category(int(nodes.category[row])) for row in range(len(nodes))} == {
            "z.weight": Category.WEIGHT,
            "a.norm.gamma": Category.NORM,
            "optimizer.state.0.exp_avg": Category.OPTIMIZER_STATE,
            "optimizer.state.0.step": Category.OPTIMIZER_STATE,
        }

    def test_the_order_is_that_of_the_model(self, tmp_path: Path) -> None:
        source = open_source(self.trajectory(tmp_path))
        table, nodes = source.tensors(0, 1), source.nodes(0)
        assert [nodes.names[node] for node in table.node.tolist()][:2] == ["z.weight", "a.norm.gamma"]

    def test_weights_that_go_bad(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        answer = run(capsys, "check", self.trajectory(tmp_path / "good"), "--no-cache")
        assert answer.code == 0
        answer = run(capsys, "check", self.trajectory(tmp_path / "bad", bad=2), "--no-cache")
        assert answer.code == 1
        assert re.search(r"2 +TO +NaN 1 of 2 .*z\.weight:out:0\n", answer.out)
        assert "FINDINGS: NaN in 1 tensor at step 2" in answer.out

    def test_a_file_of_the_model_that_is_missing(self, tmp_path: Path) -> None:
        root = self.trajectory(tmp_path)
        (root / "checkpoint-2/model-00002-of-00002.safetensors").unlink()
        assert parts(open_source(root)) == {
            "checkpoint-2/model-00002-of-00002.safetensors": "a file of the model that is missing"
        }

    def test_an_index_that_cannot_be_read(self, tmp_path: Path) -> None:
        root = self.trajectory(tmp_path)
        (root / "checkpoint-2/model.safetensors.index.json").write_text("{")
        assert list(parts(open_source(root))) == ["checkpoint-2/model.safetensors.index.json"]

    def test_nested_state_dicts_are_scopes(self, tmp_path: Path) -> None:
        ones = torch.ones(2)
        (tmp_path / "iter_0000003/mp_rank_00").mkdir(parents=True)
        path = tmp_path / "iter_0000003/mp_rank_00/model_optim_rng.pt"
        torch.save({"model": {"fc": {"weight": ones}}, "grads": [ones], "iteration": 3}, path)
        assert held(open_source(tmp_path)) == {
            (0, 3): ["model_optim_rng.model.fc.weight:out:0", "model_optim_rng/grads/0:out:0"]
        }

    @pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "pytorch_model-00001-of-00001.bin", "ckpt.pth"])
    def test_the_name_of_a_model_is_no_part_of_its_tensors(self, tmp_path: Path, name: str) -> None:
        torch.save({"fc.weight": torch.ones(2)}, tmp_path / name)
        assert held(open_source(tmp_path)) == {(0, 0): ["fc.weight:out:0"]}

    def test_files_without_tensors_say_nothing(self, tmp_path: Path) -> None:
        written(tmp_path, "step_0/a.npy")
        torch.save({"lr": 0.1}, tmp_path / "step_0/settings.pt")
        source = open_source(tmp_path)
        assert held(source) == {(0, 0): ["a:out:0"]}
        assert parts(source) == {}

    def test_what_is_not_known_in_one_file_is_said_and_the_others_are_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = self.trajectory(tmp_path)
        made = type("Made", (), {"__reduce__": lambda _: (os.getcwd, ())})()
        torch.save({"w": torch.ones(1), "f": made}, root / "checkpoint-2/extra.pt")
        answer = run(capsys, "check", root, "--no-cache")
        assert answer.code == 2
        assert "extra/f" in answer.out
        assert "was made by posix.getcwd, which is not known" in answer.out

    def test_a_model_that_was_saved_whole(self, tmp_path: Path) -> None:
        torch.save(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), tmp_path / "model.pt")
        source = open_source(tmp_path)
        assert held(source) == {(0, 0): ["0.bias:out:0", "0.weight:out:0"]}
        assert parts(source) == {}

    def test_checkpoints_of_lightning(self, tmp_path: Path) -> None:
        for epoch, step in ((0, 10), (1, 20)):
            what = {
                "state_dict": {"model.fc.weight": torch.ones(2)},
                "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}],
                "callbacks": {"ModelCheckpoint": {"best_model_path": "x"}},
            }
            torch.save(what, tmp_path / f"epoch={epoch}-step={step}.ckpt")
        source = open_source(tmp_path)
        names = ["optimizer_states.0.state.0.exp_avg:out:0", "state_dict.model.fc.weight:out:0"]
        assert {pair: sorted(found) for pair, found in held(source).items()} == {(0, 10): names, (0, 20): names}
        nodes = source.nodes(0)
        assert {nodes.names[row].rpartition(".")[2]: Category(int(nodes.category[row])) for row in range(2)} == {
            "weight": Category.WEIGHT,
            "exp_avg": Category.OPTIMIZER_STATE,
        }
        assert parts(source) == {}
        torch.save(what, tmp_path / "last.ckpt")  # nothing tells of which step it is
        source = open_source(tmp_path)
        assert source.steps(0) == [10, 20, 21]
        assert parts(source) == {}
        assert "final: what lies outside of the steps is shown as step 21: last.ckpt" in source.info.notices

    @pytest.mark.parametrize("steps", [True, False])
    def test_distributed_checkpoints(self, tmp_path: Path, steps: bool) -> None:
        values = {"model.fc.weight": np.ones((4, 6)), "optim.state.fc.weight.exp_avg": np.ones(6)}
        cuts = {"model.fc.weight": cuts_of((4, 6), [[2], [3]]), "optim.state.fc.weight.exp_avg": cuts_of((6,), [[1]])}
        for step in (2, 3):
            write_checkpoint(tmp_path / f"step-{step}", values, cuts)
        source = open_source(tmp_path if steps else tmp_path / "step-2")
        names = ["model.fc.weight:out:0", "optim.state.fc.weight.exp_avg:out:0"]
        assert held(source) == {(0, 2): names, (0, 3): names}
        nodes = source.nodes(0)
        kinds = {nodes.names[row]: Category(int(nodes.category[row])) for row in range(len(nodes))}
        assert list(kinds.values()) == [Category.WEIGHT, Category.OPTIMIZER_STATE]
        shutil.copytree(tmp_path / "step-2", tmp_path / "alone/net")
        assert held(open_source(tmp_path / "alone/net")) == {(0, 0): names}
        assert parts(open_source(tmp_path / "alone/net")) == {}

    def test_shards_are_one_tensor_and_the_whole_beside_them_is_enough(self, tmp_path: Path) -> None:
        values = np.arange(24.0).reshape(4, 6)
        write_shards(tmp_path / "step_1", values, cuts_of((4, 6), [[2], [3]]))
        assert held(open_source(tmp_path)) == {(0, 1): ["w:out:0"]}
        (tmp_path / "step_2").mkdir()
        write_safetensors(tmp_path / "step_2/model-00001-of-00001.safetensors", {"w": values})
        names = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
        (tmp_path / "step_2/model.safetensors.index.json").write_text(json.dumps(names))
        write_shards(tmp_path / "step_2/sharded", values, cuts_of((4, 6), [[2], [3]]))
        source = open_source(tmp_path)
        assert held(source) == {(0, 1): ["w:out:0"], (0, 2): ["w:out:0"]}
        assert parts(source) == {}
        assert source.tensors(0, 1).spec(0).format == "shards"
        assert source.tensors(0, 2).spec(0).format == "safetensors"
