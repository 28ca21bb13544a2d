"""Directories of tensor files: what names say, what is recognised, and that everything works on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.running import run
from tests.opened_files import opened_tensor_files
from tests.sources.arrays import write_arrays, write_safetensors
from tests.sources.conformance import asked
from tests.tui.driver import opened
from tui_debugger.errors import NotADumpError
from tui_debugger.model import Category, Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Changes, Source
from tui_debugger.sources.tensor_files.layout import EntryName, parse_name
from tui_debugger.sources.tensor_files.listing import node_of

ONES = np.ones((2, 3), np.float32)
BAD = np.array([1.0, np.nan])


def written(folder: Path, *names: str) -> Path:
    """Files of these names, arrays and archives; all others are text."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".npy"):
            np.save(path, ONES)
        elif name.endswith(".npz"):
            np.savez(path, weight=ONES, bias=ONES)
        else:
            path.write_text("text")
    return folder


def held(source: Source) -> dict[tuple[int, int], list[str]]:
    """``node:side:slot`` of all arrays by rank and step."""
    found = {}
    for rank in source.ranks():
        for step in source.steps(rank):
            table, nodes = source.tensors(rank, step), source.nodes(rank)
            columns = zip(table.node.tolist(), table.side.tolist(), table.slot.tolist(), strict=True)
            found[rank, step] = sorted(f"{nodes.names[node]}:{Side(side).label}:{slot}" for node, side, slot in columns)
    return found


def parts(source: Source) -> dict[str, str]:
    held(source)
    return {part.where: part.why for part in source.unreadable()}


class TestNames:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("step_3", EntryName("", step=3)),
            ("step3", EntryName("", step=3)),
            ("Step-0003", EntryName("", step=3)),
            ("step=3", EntryName("", step=3)),
            ("iter_3", EntryName("", step=3)),
            ("iteration3", EntryName("", step=3)),
            ("global_step_3", EntryName("", step=3)),
            ("global_step3", EntryName("", step=3)),
            ("epoch_2", EntryName("", epoch=2)),
            ("rank0", EntryName("", rank=0)),
            ("rank_12", EntryName("", rank=12)),
            ("rank0_step3", EntryName("", rank=0, step=3)),
            ("step_3_rank_1", EntryName("", rank=1, step=3)),
            ("epoch_1_step_7", EntryName("", epoch=1, step=7)),
            ("grads_step_3", EntryName("grads", step=3)),
            ("fc1.weight_step_3", EntryName("fc1.weight", step=3)),
            ("step_3.fc1.weight", EntryName("fc1.weight", step=3)),
            ("checkpoint-3", EntryName("", step=3)),
            ("ckpt_3", EntryName("", step=3)),
            ("iter_0000003", EntryName("", step=3)),
            ("checkpoints", EntryName("checkpoints")),
            ("weight", EntryName("weight")),
            ("layer_3", EntryName("layer_3")),
            ("timestep_3", EntryName("timestep_3")),
            ("low_rank_8", EntryName("low_rank_8")),
            ("stepper", EntryName("stepper")),
            ("step_1234567890", EntryName("step_1234567890")),
            ("", EntryName("")),
            (
                "1.LlamaModel-24.LlamaDecoderLayer-2.LlamaAttention-2.Linear-1.AllReduce-input.input",
                EntryName("LlamaModel/24.LlamaDecoderLayer/2.LlamaAttention/2.Linear/1.AllReduce/input.input", step=1),
            ),
            ("12.LlamaModel-output.0", EntryName("LlamaModel/output.0", step=12)),
            ("3.LlamaModel-output", EntryName("LlamaModel/output", step=3)),
            ("LlamaModel-24.Linear-output.0", EntryName("LlamaModel-24.Linear-output.0")),
            ("1.LlamaModel-24.Linear", EntryName("1.LlamaModel-24.Linear")),
        ],
    )
    def test_what_a_name_says(self, name: str, said: EntryName) -> None:
        assert parse_name(name) == said

    @given(
        st.sampled_from(["step", "STEP", "iter", "iteration", "global_step"]),
        st.sampled_from(["", "_", "-", "="]),
        st.integers(0, 999_999_999),
        st.text("abcxyz", max_size=6),
    )
    def test_a_step_is_found_in_front_and_behind(self, word: str, mark: str, number: int, rest: str) -> None:
        assert parse_name(f"{word}{mark}{number}") == EntryName("", step=number)
        assert parse_name(f"{rest}.{word}{mark}{number}") == EntryName(rest, step=number)
        assert parse_name(f"{word}{mark}{number}.{rest}") == EntryName(rest, step=number)

    @given(st.text(max_size=30))
    def test_any_name_says_something_and_keeps_the_rest(self, name: str) -> None:
        said = parse_name(name)
        assert said.tells or said.rest == name
        assert all(number is None or number >= 0 for number in (said.rank, said.step, said.epoch))

    @pytest.mark.parametrize(
        ("scope", "key", "node"),
        [
            (["encoder", "act"], None, ("encoder/act", Side.OUTPUT, 0)),
            (["encoder", "act.out.1"], None, ("encoder/act", Side.OUTPUT, 1)),
            (["encoder", "act.in.0"], None, ("encoder/act", Side.INPUT, 0)),
            (["encoder", "act"], "input_2", ("encoder/act", Side.INPUT, 2)),
            (["encoder", "act"], "arr_1", ("encoder/act", Side.OUTPUT, 1)),
            ([], "arr_1", ("arr_1", Side.OUTPUT, 0)),
            ([], "enc/act:out:3", ("enc/act", Side.OUTPUT, 3)),
            (["encoder"], "layer0/weight", ("encoder.layer0.weight", Side.OUTPUT, 0)),
            ([], "out_0", ("out_0", Side.OUTPUT, 0)),
            ([], "layout.0", ("layout.0", Side.OUTPUT, 0)),
            ([], None, ("array", Side.OUTPUT, 0)),
            ([], "", ("array", Side.OUTPUT, 0)),
        ],
    )
    def test_nodes(self, scope: list[str], key: str | None, node: tuple[str, Side, int]) -> None:
        assert node_of(scope, key) == node

    def test_the_debug_hook_of_tensorrt_llm(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        linear = "LlamaModel-24.LlamaDecoderLayer-2.Linear"
        for rank in range(2):
            (tmp_path / f"rank{rank}").mkdir()
            for loop in (1, 2):
                bad = float("nan") if (rank, loop) == (1, 2) else 1.0
                torch.save(torch.ones(4), tmp_path / f"rank{rank}/{loop}.{linear}-input.input.pt")
                torch.save(torch.full((4,), bad), tmp_path / f"rank{rank}/{loop}.{linear}-output.0.pt")
        with closing(open_source(tmp_path)) as source:
            assert [list(source.steps(rank)) for rank in source.ranks()] == [[1, 2], [1, 2]]
            names = source.nodes(0).names
            assert sorted(names) == [f"{linear.replace('-', '/')}", f"{linear.replace('-', '/')}/input.input"]
        answer = run(capsys, "check", tmp_path, "--json", "--no-cache")
        assert answer.code == 1
        assert [(hit["rank"], hit["step"], hit["side"]) for hit in answer.json["hits"]] == [(1, 2, "output")]

    @given(st.lists(st.text(st.characters(exclude_characters="/"), min_size=1), max_size=3), st.none() | st.text())
    def test_any_names_are_a_node(self, scope: list[str], key: str | None) -> None:
        node, _, slot = node_of(scope, key)
        assert node
        assert 0 <= slot < 2**15


WEIGHTS = ["bias:out:0", "weight:out:0"]
LAYOUTS: dict[str, tuple[list[str], dict[tuple[int, int], list[str]]]] = {
    "directories": (
        ["step_1/enc/act.npy", "step_10/enc/act.npy", "step_2/enc/act.npy"],
        {(0, step): ["enc/act:out:0"] for step in (1, 2, 10)},
    ),
    "ranks": (
        ["rank_0/step_1/a.npy", "rank_1/step_1/a.npy", "rank_1/step_2/a.npy"],
        {(0, 1): ["a:out:0"], (1, 1): ["a:out:0"], (1, 2): ["a:out:0"]},
    ),
    "ranks in steps": (["step1/rank0/a.npy", "step1/rank1/a.npy"], {(0, 1): ["a:out:0"], (1, 1): ["a:out:0"]}),
    "archives": (["step_1.npz", "step_2.npz"], {(0, 1): WEIGHTS, (0, 2): WEIGHTS}),
    "archives of ranks": (["rank0_step1.npz", "rank1_step1.npz"], {(0, 1): WEIGHTS, (1, 1): WEIGHTS}),
    "archives in ranks": (["rank0/3.npz", "rank0/4.npz"], {(0, 3): WEIGHTS, (0, 4): WEIGHTS}),
    "numbers": (["0/net/a.npy", "7/net/a.npy"], {(0, 0): ["net/a:out:0"], (0, 7): ["net/a:out:0"]}),
    "numbers of layers": (
        ["step_1/layers/0/a.npy", "step_1/layers/1/a.npy"],
        {(0, 1): ["layers/0/a:out:0", "layers/1/a:out:0"]},
    ),
    "a directory for each array": (
        ["enc/act/step_1.npy", "enc/act/step_2.npy", "loss/step_1.npy"],
        {(0, 1): ["enc/act:out:0", "loss:out:0"], (0, 2): ["enc/act:out:0"]},
    ),
    "steps behind names": (["a_step_1.npy", "b_step_1.npy"], {(0, 1): ["a:out:0", "b:out:0"]}),
    "epochs": (["epoch_1/a.npy", "epoch_2/a.npy"], {(0, 1): ["a:out:0"], (0, 2): ["a:out:0"]}),
    "steps that count on": (
        ["epoch_0/step_1/a.npy", "epoch_1/step_2/a.npy"],
        {(0, 1): ["a:out:0"], (0, 2): ["a:out:0"]},
    ),
    "steps that begin anew": (
        ["epoch_0/step_1/a.npy", "epoch_1/step_1/a.npy"],
        {(0, 1): ["a:out:0"], (0, 1_000_001): ["a:out:0"]},
    ),
    "what tdbg exports": (
        ["rank0/step3/net/a.in.0.npy", "rank0/step3/net/a.out.0.npy", "index.csv"],
        {(0, 3): ["net/a:in:0", "net/a:out:0"]},
    ),
    "no step": (["net/a.npy", "b.npy"], {(0, 0): ["b:out:0", "net/a:out:0"]}),
}


class TestLayouts:
    @pytest.mark.parametrize("name", LAYOUTS)
    def test_ranks_steps_and_nodes(self, tmp_path: Path, name: str) -> None:
        files, expected = LAYOUTS[name]
        source = open_source(written(tmp_path / "run", *files))
        assert held(source) == expected
        assert list(expected) == [(rank, step) for rank in source.ranks() for step in source.steps(rank)]
        assert parts(source) == {}

    @pytest.mark.parametrize("name", ["directories", "ranks", "ranks in steps", "archives", "epochs"])
    def test_one_and_two_levels_above(self, tmp_path: Path, name: str) -> None:
        files, expected = LAYOUTS[name]
        written(tmp_path / "x/run", *files)
        for path in (tmp_path, tmp_path / "x", tmp_path / "x/run"):
            assert held(open_source(path)) == expected

    def test_inside(self, tmp_path: Path) -> None:
        written(tmp_path / "run", "rank_0/step_1/enc/a.npy", "rank_1/step_1/enc/a.npy", "rank_1/step_2/enc/a.npy")
        for inside, found in {
            "": {0: [1], 1: [1, 2]},
            "rank_0": {0: [1]},
            "rank_1": {1: [1, 2]},
            "rank_1/step_2": {1: [2]},
            "rank_1/step_2/enc": {1: [2]},
            "rank_1/step_2/enc/a.npy": {1: [2]},
        }.items():
            source = open_source(tmp_path / "run" / inside)
            assert source.info.path == str(tmp_path / "run")
            assert asked(source) == found

    def test_directories_around_a_dump_may_be_called_after_steps(self, tmp_path: Path) -> None:
        root = written(tmp_path / "step_5_experiments/rank_3_try/run", "step_0/net/a.npy")
        for path in (root, root / "step_0", root / "step_0/net"):
            source = open_source(path)
            assert source.info.path == str(root)
            assert held(source) == {(0, 0): ["net/a:out:0"]}

    def test_several_are_refused(self, tmp_path: Path) -> None:
        written(tmp_path, "a/step_1/x.npy", "b/c/step_1.npz")
        with pytest.raises(NotADumpError, match=r"Several dumps here: a, b/c"):
            open_source(tmp_path)

    @pytest.mark.parametrize(
        "files",
        [
            [],
            ["README.md", "step_1/log.txt", "rank_0/step_1/events.out"],
            ["src/a.py", "data/train.txt"],
            ["3/notes.txt"],
            ["step_1/.hidden.npy"],
        ],
    )
    def test_other_files_are_no_dump(self, tmp_path: Path, files: list[str]) -> None:
        with pytest.raises(NotADumpError, match="No dump found"):
            open_source(written(tmp_path, *files))

    def test_kinds_of_nodes(self, tmp_path: Path) -> None:
        names = ["fc1.weight", "fc1.bias", "moment1.fc1.weight", "fc1.weight.grad", "grads/fc1.bias", "net/relu"]
        write_arrays(tmp_path / "step_0", dict.fromkeys(names, ONES))
        nodes = open_source(tmp_path).nodes(0)
        kinds = {nodes.names[row]: Category(int(nodes.category[row])) for row in range(len(nodes))}
        assert kinds == {
            "fc1.weight": Category.WEIGHT,
            "fc1.bias": Category.WEIGHT,
            "moment1.fc1.weight": Category.OPTIMIZER_STATE,
            "fc1.weight.grad": Category.GRADIENT,
            "grads/fc1.bias": Category.GRADIENT,
            "net/relu": Category.OTHER,
        }

    def test_the_keys_of_an_archive_come_as_they_were_written(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "step_0.npz", z=ONES, a=ONES, m=ONES)
        source = open_source(tmp_path)
        table = source.tensors(0, 0)
        assert [source.nodes(0).names[node] for node in table.node.tolist()] == ["z", "a", "m"]


class TestDoubts:
    """Whatever is not looked at is named, and nothing is clean then."""

    def check(self, capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, str]:
        answer = run(capsys, "check", path, "--no-cache")
        return answer.code, answer.out + answer.err

    def test_a_good_one_is_clean(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.check(capsys, written(tmp_path, "step_0/a.npy", "step_0/b.npz"))[0] == 0

    @pytest.mark.parametrize(
        "break_it",
        {
            "object": lambda path: np.savez(path, a=ONES, b=np.array([None])),
            "truncated": lambda path: path.write_bytes(path.read_bytes()[:-30]),
            "empty": lambda path: path.write_bytes(b""),
            "checksum": lambda path: path.write_bytes(path.read_bytes().replace(ONES.tobytes(), bytes(ONES.nbytes))),
            "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
            "directory": lambda path: (path.unlink(), path.mkdir()),
            "dangling": lambda path: (path.unlink(), path.symlink_to("nowhere")),
            "closed": lambda path: (path.unlink(), path.symlink_to("/proc/1/mem")),
        }.items(),
        ids=lambda each: each[0],
    )
    def test_archives(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], break_it) -> None:
        written(tmp_path, "step_0/good.npy", "step_0/bad.npz", "step_1/good.npy")
        break_it[1](tmp_path / "step_0/bad.npz")
        code, text = self.check(capsys, tmp_path)
        assert code == 2
        assert "bad" in text

    def test_a_broken_file_and_an_object_array(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        written(tmp_path, "step_0/good.npy", "step_0/short.npy")
        short = tmp_path / "step_0/short.npy"
        short.write_bytes(short.read_bytes()[:-1])
        np.save(tmp_path / "step_0/object.npy", np.array([{}]), allow_pickle=True)
        code, text = self.check(capsys, tmp_path)
        assert code == 2
        assert "short" in text
        assert "object" in text

    @pytest.mark.parametrize(
        ("file", "where", "why"),
        [
            ("step_0/model.h5", "step_0/model.h5", "is called as HDF5 is, and is none: it is damaged"),
            ("step_0/model.pt", "step_0/model.pt", "is no file that torch.save wrote: it has a damaged pickle"),
            ("step_0/a/b.safetensors", "step_0/a/b.safetensors", "ends inside its header"),
            (
                "step_0/__0_0.distcp",
                "step_0/__0_0.distcp",
                "a part of a checkpoint whose index .metadata is missing",
            ),
            ("step_5/notes.txt", "step_5", "no array in step 5"),
            ("step0/a.npy", "step_0/a.npy", "the same tensor as one in step0/a.npy"),
        ],
    )
    def test_what_was_not_looked_at(self, tmp_path: Path, file: str, where: str, why: str) -> None:
        source = open_source(written(tmp_path, "step_0/a.npy", "step_1/a.npy", file))
        assert parts(source) == {where: why}

    def test_a_loop_of_links_is_walked_once(self, tmp_path: Path) -> None:
        written(tmp_path, "step_0/net/a.npy")
        (tmp_path / "step_0/net/again").symlink_to(tmp_path / "step_0")
        (tmp_path / "all").symlink_to(tmp_path)
        assert held(open_source(tmp_path)) == {(0, 0): ["net/a:out:0"]}


class TestGrowing:
    def test_steps_and_ranks_that_appear(self, tmp_path: Path) -> None:
        written(tmp_path, "rank_0/step_0/a.npy")
        source = open_source(tmp_path)
        old = source.tensors(0, 0)
        assert not source.refresh()
        written(tmp_path, "rank_0/step_1/a.npy", "rank_1/step_0/a.npy")
        assert source.refresh() == Changes(new_steps=((0, 1),), new_ranks=(1,))
        assert held(source) == {at: ["a:out:0"] for at in ((0, 0), (0, 1), (1, 0))}
        assert source.tensors(0, 0) is old

    def test_a_step_that_grows(self, tmp_path: Path) -> None:
        written(tmp_path, "step_0/net/a.npy")
        source = open_source(tmp_path)
        held(source)
        written(tmp_path, "step_0/net/b.npy")
        assert source.refresh().grown_steps == ((0, 0),)
        assert held(source) == {(0, 0): ["net/a:out:0", "net/b:out:0"]}
        assert source.refresh().new_nodes

    def test_an_archive_that_was_half_written(self, tmp_path: Path) -> None:
        written(tmp_path, "step_0.npz", "step_1.npz")
        path = tmp_path / "step_1.npz"
        whole = path.read_bytes()
        path.write_bytes(whole[:100])
        source = open_source(tmp_path)
        assert list(parts(source)) == ["step_1.npz"]
        path.write_bytes(whole)
        assert source.refresh().grown_steps == ((0, 1),)
        assert parts(source) == {}
        assert held(source)[0, 1] == WEIGHTS

    def test_a_step_that_goes(self, tmp_path: Path) -> None:
        written(tmp_path, "step_0/a.npy", "step_1/a.npy")
        source = open_source(tmp_path)
        held(source)
        shutil.rmtree(tmp_path / "step_1")
        source.refresh()
        assert held(source) == {(0, 0): ["a:out:0"]}

    def test_watched_are_the_directories_in_which_something_appears(self, tmp_path: Path) -> None:
        written(tmp_path, "rank_0/step_0/a.npy", "rank_0/step_1/a.npy")
        paths = open_source(tmp_path).watch_paths()
        assert {tmp_path, tmp_path / "rank_0", tmp_path / "rank_0/step_1"} <= set(paths)


@pytest.fixture(params=["npy", "npz", "packed", "archives", "pt", "safetensors"])
def sick(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three steps; a NaN in the middle one."""
    values = {"net/fc.weight": ONES, "net/act.in.0": np.array([1.0, 2.0])}
    for step in range(3):
        act = BAD if step == 1 else np.array([1.0, 2.0])
        weight = np.float32(1 + 0.01 * step) * ONES
        write_arrays(
            tmp_path / f"sick/step_{step}", values | {"net/act.out.0": act, "net/fc.weight": weight}, request.param
        )
    return tmp_path / "sick"


class TestCommands:
    def texts(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> Iterable[str]:
        answer = run(capsys, *arguments)
        return (str(answer.code), answer.out)

    def test_all_of_them(self, sick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        prefix = "values/" if any(sick.glob("*/*.npz")) else ""  # model.pt names nothing
        for command, code, words in [
            (["ls"], "0", f"{prefix}net/act"),
            (["ls", "--steps"], "0", "arrays"),
            (["check"], "1", f"{prefix}net/act:out:0"),
            (["origin"], "1", f"{prefix}net/act"),
            (["health"], "1", "net/"),
            (["stat", "--step", "1"], "0", "NaN"),
        ]:
            found, text = self.texts(capsys, command[0], sick, *command[1:])
            assert found == code, (command, text)
            assert words in text, command
        node = f"{prefix}net/act"
        shutil.copytree(sick, tmp_path / "copy")
        for other, code in [("step=1", 1), ("step=2", 0), (str(tmp_path / "copy"), 0)]:
            assert run(capsys, "diff", sick, node, "--step", "0", "--with", other).code == code, other

    def test_no_edge_is_known_so_a_bad_tensor_without_inputs_is_the_first_known_bad(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_arrays(tmp_path / "step_0", {"a": BAD, "b": BAD})
        answer = run(capsys, "origin", tmp_path)
        assert answer.code == 1
        assert "first known bad" in answer.out
        assert "no graph or file tells what it was made from" in answer.out

    def test_statistics_are_remembered(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for step in range(3):
            write_arrays(tmp_path / f"step_{step}", {f"n{at}": np.ones(3) * (at + 1) for at in range(8)})
        for path in tmp_path.rglob("*.npy"):
            os.utime(path, ns=(10**18, 10**18))  # what is younger may change and look the same
        first = run(capsys, "check", tmp_path)
        with opened_tensor_files() as opened_files:
            again = run(capsys, "check", tmp_path)
        assert opened_files == []
        assert (again.code, again.out) == (first.code, first.out)
        np.save(tmp_path / "step_1/n3.npy", np.array([np.nan] * 3))
        assert run(capsys, "check", tmp_path).code == 1

    def test_the_tables_of_different_steps_have_different_digests(self, sick: Path) -> None:
        source = open_source(sick)
        assert len({source.tensors(0, step).digest for step in source.steps(0)}) == 3


async def test_the_screen(tmp_path: Path) -> None:
    write_arrays(tmp_path / "step_0", {"net/act.out.0": BAD, "net/fc.weight": ONES}, "npz")
    async with opened(tmp_path) as driver:
        await driver.until(lambda: "act" in driver.text)
        assert driver.session.info.layout == "directory of tensor files"


class TestModels:
    """Directories of models as people keep them, without a step in their names."""

    @pytest.mark.parametrize(
        "files",
        [
            ["unet/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors"],
            ["weights/best.safetensors"],
            ["model.safetensors", "pytorch_model-00001-of-00001.safetensors"],
        ],
        ids=["pipeline", "weights", "two forms"],
    )
    @pytest.mark.parametrize("bad", [0, -1])
    def test_each_file_is_looked_at(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], files: list[str], bad: int
    ) -> None:
        for number, name in enumerate(files):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            value = np.nan if number == bad % len(files) else 1.0
            write_safetensors(tmp_path / name, {"w.weight": np.full(3, value, np.float32)})
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--no-cache")
        assert (answer.code, "NaN in 1 tensor" in answer.out) == (1, True)

    def test_the_parts_of_tensor_parallel_ranks_are_ranks(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            write_safetensors(tmp_path / f"consolidated.{rank:02}.safetensors", {"w": np.ones(3, np.float32)})
        assert open_source(tmp_path).ranks() == [0, 1]
