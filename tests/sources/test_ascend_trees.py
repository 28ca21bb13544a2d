"""The directory trees of the recorders on Ascend servers: each opens, and a NaN in any of its tensors is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.ascend_files import write
from tests.cli.running import run
from tests.sources.ascend_trees import (
    TIME,
    TREES,
    Array,
    Planted,
    Tree,
    aclgraph_statistics,
    aclgraph_tensors,
    adump_of_msprobe,
    atb,
    atb_bytes,
    atb_statistics,
    kernels_of_msprobe,
    msit_offline,
    operators_and_communication,
    single_save,
    torchair_fx,
    torchair_fx_old,
    torchair_ge,
    without_step,
)
from tests.sources.conformance import SourceConformance
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source

EACH = pytest.mark.parametrize("tree", TREES, ids=[tree.__name__ for tree in TREES])
Capsys = pytest.CaptureFixture[str]


def checked(capsys: Capsys, root: Path) -> int:
    return run(capsys, "check", root, "--watch", "TO", "--no-cache", "--jobs", "1").code


class TestConformance(SourceConformance):
    @pytest.fixture(
        params=[operators_and_communication, adump_of_msprobe, torchair_fx, atb, atb_statistics, single_save],
        ids=lambda tree: tree.__name__,
    )
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
        request.param(tmp_path / "dump", Planted())
        with closing(open_source(tmp_path / "dump")) as source:
            yield source


@EACH
def test_a_nan_in_any_tensor_is_found(tree: Tree, tmp_path: Path, capsys: Capsys) -> None:
    healthy = Planted()
    tree(tmp_path / "healthy", healthy)
    assert checked(capsys, tmp_path / "healthy") == 0
    codes = {}
    for bad in range(healthy.written):
        tree(tmp_path / f"bad_{bad}", Planted(bad))
        codes[bad] = checked(capsys, tmp_path / f"bad_{bad}")
    assert codes == dict.fromkeys(range(healthy.written), 1)


@pytest.mark.parametrize(
    ("tree", "nodes", "steps", "ranks"),
    [
        (kernels_of_msprobe, {"Default_MatMul_1", "Default_ReLU_2"}, [0, 1], [0]),
        (adump_of_msprobe, {"Default_MatMul_1", "Default_ReLU_2"}, [0, 1], [0, 1]),
        (torchair_ge, {"Default_MatMul_1", "Default_ReLU_2"}, [0, 1], [0, 1]),
        (torchair_fx, {"graph_1/mm", "graph_1/relu"}, [1, 2], [0, 1]),
        (torchair_fx_old, {"mm"}, [1, 2], [0]),
        (single_save, {"grad", "loss"}, [0, 1], [0, 1]),
        (
            atb,
            {"0_Decoder_layer/0_Linear", "0_Decoder_layer/0_Linear/0_MatMulKernel", "0_Decoder_layer/1_Norm"},
            [0, 1],
            [0, 1],
        ),
        (atb_statistics, {"0_Decoder_layer/0_Linear", "0_Decoder_layer/1_Norm"}, [0, 1], [0]),
        (aclgraph_tensors, {"Aten.mm.0", "fc/Linear"}, [0, 1], [0, 1]),
        (aclgraph_statistics, {"Aten.mm.0", "fc/Linear"}, [0, 1], [0]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_node_has_one_name_in_all_steps(
    tree: Tree, nodes: set[str], steps: list[int], ranks: list[int], tmp_path: Path
) -> None:
    tree(tmp_path, Planted())
    with closing(open_source(tmp_path)) as source:
        assert list(source.ranks()) == ranks
        assert list(source.steps(ranks[-1])) == steps
        for step in steps:
            source.tensors(ranks[-1], step)
        assert set(source.nodes(ranks[-1]).names) == nodes


def test_operators_that_communicate_are_in_order_with_all_others(tmp_path: Path) -> None:
    """They lie in directories of their own, and run between the others: what comes first is the origin."""
    plant = Planted()
    top = tmp_path / f"0/{TIME}/0"
    plant.device_file(top)
    plant.device_file(top / "hccl_world_group/7/0", "AllReduce.Default_AllReduce_3.13.2")
    plant.device_file(top, "ReLU.Default_ReLU_2.12.2")
    with closing(open_source(tmp_path)) as source:
        table, names = source.tensors(0, 0), source.nodes(0).names
        assert [names[node] for node in table.node.tolist()] == [
            "Default_MatMul_1",
            "Default_AllReduce_3",
            "Default_ReLU_2",
        ]
        assert [(run.step, run.root_graph) for run in source.history(0)] == [(0, 0)]


def test_of_a_tree_without_steps_the_index_of_the_data_is_the_step(tmp_path: Path) -> None:
    without_step(tmp_path, Planted())
    with closing(open_source(tmp_path)) as source:
        assert {rank: list(source.steps(rank)) for rank in source.ranks()} == {0: [0, 1, 2], 1: [0]}


@pytest.mark.parametrize(
    ("inside", "tensors"),
    [
        ("", 6),
        (f"1/{TIME}/0", 3),
        (f"1/{TIME}/0/hccl_world_group", 1),
        (f"1/{TIME}/0/hccl_world_group/7/0", 1),
        (f"0/{TIME}", 3),
    ],
)
def test_a_path_into_a_tree_asks_about_what_lies_there(
    inside: str, tensors: int, tmp_path: Path, capsys: Capsys
) -> None:
    operators_and_communication(tmp_path, Planted())
    answer = run(capsys, "check", tmp_path / inside, "--watch", "TO", "--no-cache", "--jobs", "1")
    assert (answer.code, f"\n{tensors} tensor" in answer.out) == (0, True)


def test_a_second_run_of_a_device_is_a_doubt_until_it_is_named(tmp_path: Path, capsys: Capsys) -> None:
    first, second = TIME, "20250102030405"
    for time, bad in ((first, -1), (second, 0)):
        Planted(bad).operators(tmp_path / time / "0/ge_default/1/0")
    assert checked(capsys, tmp_path) == 2
    assert checked(capsys, tmp_path / first) == 0
    assert checked(capsys, tmp_path / second) == 1


@pytest.mark.parametrize(
    "inside", ["", TIME, f"{TIME}/dump_data", f"{TIME}/dump_data/npu", f"{TIME}/dump_data/npu/{TIME}"]
)
def test_a_dump_of_msit_opens_from_any_of_its_directories(inside: str, tmp_path: Path, capsys: Capsys) -> None:
    for name, bad, code in (("good", -1, 0), ("bad", 1, 1)):
        msit_offline(tmp_path / name, Planted(bad))
        assert checked(capsys, tmp_path / name / inside) == code


def test_what_a_model_answered_is_a_doubt_beside_its_dump(tmp_path: Path, capsys: Capsys) -> None:
    msit_offline(tmp_path, Planted())
    (tmp_path / TIME / "output_0.bin").write_bytes(bytes(24))
    assert checked(capsys, tmp_path) == 2


@pytest.mark.parametrize("name", ["", f"{TIME}", f"{TIME}/0", f"{TIME}/0/ge_default", f"{TIME}/0/ge_default/1"])
def test_a_file_at_any_level_counts(name: str, tmp_path: Path, capsys: Capsys) -> None:
    without_step(tmp_path, Planted())
    Planted(0).device_file(tmp_path / name, "Log.Default_Log_9.19.2")
    assert checked(capsys, tmp_path) in {1, 2}


def test_calls_and_kernels_of_msprobe_in_one_directory(tmp_path: Path, capsys: Capsys) -> None:
    """Two dumps: one opens, and the other is a doubt."""
    Planted().operators(tmp_path / f"step0/{TIME}/0")
    (tmp_path / "step0/rank0").mkdir()
    (tmp_path / "step0/rank0/dump.json").write_text('{"task": "statistics", "level": "L1", "data": {}}')
    assert checked(capsys, tmp_path) == 2


@pytest.mark.parametrize(
    "name", ["12345678901234567890123456789012", "Log.Default_Log_9.19.2.1700000000000990.output.0.ND.BF16"]
)
def test_values_that_cannot_be_told_are_a_doubt(name: str, tmp_path: Path, capsys: Capsys) -> None:
    """Types that NumPy lacks are written raw, and names that are too long are renamed to digits."""
    adump_of_msprobe(tmp_path, Planted())
    (tmp_path / f"rank_0/{TIME}/step_0/{name}").write_bytes(b"\xc0\x7f" * 6)
    assert checked(capsys, tmp_path) == 2


def test_a_file_renamed_to_digits_is_read_under_its_name(tmp_path: Path, capsys: Capsys) -> None:
    directory = tmp_path / f"step0/{TIME}/0"
    path = Planted(0).device_file(directory)
    path.rename(directory / "12345")
    (directory / "mapping.csv").write_text(f"12345,{path.name}\n")
    assert checked(capsys, tmp_path) == 1
    with closing(open_source(tmp_path)) as source:
        assert list(source.nodes(0).names) == ["Default_MatMul_1"]


def test_threads_of_an_operator_are_one_node(tmp_path: Path) -> None:
    directory = tmp_path / f"{TIME}/0/ge_default/1/0"
    for thread in (0, 1):
        path = Planted().device_file(directory)
        path.rename(path.with_name(f"{path.name.rpartition('.')[0]}.{1_700_000_000_000_100 + thread}.4.3.{thread}.0"))
    with closing(open_source(tmp_path)) as source:
        assert list(source.nodes(0).names) == ["Default_MatMul_1"]
        assert len(source.tensors(0, 0)) == 2


def test_a_directory_that_is_called_after_a_time_is_no_tree_of_devices(tmp_path: Path, capsys: Capsys) -> None:
    Planted(0).array(tmp_path / f"{TIME}/0/step_3/loss.npy")
    with closing(open_source(tmp_path / TIME)) as source:
        assert source.info.layout == "directory of tensor files"
    assert checked(capsys, tmp_path / TIME) == 1


class TestAtb:
    TITLES = (
        "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,Max,Min,Mean,Norm,"
        "Tensor Path"
    )
    ROUND = "atb_dump_data/data/0_4711/0"

    def table(self, root: Path, name: str, path: str) -> None:
        """A table of a round that tells of one tensor, without any statistics of it."""
        cells = f"0_4711,0,Decoder_layer/{name},{name}Operation,0_0,Output,0,float,nd,2x3,N/A,N/A,N/A,N/A,{path}"
        (root / self.ROUND / "statistic.csv").write_text(f"{self.TITLES}\n{cells}\n")

    def test_a_file_is_read_in_place_of_its_row(self, tmp_path: Path, capsys: Capsys) -> None:
        for name, bad, code in (("good", -1, 0), ("bad", 0, 1)):
            atb(tmp_path / name, Planted(bad))
            self.table(tmp_path / name, "Linear", f"/else/{self.ROUND}/0_Decoder_layer/0_Linear/after/outtensor0.bin")
            assert checked(capsys, tmp_path / name) == code

    def test_a_row_whose_file_is_gone_is_a_doubt(self, tmp_path: Path, capsys: Capsys) -> None:
        atb(tmp_path, Planted())
        self.table(tmp_path, "Gone", f"/else/{self.ROUND}/0_Decoder_layer/0_Gone/after/outtensor0.bin")
        assert checked(capsys, tmp_path) == 2

    def test_a_damaged_file_is_a_doubt(self, tmp_path: Path, capsys: Capsys) -> None:
        atb(tmp_path, Planted())
        (path,) = (tmp_path / self.ROUND).rglob("intensor0.bin")
        path.write_bytes(path.read_bytes()[:-4])
        assert checked(capsys, tmp_path) == 2


def names_in_order(root: Path, step: int) -> list[str]:
    """The nodes of a step in the order in which they ran."""
    with closing(open_source(root)) as source:
        table, names = source.tensors(0, step), source.nodes(0).names
        return list(dict.fromkeys(names[node] for node in table.node.tolist()))


def test_nodes_of_torchair_stand_in_the_order_of_their_time_stamps(tmp_path: Path) -> None:
    """The second token has a node that the first has not, before all others."""
    for token, ran in ((1, "ba"), (2, "cba")):
        for at, name in enumerate(ran):
            stamp = f"20240125031118{787351 + at}"
            Planted().array(tmp_path / f"msprobe_fx_dump/data_dump/{token}/{name}-aten.mm.default.OUTPUT.0.{stamp}.npy")
    assert (names_in_order(tmp_path, 1), names_in_order(tmp_path, 2)) == (["b", "a"], ["c", "b", "a"])


def test_operations_of_atb_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    layer = tmp_path / "atb_dump_data/data/0_4711/0/0_Layer"
    for number in (10, 2, 0, 1):
        for name in ("before/intensor0", "after/outtensor0"):
            write(layer / f"{number}_Op/{name}.bin", atb_bytes(Planted().values()))
    assert names_in_order(tmp_path, 0) == [f"0_Layer/{number}_Op" for number in (0, 1, 2, 10)]


def test_tensors_of_a_replay_that_did_not_end(tmp_path: Path, capsys: Capsys) -> None:
    """They lie beside the steps, and are a doubt there; where no replay ended, they are all that there is."""
    name = "dump_tensor_data/rank0/Aten.mm.0.output.npy"
    aclgraph_tensors(tmp_path / "ended", Planted())
    for bad, code in ((-1, 0), (0, 1)):
        Planted(bad).array(tmp_path / "first" / name)
        Planted(bad).array(tmp_path / "ended" / name)
        assert (checked(capsys, tmp_path / "first"), checked(capsys, tmp_path / "ended")) == (code, 2)


class TestAclSave:
    """Files of ``acl_save``: one number counts all files of a process."""

    @staticmethod
    def save(path: Path, values: Array) -> None:
        """As PyTorch's C++ library does."""
        import torch

        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(torch._C._pickle_save(torch.from_numpy(values))))

    @pytest.mark.parametrize("names", [["hidden"], ["logits", "hidden"]])
    @pytest.mark.parametrize("where", ["", "rank_1"])
    def test_each_replay_is_a_step(self, names: list[str], where: str, tmp_path: Path, capsys: Capsys) -> None:
        for bad in (-1, 2):
            plant = Planted(bad)
            for number in range(3 * len(names)):
                self.save(tmp_path / where / f"{names[number % len(names)]}_{number}.pt", plant.values())
            assert checked(capsys, tmp_path) == (0 if bad < 0 else 1)
        with closing(open_source(tmp_path)) as source:
            (rank,) = source.ranks()
            assert list(source.steps(rank)) == [0, 1, 2]
            assert [len(source.tensors(rank, step)) for step in (0, 1, 2)] == [len(names)] * 3
            assert set(source.nodes(rank).names) == set(names)

    @pytest.mark.parametrize("names", [["a_0", "b_1", "b_2", "a_3"], ["a_0", "b_2", "a_3", "b_4"], ["a_0", "b_1"]])
    def test_numbers_that_tell_no_replays_are_parts_of_names(self, names: list[str], tmp_path: Path) -> None:
        for name in names:
            self.save(tmp_path / f"{name}.pt", Planted().values())
        with closing(open_source(tmp_path)) as source:
            assert (list(source.steps(0)), len(source.tensors(0, 0))) == ([0], len(names))

    def test_layers_that_a_program_saves_are_no_replays(self, tmp_path: Path) -> None:
        import torch

        for number in range(3):
            torch.save(torch.ones(2), tmp_path / f"layer_{number}.pt")
        with closing(open_source(tmp_path)) as source:
            assert (list(source.steps(0)), set(source.nodes(0).names)) == ([0], {"layer_0", "layer_1", "layer_2"})


def test_slices_of_threads_are_writings_of_one_run(tmp_path: Path, capsys: Capsys) -> None:
    """Contexts may be other ones at each step. Each slice is looked at by itself."""
    for root, bad, code in ((tmp_path / "good", -1, 0), (tmp_path / "bad", 7, 1)):
        plant = Planted(bad)
        for step in (0, 1, 2):
            for name in ("MatMul.Default_MatMul_1.11.2", "ReLU.Default_ReLU_2.12.2"):
                for thread in (0, 1):
                    path = plant.device_file(root / f"{TIME}/0/ge_default/1/{step}", name)
                    path.rename(f"{path}.4.{3 + step}.{thread}.0")
        assert checked(capsys, root) == code
        with closing(open_source(root)) as source:
            for step in (0, 1, 2):
                assert len(source.tensors(0, step)) == 4
            assert [(run.step, run.round) for run in source.history(0)] == [(0, 0), (1, 0), (2, 0)]
            assert list(source.nodes(0).names) == ["Default_MatMul_1", "Default_ReLU_2"]
