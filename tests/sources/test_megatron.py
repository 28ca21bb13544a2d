"""What Megatron-LM saves of iterations: values, names of ranks, order, notes, and where a fault is seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.running import run
from tests.linked import linked
from tests.sources.conformance import SourceConformance, asked
from tests.sources.test_sglang import DUMP, expected, is_as_torch_says, values
from tui_debugger.errors import NotADumpError
from tui_debugger.model import Category, Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source

QKV = "decoder.layers.0.self_attention.linear_qkv"


@pytest.fixture
def root(dumps: Callable[[str], Path]) -> Path:
    return dumps(DUMP) / "megatron-tp2"


def written(folder: Path, kind: str, file: str, tensors: dict[str, object], step: int = 1) -> None:
    """A file as Megatron writes it, of one chunk of the model."""
    path = folder / kind / f"iter_{step:07}" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"model_chunk0": tensors}, path)


class TestConformance(SourceConformance):
    @pytest.fixture(params=["good", "bad"])
    def source(self, root: Path, request: pytest.FixtureRequest) -> Iterator[Source]:
        source = open_source(root / request.param)
        yield source
        source.close()


class TestValues:
    def test_every_value_is_torchs(self, root: Path) -> None:
        sources = {name: open_source(root / name) for name in ("good", "bad")}
        for name, said in expected(root.parent, "megatron-tp2").items():
            which, kind, _, _, _, _, key = name.split()
            node, side, slot = key, Side.OUTPUT, 0
            if kind == "activations":
                node, _, label = key.rpartition("/")
                side = Side.INPUT if label.startswith("input") else Side.OUTPUT
                slot = int(label.lstrip("inputo"))
            else:
                node = "Gradients/" + key.replace(".", "/")
            assert is_as_torch_says(values(sources[which], 1, 3, node, side, slot), said), name

    def test_steps_ranks_and_what_is_asked(self, root: Path) -> None:
        source = open_source(root / "bad" / "dgrads" / "iter_0000003")
        assert (list(source.ranks()), list(source.steps(1)), asked(source)) == ([0, 1], [2, 3], {0: [3], 1: [3]})
        file = open_source(root / "bad" / "activations" / "iter_0000003" / "mp_rank_01.pth")
        assert asked(file) == {1: [3]}
        with pytest.raises(NotADumpError, match="Several dumps here: bad, good"):
            open_source(root)

    def test_forward_backward_and_gradients_of_weights_come_in_this_order(self, root: Path) -> None:
        nodes = open_source(root / "good").nodes(0)
        wanted = ["embedding", QKV, "output_layer", "Gradients/output_layer/output0", "Gradients/embedding/weight"]
        assert sorted(wanted, key=lambda name: int(nodes.order[nodes.find(name)])) == wanted
        assert {nodes.category_of(nodes.find(name)) for name in wanted[3:]} == {Category.GRADIENT}

    def test_lists_are_told_and_not_judged(self, root: Path) -> None:
        source = open_source(root / "good")
        source.nodes(0)
        (told,) = [notice for notice in source.info.notices if notice.startswith("no tensors, and not judged")]
        assert "decoder.layers.1.mlp.experts.linear_fc1/input1 (a list of numbers)" in told
        assert not source.unreadable()

    def test_keyword_arguments_follow_the_other_inputs(self, tmp_path: Path) -> None:
        one = torch.ones(1)
        written(
            tmp_path, "activations", "mp_rank_00.pth", {"m/input0": one, "m/input1": 3, "m/mask": one, "m/output0": one}
        )
        source = open_source(tmp_path)
        table = source.tensors(0, 1)
        places = list(zip(table.side.tolist(), table.slot.tolist(), strict=True))
        assert places == [(int(Side.INPUT), 0), (int(Side.INPUT), 2), (int(Side.OUTPUT), 0)]

    def test_chunks_of_a_model_are_told_apart(self, tmp_path: Path) -> None:
        path = tmp_path / "params" / "iter_0000001" / "mp_rank_00.pth"
        path.parent.mkdir(parents=True)
        chunks = {f"model_chunk{chunk}": {"fc.weight": torch.full((1,), chunk)} for chunk in (0, 1)}
        torch.save(chunks, path)
        source = open_source(tmp_path)
        assert [values(source, 0, 1, name).tolist() for name in ("fc.weight", "model_chunk1.fc.weight")] == [[0], [1]]

    def test_views_of_one_storage_are_each_their_own(self, root: Path) -> None:
        """Entries share storages where nothing was copied off a device."""
        path = root / "good" / "activations" / "iter_0000003" / "mp_rank_00.pth"
        saved = torch.load(path, weights_only=True)["model_chunk0"]
        source = open_source(root / "good")
        for key in (f"{QKV}/input0", f"{QKV}/output0"):
            side = Side.INPUT if key.endswith("input0") else Side.OUTPUT
            assert np.array_equal(values(source, 0, 3, QKV, side), saved[key].numpy())


class TestRanks:
    @pytest.mark.parametrize(
        ("files", "told"),
        [
            (["mp_rank_00", "mp_rank_02"], "ranks are numbers of tensor-parallel ranks"),
            (
                ["mp_rank_00_000", "mp_rank_00_003"],
                "mp_rank_00_000 is rank 0, mp_rank_00_003 is rank 1; the second number is of pipeline stages or of",
            ),
            (["mp_rank_00_000_000", "mp_rank_00_001_000"], "tensor-parallel ranks, pipeline stages and experts"),
        ],
    )
    def test_numbers_in_names_are_told_as_far_as_they_are_certain(
        self, tmp_path: Path, files: list[str], told: str
    ) -> None:
        for number, file in enumerate(files):
            written(tmp_path, "wgrads", f"{file}.pth", {"fc.weight": torch.full((1,), number)})
        source = open_source(tmp_path)
        assert any(told in notice for notice in source.info.notices)
        found = [values(source, rank, 1, "Gradients/fc/weight").tolist() for rank in source.ranks()]
        assert found == [[0], [1]]
        assert list(source.ranks()) == ([0, 2] if "mp_rank_02" in files else [0, 1])

    def test_tokens_of_experts_are_notes(self, root: Path) -> None:
        source = open_source(root / "bad")
        lines = (root / "bad" / "tokens_per_expert" / "rank1.jsonl").read_text().splitlines()
        rows = next(json.loads(line)["tpe"] for line in lines if json.loads(line)["iter"] == 3)
        told = " | ".join(" ".join(map(str, row)) for row in rows)
        assert source.notes(1).at(3) == {"tokens per expert, layer 1": told}

    @pytest.mark.parametrize("line", ["", "{", "[]", '{"iter": 1}', '{"iter": "x", "tpe": []}', '{"iter":2,"tpe":[3]}'])
    def test_lines_that_are_no_tokens_are_passed_over(self, tmp_path: Path, line: str) -> None:
        written(tmp_path, "wgrads", "mp_rank_00.pth", {"fc.weight": torch.ones(1)})
        (tmp_path / "tokens_per_expert").mkdir()
        (tmp_path / "tokens_per_expert" / "rank0.jsonl").write_text(line + "\n")
        (tmp_path / "tokens_per_expert" / "rank7.jsonl").write_text(line + "\n")
        source = open_source(tmp_path)
        assert all(not note for _, notes in source.notes(0).all() for note in notes.values())
        assert any("tokens_per_expert of rank 7" in notice for notice in source.info.notices)


class TestOrigins:
    def test_it_is_seen_first_in_the_next_linear_module(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The module between that made it was not recorded."""
        source = open_source(root / "bad")
        assert source.nodes(0).find("energy") == -1
        found = run(capsys, "origin", root / "bad")
        assert found.code == 1
        assert f"first known bad: {QKV}" in found.out
        assert np.isfinite(values(source, 0, 3, "embedding")).all()
        assert run(capsys, "check", root / "bad").code == 1
        assert run(capsys, "check", root / "good").code == 0

    def test_a_fault_in_an_earlier_micro_batch_is_in_gradients_of_weights_alone(
        self, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The last micro-batch wins: activations of a good one stand beside the gradients of all."""
        copy = linked(root.parent, tmp_path / "all") / root.name / "bad"
        for kind in ("activations", "dgrads"):
            shutil.rmtree(copy / kind / "iter_0000003")
            shutil.copytree(root / "good" / kind / "iter_0000003", copy / kind / "iter_0000003")
        found = run(capsys, "origin", copy)
        assert found.code == 1
        assert "first known bad: rank 0, step 3  (WeightGradient)" in found.out
        assert found.lines[1].strip() == "Gradients/decoder/layers/0/input_layernorm/weight"
        assert "there is only the last micro-batch of an iteration" in found.err
        assert run(capsys, "check", copy).code == 1

    def test_the_gradient_of_the_embedding_stays_finite(self, root: Path) -> None:
        source = open_source(root / "bad")
        nodes = source.nodes(1)
        gradients = [
            name for name in nodes.names if nodes.op_type(nodes.find(name)) in {"WeightGradient", "BiasGradient"}
        ]
        finite = [name for name in gradients if np.isfinite(values(source, 1, 3, name)).all()]
        assert finite == ["Gradients/embedding/weight"]

    def test_a_file_that_cannot_be_read_is_a_doubt(
        self, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        copy = linked(root.parent, tmp_path / "all") / root.name / "good"
        victim = copy / "dgrads" / "iter_0000003" / "mp_rank_01.pth"
        victim.unlink()
        victim.write_bytes(b"PK nothing")
        answer = run(capsys, "check", copy)
        assert answer.code == 2
        assert "dgrads/iter_0000003/mp_rank_01.pth" in answer.out + answer.err
