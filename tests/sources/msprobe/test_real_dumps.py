"""Dumps that msprobe wrote: their values, statistics, nodes, edges and origins are those that are known of them."""

from __future__ import annotations

import json
import lzma
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import run
from tests.conftest import DATA
from tests.linked import linked, own
from tests.sources.conformance import asked
from tests.tui.driver import opened
from tui_debugger.graph.categories import weight_gradients
from tui_debugger.graph.table import NodeFlag, NodeTable, real_inputs
from tui_debugger.model import Category, Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.sources.registry import limits
from tui_debugger.stats.npy import open_array

Dumps = Callable[[str], Path]


def expected(name: str) -> dict[str, Any]:
    """What is known of a sample, computed by torch."""
    with lzma.open(DATA / f"{name}.expected.json.xz", "rt") as file:
        found: dict[str, Any] = json.load(file)["expected"]
    return found


def inputs_of(nodes: NodeTable, name: str) -> list[str]:
    """``node:slot`` of what a node is made of."""
    row = nodes.find(name)
    assert row >= 0, name
    return [f"{nodes.names[made]}:{slot}" if made >= 0 else "?" for made, slot in real_inputs(nodes, row)]


def origins_of(answer: dict[str, Any]) -> list[tuple[int, int, str]]:
    return [(each["rank"], each["step"], each["node"]) for each in answer["origins"]]


class TestValues:
    @pytest.mark.parametrize(
        ("name", "step"), [("msprobe-L0-slice", 3), ("msprobe-debug-save", 3), ("msprobe-mindspore", 3)]
    )
    def test_every_value_is_that_of_torch(self, dumps: Dumps, name: str, step: int) -> None:
        known = expected(name)
        with closing(open_source(dumps(name))) as source:
            assert list(source.steps(0)) == [int(each) for each in known["steps"]]
            table = source.tensors(0, step)
            found = {Path(table.spec(at).path).name: at for at in range(len(table))}
            for file, stats in known["stats"].items():
                values = np.asarray(open_array(table.spec(found[file]))).astype(np.float64)
                assert list(values.shape) == stats["shape"], file
                assert int(np.isnan(values).sum()) == stats["nan"], file
                assert int((values == math.inf).sum()) == stats["posinf"], file
                assert int((values == -math.inf).sum()) == stats["neginf"], file
                assert int((values == 0).sum()) == stats["zero"], file
                finite = values[np.isfinite(values)]
                if "finite_min" in stats:
                    assert finite.min() == stats["finite_min"], file
                    assert finite.max() == stats["finite_max"], file
                    assert math.isclose(np.sqrt((finite**2).sum()), stats["finite_l2_f64"], rel_tol=1e-12), file
                first = values.ravel()[:3]
                assert np.array_equal(first, np.array(stats["first"], np.float64), equal_nan=True), file

    def test_the_element_types_are_those_of_the_files(self, dumps: Dumps) -> None:
        with closing(open_source(dumps("msprobe-L0-slice"))) as source:
            table = source.tensors(0, 2)
            for at in range(0, len(table), 7):
                dtype, shape = table.recorded_meta(at) or ("", ())
                values = open_array(table.spec(at))
                assert (values.dtype.name, values.shape) == (dtype, shape)


@pytest.fixture(scope="module")
def source(dumps: Dumps) -> Iterator[Source]:
    """Statistics of two ranks with two micro-batches in a step."""
    with closing(open_source(dumps("msprobe-mix-2rank-mb-md5"))) as source:
        yield source


class TestStatistics:
    def test_statistics_are_those_of_dump_json(self, source: Source) -> None:
        known = expected("msprobe-mix-2rank-mb-md5")["records"]
        record = known["Torch.log.1.forward"]["output"][0]
        table, nodes = source.tensors(0, 3), source.nodes(0)
        at = table.find(nodes.find("energy/Torch.log"), Side.OUTPUT, 0, 2)
        stats = table.recorded(at)
        assert stats is not None
        assert stats.maximum == record["Max"]
        assert (stats.minimum, stats.mean, stats.norm) == (None, None, None)
        assert (stats.neg_inf, stats.pos_inf, stats.nan) == (1, 0, 0)
        assert table.recorded_meta(at) == ("float32", (2,))
        before = table.recorded(table.find(nodes.find("energy/Torch.log"), Side.OUTPUT, 0, 1))
        first = known["Torch.log.0.forward"]["output"][0]
        assert before is not None
        assert (before.maximum, before.minimum, before.mean) == (first["Max"], first["Min"], first["Mean"])
        assert before.norm is not None
        assert math.isclose(before.norm, first["Norm"], rel_tol=1e-12)

    def test_one_nan_is_a_finding_although_it_hides_all_numbers(self, source: Source) -> None:
        table, nodes = source.tensors(0, 3), source.nodes(0)
        norm = nodes.find("layers/0/input_layernorm/Functional.layer_norm")
        stats = table.recorded(table.find(norm, Side.OUTPUT, 0, 2))
        assert stats is not None
        assert stats.nan >= 1
        assert (stats.minimum, stats.maximum, stats.mean, stats.norm) == (None, None, None, None)

    def test_there_are_no_values(self, source: Source) -> None:
        for rank in source.ranks():
            for step in source.steps(rank):
                assert np.all(source.tensors(rank, step).flags & TensorFlag.STAT_ONLY)

    def test_what_needs_values_is_not_judged_rather_than_clean(
        self, dumps: Dumps, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = dumps("msprobe-mix-2rank-mb-md5")
        changed = run(capsys, "check", path, "--step", "1,2", "--watch", "WCL abs_mean_update_ratio_gt=1")
        assert changed.code == 2
        assert "needs tensor values" in changed.out
        zeros = run(capsys, "check", path, "--step", "0", "--rank", "0", "--watch", "TZ zero_percentage_ge=90")
        assert zeros.code == 2
        assert "could not be compared: needs counts" in zeros.out
        all_zero = run(capsys, "check", path, "--step", "0", "--watch", "TZ zero_percentage_ge=100")
        assert all_zero.code == 0  # an extreme that is not 0 answers it
        assert run(capsys, "check", path, "--step", "0", "--watch", "TO").code == 0
        assert run(capsys, "check", path, "--step", "0", "--watch", "TL max_gt=1000").code == 0
        assert run(capsys, "check", path, "--step", "0", "--watch", "TL max_gt=100").code == 1

    def test_a_mask_is_no_origin_and_no_finding(self, dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
        path = dumps("msprobe-mix-2rank-mb-md5")
        answer = run(capsys, "check", path, "--step", "0", "--watch", "TO", "--json")
        assert answer.code == 0
        assert "by design" in run(capsys, "check", path, "--step", "0", "--watch", "TO").out

    def test_digests_say_nothing_of_values(self, dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
        answer = run(capsys, "check", dumps("msprobe-xor"), "--step", "2")
        assert answer.code == 2
        assert "cannot judge" in answer.out
        assert "only digests were recorded" in answer.err

    def test_of_a_scalar_the_number_stands_for_the_digest(
        self, dumps: Dumps, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Task xor writes it so: the loss of step 3 is NaN."""
        answer = run(capsys, "check", dumps("msprobe-xor"))
        assert answer.code == 1
        assert any("NaN 1 of 1" in line and "cross_entropy" in line for line in answer.lines)

    def test_digests_that_are_all_the_same_are_the_same_run(
        self, dumps: Dumps, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Those of zeros and numbers of scalars as well."""
        dump = dumps("msprobe-xor")
        answer = run(capsys, "diff", dump, dump)
        assert answer.code == 0
        assert "148 nodes: 148 with the same statistics" in answer.out  # an exclusive or is no checksum

    def test_a_dump_of_the_structure_has_calls_and_nothing_to_judge(
        self, dumps: Dumps, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = dumps("msprobe-structure")
        assert run(capsys, "check", path).code == 2
        with closing(open_source(path)) as source:
            assert len(source.nodes(0)) == expected("msprobe-structure")["construct_entries"]
            assert source.nodes(0).find("layers/1/mlp/linear_fc2/Functional.linear") >= 0

    def test_extremes_of_mindspore_pass_nan_over(
        self, dumps: Dumps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What is bad, and where it began, is what the values tell where they are there."""
        whole = dumps("msprobe-mindspore")
        statistics = linked(whole, tmp_path / "whole")
        for directory in list(statistics.glob("dump/step*/*/dump_tensor_data")):
            shutil.rmtree(directory)
        bad, origins = [], []
        for path in (whole, statistics):
            answer = run(capsys, "check", path, "--watch", "TO", "--json")
            assert answer.code == 1
            hits = [hit for hit in answer.json["hits"] if hit["side"] == "output"]  # inputs may be copies of these
            bad.append({(hit["step"], hit["node"], hit["slot"]) for hit in hits})
            origins.append(origins_of(run(capsys, "origin", path, "--json").json))
        assert bad[0] == bad[1]
        assert origins[0] == origins[1]


class TestOrigins:
    @pytest.mark.parametrize(
        ("name", "part", "found"),
        [
            ("msprobe-L1-nan", "", (0, 1, "Torch.log.0")),
            ("msprobe-mix", "nan", (0, 1, "Torch.log")),
            ("msprobe-L0-slice", "", (0, 3, "energy/Energy")),
            ("msprobe-mindspore", "", (0, 3, "energy/Functional.log")),
            ("msprobe-mix-2rank-mb-md5", "", (0, 3, "energy/Torch.log")),
            ("msprobe-mix-2rank-mb-md5", "dump/step3", (0, 3, "energy/Torch.log")),
            ("msprobe-mix-2rank-mb-md5", "dump/step3/rank0", (0, 3, "energy/Torch.log")),
            ("msprobe-mix-2rank-mb-md5", "dump/step3/rank0/dump.json", (0, 3, "energy/Torch.log")),
        ],
    )
    def test_it_is_the_one_that_is_known(
        self,
        dumps: Dumps,
        capsys: pytest.CaptureFixture[str],
        name: str,
        part: str,
        found: tuple[int, int, str],
    ) -> None:
        answer = run(capsys, "origin", dumps(name) / part, "--json")
        assert answer.code == 1
        assert origins_of(answer.json) == [found]
        checked = run(capsys, "check", dumps(name) / part, "--json")
        assert checked.code == 1

    def test_it_is_that_of_the_second_micro_batch(self, dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
        answer = run(capsys, "origin", dumps("msprobe-mix-2rank-mb-md5"), "--json").json
        assert [each["round"] for each in answer["origins"][0]["tensors"]] == [2]

    def test_saved_tensors_have_no_edges_so_the_first_bad_one_is_named(
        self, dumps: Dumps, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = run(capsys, "origin", dumps("msprobe-debug-save"), "--json").json
        assert answer["origins"] == []
        assert answer["first_known"]["step"] == 3
        assert answer["first_known"]["node"].startswith("energy")

    @pytest.mark.parametrize("command", ["check", "origin"])
    def test_a_healthy_run_is_clean(self, dumps: Dumps, capsys: pytest.CaptureFixture[str], command: str) -> None:
        answer = run(capsys, command, dumps("msprobe-mix") / "good")
        assert answer.code == 0
        assert "clean" in answer.out

    def test_the_two_runs_differ_where_one_is_bad(self, dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
        path = dumps("msprobe-mix")
        loss, against = "Functional.cross_entropy", ("--with", path / "nan")
        assert run(capsys, "diff", path / "good", loss, "--step", "0", *against).code == 0
        assert run(capsys, "diff", path / "good", loss, "--step", "1", *against).code == 1


class TestNodes:
    @pytest.fixture
    def nodes(self, source: Source) -> NodeTable:
        return source.nodes(0)

    def test_micro_batches_are_rounds_of_nodes_and_sums_over_them_are_not(self, dumps: Dumps) -> None:
        with closing(open_source(dumps("msprobe-mix-2rank-mb-md5"))) as source:
            table, nodes = source.tensors(0, 0), source.nodes(0)
            rounds = {
                name: set(table.round[table.of_node(nodes.find(name), every=True)].tolist())
                for name in (
                    "energy/Torch.log",
                    "Functional.cross_entropy",
                    "layers/0/Layer",
                    "embedding.weight",
                    "Gradients/energy/Torch.log",
                    "Gradients/embedding/weight",
                    "Distributed.all_reduce.27",
                )
            }
        assert rounds == {
            "energy/Torch.log": {1, 2},
            "Functional.cross_entropy": {1, 2},
            "layers/0/Layer": {1, 2},
            "embedding.weight": {0},
            "Gradients/energy/Torch.log": {1, 2},
            "Gradients/embedding/weight": {1, 2},
            "Distributed.all_reduce.27": {0},
        }

    def test_edges_follow_equal_tensors_modules_and_what_is_inside_them(self, nodes: NodeTable) -> None:
        assert inputs_of(nodes, "energy/Torch.log") == ["energy/Tensor.sum:0"]
        assert inputs_of(nodes, "energy/Energy") == ["embedding/Embedding:0", "energy/Torch.log:0"]
        assert inputs_of(nodes, "layers/1/mlp/linear_fc1/Functional.linear")[:2] == [
            "layers/1/pre_mlp_layernorm/LayerNorm:0",
            "layers.1.mlp.linear_fc1.weight:0",
        ]
        assert inputs_of(nodes, "layers/0/Tensor.__add__.1") == ["layers/0/Tensor.__add__:0", "layers/0/mlp/MLP:0"]
        assert inputs_of(nodes, "layers/0/self_attention/Torch.softmax")[0] == (
            "layers/0/self_attention/Tensor.masked_fill:0"
        )

    def test_an_edge_across_views_that_were_not_recorded(self, nodes: NodeTable) -> None:
        made = "layers/0/self_attention/Tensor.__matmul__.1:0"
        assert inputs_of(nodes, "layers/0/self_attention/linear_proj/Functional.linear")[0] == made

    def test_a_backward_is_made_of_what_its_forward_made(self, nodes: NodeTable) -> None:
        assert "Functional.cross_entropy:0" in inputs_of(nodes, "Gradients/Functional.cross_entropy")
        assert inputs_of(nodes, "Gradients/energy/Tensor.sum") == [
            "Gradients/energy/Torch.log:0",
            "energy/Tensor.sum:0",
        ]

    def test_edges_are_marked_as_inferred_and_the_limits_say_so(self, dumps: Dumps, nodes: NodeTable) -> None:
        assert int(nodes.flags[nodes.find("energy/Torch.log")]) & NodeFlag.INFERRED
        with closing(open_source(dumps("msprobe-mix-2rank-mb-md5"))) as source:
            assert any(limit.startswith("edges inferred: ") for limit in limits(source))
            assert source.info.layout == "msprobe dump of PyTorch, level mix, task statistics"

    def test_categories(self, nodes: NodeTable) -> None:
        category = {name: nodes.category_of(nodes.find(name)) for name in nodes.names}
        assert category["layers.0.mlp.linear_fc1.weight"] is Category.WEIGHT
        assert category["Gradients/layers/0/mlp/linear_fc1/weight"] is Category.GRADIENT
        assert category["Gradients/energy/Torch.log"] is Category.GRADIENT
        assert category["layers/0/mlp/Functional.gelu"] is Category.ACTIVATION
        assert category["layers/0/self_attention/Torch.softmax"] is Category.ACTIVATION
        gradients = [nodes.names[row] for row in np.flatnonzero(weight_gradients(nodes)).tolist()]
        assert "Gradients/layers/0/mlp/linear_fc1/weight" in gradients
        assert "Gradients/layers/0/mlp/linear_fc1/bias" not in gradients

    def test_stacks_are_innermost_first(self, nodes: NodeTable) -> None:
        stack = nodes.stack(nodes.find("energy/Torch.log"))
        assert (stack[0].path, stack[0].line, stack[0].code) == (
            "/home/user/model.py",
            7,
            "return torch.log(x.abs().sum((1, 2)))",
        )
        assert stack[1].framework
        assert not stack[0].framework

    def test_a_call_that_only_one_step_has_stands_between_its_neighbours(self, dumps: Dumps) -> None:
        with closing(open_source(dumps("msprobe-mix") / "nan")) as source:
            norm = "b/2/ln/Functional.layer_norm"
            assert inputs_of(source.nodes(0), norm)[0] == "b/1/Blk:0"
            source.tensors(0, 1)
            nodes = source.nodes(0)
            assert inputs_of(nodes, norm)[0] == "Torch.log:0"
            assert int(nodes.order[nodes.find("b/1/Blk")]) < int(nodes.order[nodes.find("Torch.log")])
            assert int(nodes.order[nodes.find("Torch.log")]) < int(nodes.order[nodes.find(norm)])

    def test_a_module_that_is_called_twice_is_two_nodes(self, dumps: Dumps) -> None:
        with closing(open_source(dumps("msprobe-mix") / "good")) as source:
            nodes = source.nodes(0)
            assert nodes.find("b/0/ln/LayerNorm") >= 0
            assert nodes.find("b/0/ln.1/LayerNorm") >= 0
            assert nodes.find("b/0/ln.1/Functional.layer_norm") >= 0

    def test_scalars_are_constants(self, nodes: NodeTable) -> None:
        made = inputs_of(nodes, "layers/0/self_attention/Tensor.masked_fill")
        assert made[2] == "scalar -inf:0"
        assert nodes.constants[nodes.find("scalar -inf")] == "-inf"

    def test_a_dump_that_was_cut_says_so(self, dumps: Dumps) -> None:
        with closing(open_source(dumps("msprobe-L0-slice"))) as source:
            source.nodes(0)
            assert any("slice" in notice for notice in source.info.notices)
        with closing(open_source(dumps("msprobe-L1-nan"))) as source:
            source.nodes(0)
            assert not any("slice" in notice for notice in source.info.notices)


class TestCommands:
    @pytest.mark.parametrize("command", ["explain", "show", "relations", "trend"])
    def test_a_node_that_only_a_later_step_has_is_found(
        self, dumps: Dumps, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        path = dumps("msprobe-mix") / "nan"
        step = () if command == "trend" else ("--step", "1")
        assert "Torch.log" in run(capsys, command, path, "Torch.log", *step).out
        unknown = run(capsys, command, path, "Torch.tan", *step)
        assert unknown.code == 2
        assert "no node is called" in unknown.err

    def test_the_cause_is_told_by_statistics_alone(self, dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
        path = dumps("msprobe-mix-2rank-mb-md5")
        answer = run(capsys, "explain", path, "energy/Torch.log", "--step", "3", "--rank", "0")
        assert "likely: the logarithm of 0" in answer.out

    def test_all_micro_batches_are_counted(self, dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
        answer = run(capsys, "ls", "--steps", dumps("msprobe-mix-2rank-mb-md5"), "--json").json
        with closing(open_source(dumps("msprobe-mix-2rank-mb-md5"))) as source:
            assert [each["tensors"] for each in answer["runs"]][:1] == [len(source.tensors(0, 0))]


class TestGrowing:
    def test_a_new_step_and_a_step_that_was_being_written(self, dumps: Dumps, tmp_path: Path) -> None:
        whole = dumps("msprobe-mix-2rank-mb-md5") / "dump"
        path = linked(dumps("msprobe-mix-2rank-mb-md5"), tmp_path / "whole") / "dump"
        for step in (2, 3, 4):
            shutil.rmtree(path / f"step{step}")
        half = path / "step1/rank0/dump.json"
        text = half.read_bytes()
        own(half).write_bytes(text[: len(text) // 2])
        with closing(open_source(path)) as source:
            assert list(source.steps(0)) == [0, 1]
            assert len(source.tensors(0, 0)) > 0
            assert 0 < len(source.tensors(0, 1)) < len(source.tensors(0, 0))
            assert [(part.rank, part.step) for part in source.unreadable()] == [(0, 1)]
            assert not source.refresh()
            half.write_bytes(text)
            shutil.copytree(whole / "step2", path / "step2")
            changes = source.refresh()
            assert set(changes.new_steps) == {(0, 2), (1, 2)}
            assert changes.grown_steps == ((0, 1),)
            assert len(source.tensors(0, 1)) == len(source.tensors(0, 0))
            assert source.unreadable() == ()


class TestScope:
    @pytest.mark.parametrize(
        ("part", "found"),
        [
            ("", {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}),
            ("dump", {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}),
            ("dump/step3", {0: [3], 1: [3]}),
            ("dump/step3/rank1", {1: [3]}),
            ("dump/step3/rank1/dump.json", {1: [3]}),
        ],
    )
    def test_it_is_where_the_path_points(self, dumps: Dumps, part: str, found: dict[int, list[int]]) -> None:
        with closing(open_source(dumps("msprobe-mix-2rank-mb-md5") / part)) as source:
            assert asked(source) == found
            assert list(source.ranks()) == [0, 1]
            assert list(source.steps(0)) == [0, 1, 2, 3, 4]


async def test_the_screen(dumps: Dumps) -> None:
    async with opened(dumps("msprobe-mix") / "nan") as driver:
        await driver.until(lambda: "Torch.log" in driver.text)
        assert driver.session.info.layout == "msprobe dump of PyTorch, level mix, task tensor"
