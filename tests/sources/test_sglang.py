"""Dumps that SGLang's dumper and its option for passes wrote: values, names, rounds, gradients, origins, damage."""

from __future__ import annotations

import json
import math
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import thorough
from tests.cli.running import run
from tests.linked import linked, own
from tests.opened_files import opened_tensor_files
from tests.sources.conformance import SourceConformance, asked
from tests.stats.test_torch_file import damaged
from tests.tui.driver import opened
from tui_debugger.errors import NotADumpError, UnreadableTensorError
from tui_debugger.graph.categories import weight_gradients
from tui_debugger.model import Category, Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.sglang.layout import is_tagged, read_tags
from tui_debugger.sources.torch_dumps import KeywordSlots, modules_around
from tui_debugger.stats.npy import open_array

DUMP = "sglang-megatron"
"""The archive of the dumps; beside each is what torch says of some of its tensors."""
SEED = 20260101
Array = npt.NDArray[Any]


def expected(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """What torch says of tensors of a dump, by the name that it wrote them under."""
    found: dict[str, dict[str, Any]] = json.loads((root / f"{name}.json").read_text())["expected"]["stats"]
    return found


def values(  # noqa: PLR0917 - a tensor's place
    source: Source, rank: int, step: int, node: str, side: Side = Side.OUTPUT, slot: int = 0, number: int = 0
) -> Array:
    """The values of one tensor."""
    table = source.tensors(rank, step)
    index = table.find(source.nodes(rank).find(node), side, slot, number)
    assert index >= 0, node
    return open_array(table.spec(index))


def is_as_torch_says(array: Array, said: dict[str, Any]) -> bool:
    """Tells whether shape, type, counts and sums of finite values are those that torch found."""
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    counts = (int(np.isnan(wide).sum()), int((wide == np.inf).sum()), int((wide == -np.inf).sum()))
    same = (
        list(array.shape) == said["shape"]
        and array.dtype.name == said["dtype"]
        and counts == (said["nan"], said["posinf"], said["neginf"])
        and int((wide == 0).sum()) == said["zero"]
    )
    if same and len(finite):
        found = (finite.min(), finite.max(), finite.sum(), math.sqrt((finite**2).sum()))
        want = (said["finite_min"], said["finite_max"], said["finite_sum_f64"], said["finite_l2_f64"])
        same = found == pytest.approx(want, rel=1e-12)
    return same


def place_of(name: str) -> tuple[str, Side]:
    """The node and the side that the dumper's name of a tensor stands for, in a dump of these samples."""
    is_gradient = name.startswith("grad__")
    name = name.removeprefix("grad__")
    if name.startswith("param__") or is_gradient:
        plain = name.removeprefix("param__").removeprefix("non_intrusive__")
        return ("Gradients/" + plain.replace(".", "/") if is_gradient else plain), Side.OUTPUT
    if not name.startswith("non_intrusive__"):
        return name, Side.OUTPUT
    name = name.removeprefix("non_intrusive__")
    if name.endswith(".output"):
        return name.removesuffix(".output"), Side.OUTPUT
    module = name.removesuffix(".inputs.0")
    return (f"{module}.inputs", Side.OUTPUT) if module.startswith("layers.") else (module, Side.INPUT)


@pytest.fixture
def root(dumps: Callable[[str], Path]) -> Path:
    return dumps(DUMP)


class TestConformance(SourceConformance):
    @pytest.fixture(params=["sglang-2rank", "sglang-hooks", "sglang-tp", "sglang-pass"])
    def source(self, root: Path, request: pytest.FixtureRequest) -> Iterator[Source]:
        source = open_source(root / request.param)
        yield source
        source.close()


class TestNames:
    @pytest.mark.parametrize(
        ("name", "tags"),
        [
            ("step=3___rank=0___name=loss", {"step": "3", "rank": "0", "name": "loss"}),
            ("step=3___name=a=b___k=", {"step": "3", "name": "a=b", "k": ""}),
            ("step=3___name=a___b___k=v", {"step": "3", "name": "a___b", "k": "v"}),
            ("loss", {}),
        ],
    )
    def test_tags_end_at_separators_and_their_names_at_the_first_equals_sign(
        self, name: str, tags: dict[str, str]
    ) -> None:
        assert read_tags(name) == tags

    @given(st.dictionaries(st.text("abc_", min_size=1).filter(lambda t: "__" not in t), st.text("xyz=.", min_size=1)))
    def test_tags_are_read_as_they_are_written(self, tags: dict[str, str]) -> None:
        tags = {name.strip("_") or "a": value for name, value in tags.items()}
        assert read_tags("___".join(f"{name}={value}" for name, value in tags.items())) == tags

    @pytest.mark.parametrize(
        ("name", "known"),
        [
            ("step=0___rank=0___dump_index=1___name=loss.pt", True),
            ("forward_pass_id=0___rank=0___name=loss___dump_index=1.pt", True),
            ("curr_step=7___rank=0___name=loss.pt", True),
            ("step=0___rank=0.pt", False),
            ("step=0___name=loss.npy", False),
            ("step_3.pt", False),
            ("model.pt", False),
        ],
    )
    def test_which_files_are_the_dumpers(self, name: str, known: bool) -> None:
        assert is_tagged(name) == known

    def test_what_has_no_number_stands_behind_what_has(self) -> None:
        slots = KeywordSlots()
        labels = ["0", "1", "mask", "0.x", "2", "mask", "99999"]
        assert [slots.of("m", Side.INPUT, label) for label in labels] == [0, 1, 2, 3, 4, 2, 5]
        assert slots.of("m", Side.OUTPUT, "mask") == slots.of("n", Side.INPUT, "mask") == 0

    def test_modules_around_others(self) -> None:
        assert modules_around(["a.b.c", "d"]) == {"", "a", "a.b"}


class TestValues:
    def test_every_value_of_two_ranks_and_two_micro_batches(self, root: Path) -> None:
        source = open_source(root / "sglang-2rank")
        for name, said in expected(root, "sglang-2rank").items():
            step, rank, micro_batch, tensor = name.split()
            number = 0 if micro_batch.endswith("None") else int(micro_batch.partition("=")[2]) + 1
            at = int(rank.partition("=")[2]), int(step.partition("=")[2])
            node, side = place_of(tensor)
            assert is_as_torch_says(values(source, *at, node, side, number=number), said), name

    def test_every_value_of_hooks_parameters_and_gradients(self, root: Path) -> None:
        source = open_source(root / "sglang-hooks")
        for name, said in expected(root, "sglang-hooks").items():
            node, side = place_of(name.split()[2])
            assert is_as_torch_says(values(source, 0, 3, node, side), said), name

    def test_every_value_of_tensor_parallel_ranks_and_its_dimensions(self, root: Path) -> None:
        source = open_source(root / "sglang-tp")
        for name, said in expected(root, "sglang-tp").items():
            rank = int(name.split()[2].partition("=")[2])
            tensor, dims = name.split()[3], name.partition("dims='")[2].rstrip("'")
            base = "Gradients/" if tensor.startswith("grad__") else ""
            layers = ("", "layer_id=0/", "layer_id=1/")
            nodes = [f"{base}{layer}{tensor.removeprefix('grad__')}" for layer in layers]
            table = source.nodes(rank)
            nodes = [node for node in nodes if table.find(node) >= 0]
            assert any(is_as_torch_says(values(source, rank, 1, node), said) for node in nodes), name
            assert {table.placements[table.find(node)] for node in nodes} == {f"dims {dims}; tp {rank} of 2"}

    def test_every_value_of_passes(self, root: Path) -> None:
        source = open_source(root / "sglang-pass")
        for name, said in expected(root, "sglang-pass").items():
            _, file, module = name.split()
            step = int(file.removeprefix("Pass")) - (module in {"model", "lm_head"})
            assert is_as_torch_says(values(source, 0, step, module), said), name

    def test_shown_by_command(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        said = expected(root, "sglang-2rank")["step=3 rank=0 microbatch=1 non_intrusive__energy.output"]
        shown = run(capsys, "show", root / "sglang-2rank", "energy#2", "--rank", 0, "--step", 3, "--stat", "--json")
        stats = next(each for each in shown.json["tensors"] if each["role"] == "out")["stats"]
        assert shown.code == 0
        assert (stats["neg_inf"], stats["nan"], stats["max"]) == (said["neginf"], said["nan"], said["finite_max"])


class TestListing:
    def test_hardly_any_file_is_opened_to_list_a_step_again(self, root: Path) -> None:
        source = open_source(root / "sglang-2rank")
        source.tensors(0, 2)
        with opened_tensor_files() as opened:
            table = source.tensors(0, 3)
        names = {source.nodes(0).names[row] for row in table.node}
        assert len(opened) < len(names) < len(table)

    def test_what_is_no_tensor_is_told_and_not_judged(self, root: Path) -> None:
        source = open_source(root / "sglang-hooks")
        assert source.nodes(0).find("rids") == -1 or not len(source.tensors(0, 3).of_node(source.nodes(0).find("rids")))
        assert "no tensors, and not judged: rids (4 of text)" in source.info.notices
        assert not source.unreadable()

    def test_a_name_that_held_no_tensor_first_is_read_where_it_holds_one(self, tmp_path: Path) -> None:
        for step, value in enumerate((None, torch.ones(2), [torch.zeros(1), "text", torch.ones(3)])):
            name = f"step={step}___rank=0___dump_index={step}___name=mask___recompute_status=disabled.pt"
            torch.save({"value": value, "meta": {}}, tmp_path / name)
        source = open_source(tmp_path)
        assert [len(source.tensors(0, step)) for step in source.steps(0)] == [0, 1, 2]
        assert values(source, 0, 1, "mask").tolist() == [1, 1]
        assert values(source, 0, 2, "mask", slot=1).tolist() == [1, 1, 1]

    def test_older_generations(self, tmp_path: Path) -> None:
        torch.save(torch.ones(2), tmp_path / "forward_pass_id=4___rank=1___name=x___dump_index=1___layer_id=2.pt")
        source = open_source(tmp_path)
        assert (list(source.ranks()), list(source.steps(1))) == ([1], [4])
        assert values(source, 1, 4, "layer_id=2/x").tolist() == [1, 1]

    def test_modules_gradients_and_weights_are_told_apart_and_in_order(self, root: Path) -> None:
        nodes = open_source(root / "sglang-hooks").nodes(0)
        categories = {name: nodes.category_of(nodes.find(name)) for name in nodes.names}
        assert categories["layers.0.mlp.linear_fc1.weight"] is Category.WEIGHT
        assert categories["Gradients/layers/0/mlp/linear_fc1/weight"] is Category.GRADIENT
        assert categories["Gradients/layers/0/mlp/linear_fc1/output"] is Category.GRADIENT
        ordered = sorted(nodes.names, key=lambda name: int(nodes.order[nodes.find(name)]))
        wanted = ["input_ids", "embedding", "energy", "layers.0.inputs", "layers.0.mlp.linear_fc1", "layers.0.mlp"]
        wanted += ["layers.0", "layers.1", "(root)", "loss", "Gradients/loss", "embedding.weight"]
        assert [name for name in ordered if name in wanted] == wanted

    def test_gradients_of_weights_are_told_from_others(self, root: Path) -> None:
        for name in ("sglang-hooks", "megatron-tp2/good"):
            nodes = open_source(root / name).nodes(0)
            mask = weight_gradients(nodes)
            found = {node for node, mine in zip(nodes.names, mask.tolist(), strict=True) if mine}
            assert "Gradients/embedding/weight" in found
            assert all(node.startswith("Gradients/") and node.endswith("/weight") for node in found)

    def test_gradients_without_tags_belong_to_what_was_recorded_last(self, root: Path) -> None:
        source = open_source(root / "sglang-tp")
        folder = root / "sglang-tp" / "tp2"
        for name in ("attn_out", "qkv"):
            paths = sorted(folder.glob(f"step=1___rank=0___*___name=grad__{name}.pt"), key=_index)
            for layer, path in zip((1, 0), paths, strict=True):
                table = source.tensors(0, 1)
                row = table.find(source.nodes(0).find(f"Gradients/layer_id={layer}/{name}"), Side.OUTPUT, 0)
                assert Path(table.spec(row).path) == path
        assert any("gradients carry no layer_id" in notice for notice in source.info.notices)

    def test_what_runs_again_for_the_backward_pass_is_apart(self, tmp_path: Path) -> None:
        for index, status in enumerate(("original", "recompute")):
            name = f"step=0___rank=0___dump_index={index}___name=x___recompute_status={status}___layer_id=1.pt"
            torch.save({"value": torch.full((1,), index), "meta": {}}, tmp_path / name)
        torch.save({"value": torch.ones(1)}, tmp_path / "step=0___rank=0___dump_index=2___name=grad__x.pt")
        source = open_source(tmp_path)
        assert source.nodes(0).names == ["layer_id=1/x", "recomputed/layer_id=1/x", "Gradients/layer_id=1/x"]

    def test_ranks_say_how_they_share_the_work(self, root: Path) -> None:
        source = open_source(root / "sglang-2rank")
        for rank in source.ranks():
            source.nodes(rank)
        assert "rank 0 is dp 0 of 2; rank 1 is dp 1 of 2" in source.info.notices

    def test_new_files_and_steps_are_found(self, root: Path, tmp_path: Path) -> None:
        copy = linked(root, tmp_path / "all") / "sglang-hooks"
        (folder,) = {path.parent for path in copy.rglob("*.pt")}
        source = open_source(copy)
        before = len(source.tensors(0, 3))
        source.refresh()
        for step in (3, 9):
            torch.save(
                {"value": torch.ones(2), "meta": {}}, folder / f"step={step}___rank=0___dump_index=9999___name=new.pt"
            )
        changes = source.refresh()
        assert (changes.grown_steps, changes.new_steps) == (((0, 3),), ((0, 9),))
        assert len(source.tensors(0, 3)) == before + 1
        assert values(source, 0, 9, "new").tolist() == [1, 1]

    def test_weights_that_are_recorded_late_have_watchpoints(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The first steps hold none: a weight that never changes is found all the same."""
        for step in range(6):
            name = f"step={step}___rank=0___dump_index=1___name=x___recompute_status=disabled.pt"
            torch.save({"value": torch.full((4,), float(step + 1)), "meta": {}}, tmp_path / name)
            if step >= 3:
                name = f"step={step}___rank=0___dump_index=2___name=param__fc.weight___recompute_status=disabled.pt"
                torch.save({"value": torch.ones(4), "meta": {}}, tmp_path / name)
        answer = run(capsys, "check", tmp_path, "--json")
        assert answer.code == 1
        found = {(hit["node"], hit["step"]) for hit in answer.json["hits"] if hit["verdict"] == "finding"}
        assert found == {("fc.weight", 4), ("fc.weight", 5)}

    def test_files_that_say_no_step_are_told_if_they_hold_tensors(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        torch.save({"value": torch.ones(2)}, tmp_path / "step=0___rank=0___name=x.pt")
        torch.save({"lr": 0.1}, tmp_path / "model.pt")
        assert run(capsys, "check", tmp_path, "--watch", "TO").code == 0
        torch.save(torch.ones(2), tmp_path / "model.pt")
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert (answer.code, [part["where"] for part in answer.json["unreadable"]]) == (2, ["model.pt"])

    def test_several_dumps_are_named(self, root: Path, tmp_path: Path) -> None:
        for name in ("one", "two"):
            shutil.copytree(root / "sglang-pass" / "bad", tmp_path / name)
        with pytest.raises(NotADumpError, match="Several dumps here: one, two"):
            open_source(tmp_path)

    def test_the_path_may_lead_inside(self, root: Path) -> None:
        (folder,) = (root / "sglang-pass" / "bad").iterdir()
        assert asked(open_source(folder)).keys() == {0}
        assert asked(open_source(folder / "Pass00003.pt")) == {0: [3]}
        file = next((root / "sglang-2rank").rglob("step=3___rank=1___*.pt"))
        assert asked(open_source(file)) == {1: [3]}


def _index(path: Path) -> int:
    return int(read_tags(path.stem)["dump_index"])


class TestOrigins:
    def test_the_module_that_made_it_is_found_in_its_micro_batch(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = run(capsys, "origin", root / "sglang-2rank", "--json")
        (origin,) = found.json["origins"]
        (key,) = origin["tensors"]
        assert (found.code, key["rank"], key["step"], key["node"], key["round"]) == (1, 0, 3, "energy", 2)
        assert run(capsys, "check", root / "sglang-2rank").code == 1

    def test_clean_activations_with_bad_gradients_of_another_rank_are_no_origin(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Gradients are reduced over ranks: those of rank 1 are NaN because of rank 0."""
        source = open_source(root / "sglang-2rank")
        table = source.tensors(1, 3)
        nodes = source.nodes(1)
        bad = [row for row in range(len(table)) if not np.isfinite(open_array(table.spec(row)).astype(float)).all()]
        names = {nodes.names[int(table.node[row])] for row in bad}
        assert names
        assert all(name.startswith("Gradients/") and name.endswith(("weight", "bias")) for name in names)
        alone = run(capsys, "origin", root / "sglang-2rank", "--rank", 1)
        assert alone.code == 1
        assert "first known bad: rank 1, step 3, model  (WeightGradient)" in alone.out
        both = run(capsys, "origin", root / "sglang-2rank")
        assert "rank 0 was first: step 3#2, model, energy" in both.out
        assert "rank 1: step 3, model, Gradients/" in both.out

    def test_the_embedding_stays_finite_where_everything_else_is_bad(self, root: Path) -> None:
        """Its gradient of the padding is dropped."""
        for rank, name in ((0, "sglang-2rank"), (1, "sglang-2rank"), (0, "sglang-hooks")):
            source = open_source(root / name)
            source.tensors(rank, 3)
            finite = {
                node: bool(np.isfinite(values(source, rank, 3, node).astype(float)).all())
                for node in source.nodes(rank).names
                if source.nodes(rank).op_type(source.nodes(rank).find(node)) in {"WeightGradient", "BiasGradient"}
            }
            assert [node for node, is_finite in finite.items() if is_finite] == ["Gradients/embedding/weight"]
            assert len(finite) > 20

    def test_a_module_with_weights_that_are_not_there_is_no_origin(self, tmp_path: Path, root: Path) -> None:
        copy = linked(root, tmp_path / "all") / "sglang-hooks"
        for path in copy.rglob("*param__*"):
            path.unlink()
        source = open_source(copy)
        energy = source.nodes(0).find("energy")
        known = open_source(root / "sglang-hooks")
        assert source.nodes(0).flags[energy] != known.nodes(0).flags[energy]

    def test_hooks_and_passes(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        hooks = run(capsys, "origin", root / "sglang-hooks", "--json")
        assert (hooks.code, [each["node"] for each in hooks.json["origins"]]) == (1, ["energy"])
        passes = run(capsys, "origin", root / "sglang-pass")
        assert passes.code == 1
        assert "bad tensors at step 3, but no origin; first known bad: model.energy" in passes.out
        assert run(capsys, "check", root / "sglang-pass", "--step", "0-2").code == 0
        assert run(capsys, "check", root / "sglang-tp").code == 0


class TestChanges:
    def test_a_parameter_is_compared_with_the_last_one_that_was_recorded(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Parameters are recorded at some steps only: of the first of these nothing is known to have been before."""
        for step in range(5):
            torch.save({"value": torch.ones(2)}, tmp_path / f"step={step}___rank=0___dump_index={step}___name=x.pt")
        for step, value in ((1, 1.0), (3, 1.0), (4, 2.0)):
            name = f"step={step}___rank=0___dump_index={9 + step}___name=param__fc.weight.pt"
            torch.save({"value": torch.full((2,), value)}, tmp_path / name)
        source = open_source(tmp_path)
        root = source.nodes(0).graph_of(source.nodes(0).find("x")).root_id
        source.tensors(0, 1)
        nodes = source.nodes(0)
        own = nodes.graph_of(nodes.find("fc.weight")).root_id
        assert [source.previous_run(0, own, step) for step in (1, 3, 4)] == [None, (1, 0), (3, 0)]
        assert source.previous_run(0, root, 4) == (3, 0)
        answer = run(capsys, "check", tmp_path, "--watch", "WNC @ category=weight", "--json")
        (watchpoint,) = answer.json["watchpoints"]
        assert [watchpoint[name] for name in ("findings", "not_comparable", "cannot_judge")] == [1, 1, 0]
        assert [hit["step"] for hit in answer.json["hits"]] == [1, 3]  # the first one says: not comparable


class TestPasses:
    def test_late_outputs_are_of_the_pass_before(self, root: Path) -> None:
        """The logits of pass 3 are bad, and stand in the file of pass 4."""
        source = open_source(root / "sglang-pass")
        table = source.tensors(0, 3)
        row = table.find(source.nodes(0).find("lm_head"), Side.OUTPUT, 0)
        assert Path(table.spec(row).path).name == "Pass00004.pt"
        assert np.isnan(values(source, 0, 3, "lm_head").astype(float)).any()
        assert np.isfinite(values(source, 0, 2, "lm_head").astype(float)).all()
        assert [len(source.tensors(0, step)) for step in range(5)] == [21, 21, 21, 21, 18]

    def test_the_last_pass_says_what_it_lacks(self, root: Path) -> None:
        source = open_source(root / "sglang-pass")
        source.tensors(0, 4)
        told = "the last pass of rank 0 lacks model, lm_head, logits_processor: their outputs are written with the next"
        assert any(notice.startswith(told) for notice in source.info.notices)
        assert not source.unreadable()

    @pytest.mark.parametrize(("gone", "told"), [(2, {"Pass00001.pt", "Pass00003.pt"}), (0, {"Pass00001.pt"})])
    def test_a_pass_that_is_missing_takes_outputs_with_it(
        self, root: Path, tmp_path: Path, gone: int, told: set[str]
    ) -> None:
        copy = linked(root, tmp_path / "all") / "sglang-pass"
        next(copy.rglob(f"Pass{gone:05}.pt")).unlink()
        source = open_source(copy)
        for step in source.steps(0):
            source.tensors(0, step)
        assert {Path(part.where).name for part in source.unreadable()} == told

    def test_another_process_of_the_same_rank_is_told(self, root: Path, tmp_path: Path) -> None:
        (folder,) = (root / "sglang-pass" / "bad").iterdir()
        for process in (1, 2):
            shutil.copytree(folder, tmp_path / f"TP0_PP0_Rank0_pid{process}")
        (part,) = open_source(tmp_path).unreadable()
        assert (part.where, part.why) == ("TP0_PP0_Rank0_pid2", "another process of rank 0: open it by itself")
        inside = open_source(tmp_path / "TP0_PP0_Rank0_pid2")
        assert not inside.unreadable()
        assert "pid2" in inside.tensors(0, 0).spec(0).path

    def test_several_outputs_of_a_module_are_its_slots(self, tmp_path: Path) -> None:
        folder = tmp_path / "TP1_PP0_Rank1_pid5"
        folder.mkdir()
        torch.save({"model.layers.0.moe": [torch.zeros(1), torch.ones(1)]}, folder / "Pass00000.pt")
        source = open_source(tmp_path)
        assert values(source, 1, 0, "model.layers.0.moe", slot=1).tolist() == [1]


@pytest.mark.covering
@pytest.mark.parametrize("count", [100, thorough.later(10_000)])
@pytest.mark.parametrize("name", ["sglang-pass", "sglang-tp", "megatron-tp2/bad"])
def test_damaged_files_leave_the_others_readable(root: Path, tmp_path: Path, name: str, count: int) -> None:
    copy = linked(root, tmp_path / "all") / name
    files = sorted(path for path in copy.rglob("*") if path.suffix in {".pt", ".pth", ".jsonl"})
    if name == "sglang-tp":
        files = files[:3]
    chance = random.Random(SEED)  # noqa: S311 - only damage is made of it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole = {path: path.read_bytes() for path in files}
    unread = 0
    for number in range(count // 3):
        victim = own(files[number % len(files)])
        victim.write_bytes(damaged(whole[victim], chance))
        source = open_source(copy)
        said = False
        for rank in source.ranks():
            for step in list(source.steps(rank))[-2:]:
                table = source.tensors(rank, step)
                for row in range(len(table)):
                    spec = table.spec(row)
                    if Path(spec.path) == victim:
                        try:
                            open_array(spec)
                        except UnreadableTensorError:
                            said = True
                assert len(table) or source.unreadable()
        unread += said or bool(source.unreadable())
        victim.write_bytes(whole[victim])
    assert count // 30 < unread <= count // 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


async def test_a_dump_opens_on_screen_with_its_origin(root: Path) -> None:
    async with opened(root / "sglang-2rank") as driver:
        await driver.until(lambda: "energy" in driver.text)
        assert driver.session.info.layout == "SGLang dumper"
