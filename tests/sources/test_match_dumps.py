"""Files of real dumps hang on the right nodes: checked edge by edge, at every step, by code that shares nothing with
the matcher but the parsed graph and the parsed file names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sources.file_names import parse_name
from tests.sources.matching import match_files
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import ParsedGraph, ParsedNode, read_graph
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.mindspore.match import FileGroup, GroupMatch, flatten
from tui_debugger.sources.mindspore.order_files import read_order

STEPS = range(6)
ROUTING = {"Load", "Depend", "UpdateState", "MakeTuple", "TupleGetItem"}
Key = tuple[str, str]
Dumps = Callable[[str], Path]


@dataclass(frozen=True)
class Step:
    """The files of one step by name."""

    groups: tuple[FileGroup, ...]
    paths: tuple[Path, ...]

    def load(self, index: int) -> npt.NDArray[Any]:
        return np.load(self.paths[index])

    def contents(self) -> dict[Key, dict[tuple[int, int], bytes]]:
        return {
            group.key: {(side, slot): self.load(index).tobytes() for side, slot, index in group.files}
            for group in self.groups
        }


class Dump:
    """A real dump, read without the program's own source."""

    def __init__(self, path: Path) -> None:
        rank = path / "rank_0"
        self.graph: ParsedGraph = read_graph(next((rank / "graphs").glob("*.pb")))
        orders = next((rank / "execution_order").glob("ms_execution_order_graph_*.csv"))
        self.table: NodeTable = build_table([self.graph], {0: read_order(orders).names})
        self._data = next(path for path in rank.glob("*/0") if path.is_dir())
        self.step = cache(self._step)
        self.contents = cache(lambda number: self.step(number).contents())

    def _step(self, number: int) -> Step:
        files: dict[Key, list[tuple[int, int, int, int]]] = defaultdict(list)
        paths = sorted((self._data / str(number)).glob("*.npy"))
        for index, path in enumerate(paths):
            name = parse_name(path.name)
            assert name is not None
            files[name.op_type, name.op_name].append((name.side, name.slot, index, name.timestamp))
        groups = (
            FileGroup(*key, tuple((side, slot, index) for side, slot, index, _ in found), min(f[3] for f in found))
            for key, found in files.items()
        )
        return Step(tuple(groups), tuple(paths))

    def match(self, number: int, **options: Any) -> GroupMatch:
        step = self.step(number)
        return match_files(self.table, step.groups, step.load, **options)

    def placed(self, match: GroupMatch) -> dict[str, Key]:
        """Name of the files that hang on each node."""
        return {self.table.names[row]: key for key, row in zip(match.keys, match.node, strict=True) if row >= 0}

    def by_name(self) -> dict[str, Key]:
        """What spelling alone says: the naive match."""
        parameters = [(p.name, "Parameter", (p.name, p.name.replace(".", "_"))) for p in self.graph.parameters]
        operators = [
            (n.full_name, n.op_type, (n.full_name.rpartition("/")[2], n.full_name.replace("/", "_")))
            for n in self.graph.nodes
        ]
        files = self.contents(0)
        return {
            node: (op_type, spelling)
            for node, op_type, spellings in parameters + operators
            for spelling in spellings
            if (op_type, spelling) in files
        }


def producer(graph: ParsedGraph, name: str) -> tuple[str, str, int]:
    """(kind, canonical name, slot) of what one input name of a node stands for."""
    nodes = {node.index: node for node in graph.nodes}
    numbers = {constant.key: constant.number for constant in graph.constants}
    slot = 0
    while name in nodes and nodes[name].op_type in ROUTING:
        node: ParsedNode = nodes[name]
        if node.op_type == "UpdateState":
            return "memory", name, 0
        assert node.op_type != "MakeTuple", "no operator of these dumps takes a tuple"
        name, slot = node.inputs[0], numbers[node.inputs[1]] or 0 if node.op_type == "TupleGetItem" else slot
    if name in nodes:
        return "operator", nodes[name].full_name, slot
    return ("constant" if name in numbers else "parameter"), name, slot


def judge(dump: Dump, placed: Mapping[str, Key], number: int) -> tuple[Counter[str], list[str]]:
    """Compares the bytes of every input file with the bytes of its producer's output file: (outcomes, wrong edges)."""
    files = dump.contents(number)
    before = dump.contents(number - 1) if number else {}
    outcomes: Counter[str] = Counter()
    wrong = []
    constants: dict[str, set[bytes]] = defaultdict(set)
    for node in dump.graph.nodes:
        if node.op_type in ROUTING:
            continue
        if node.full_name not in placed:
            outcomes["node without files"] += 1
            continue
        for slot, name in enumerate(node.inputs):
            seen = files[placed[node.full_name]].get((0, slot))
            kind, source, source_slot = producer(dump.graph, name)
            if seen is None:
                assert kind in {"constant", "memory"}, "every tensor input has a file"
                continue
            if kind == "constant":
                constants[source].add(seen)
                outcomes["constant"] += 1
                continue
            made = files.get(placed.get(source, ("", "")), {}).get((1, source_slot))
            earlier = before.get(placed.get(source, ("", "")), {}).get((1, source_slot))
            if made is None:
                outcomes[f"{kind} without file"] += 1
            elif seen == made:
                outcomes[f"{kind} equal"] += 1
            elif kind == "parameter" and seen == earlier:
                outcomes["parameter of the step before"] += 1
            elif kind == "parameter" and not number:
                outcomes["parameter of before the first step"] += 1
            else:
                wrong.append(f"{source}:{source_slot} -> {node.full_name}:{slot}")
    wrong += [f"{key} holds {len(values)} values" for key, values in constants.items() if len(values) > 1]
    return outcomes, wrong


@pytest.fixture(scope="module")
def dump(dumps: Dumps) -> Callable[[str], Dump]:
    return cache(lambda name: Dump(dumps(name)))


def by_names_alone(dump: Dump) -> list[int]:
    return [len(judge(dump, dump.by_name(), number)[1]) for number in STEPS]


class TestNamesAlone:
    """What goes wrong without looking at the bytes."""

    def test_six_edges_of_2_10_nan_carry_the_wrong_tensor(self, dump: Callable[[str], Dump]) -> None:
        assert by_names_alone(dump("mindspore-2.10-nan")) == [6, 6, 6, 6, 4, 4]  # from step 4 on NaN equals NaN

    def test_the_other_dumps_have_no_wrong_edge(self, dump: Callable[[str], Dump]) -> None:
        for name in ("mindspore-2.10-mlp", "mindspore-2.0-mlp", "mindspore-2.0-nan"):
            assert by_names_alone(dump(name)) == [0] * 6, name

    def test_six_addn_nodes_have_no_files_of_their_name(self, dump: Callable[[str], Dump]) -> None:
        for name, count in (("mindspore-2.10-nan", 5), ("mindspore-2.10-mlp", 1)):
            each = dump(name)
            assert judge(each, each.by_name(), 0)[0]["node without files"] == count


class TestMatched:
    """What comes out when data flow decides."""

    @pytest.mark.parametrize("name", ["mindspore-2.10-nan", "mindspore-2.10-mlp"])
    def test_no_edge_is_wrong_at_any_step(self, dump: Callable[[str], Dump], name: str) -> None:
        each = dump(name)
        match = each.match(0)
        assert not match.uncertain.any()
        assert not match.open
        assert (match.node >= 0).all()
        for number in STEPS:
            assert judge(each, each.placed(match), number)[1] == [], f"step {number}"

    def test_every_edge_of_2_10_nan_is_accounted_for(self, dump: Callable[[str], Dump]) -> None:
        each = dump("mindspore-2.10-nan")
        placed = each.placed(each.match(0))
        always = {"operator equal": 338, "constant": 278}
        first = {"parameter equal": 143, "parameter of before the first step": 53}
        later = {"parameter equal": 143, "parameter of the step before": 53}
        assert judge(each, placed, 0)[0] == Counter(always | first)
        assert judge(each, placed, 3)[0] == Counter(always | later)

    def test_every_edge_of_2_10_mlp_is_accounted_for(self, dump: Callable[[str], Dump]) -> None:
        each = dump("mindspore-2.10-mlp")
        placed = each.placed(each.match(0))
        later = {"operator equal": 55, "constant": 39, "parameter equal": 61, "parameter of the step before": 8}
        assert judge(each, placed, 5)[0] == Counter(later)

    @pytest.mark.covering
    @pytest.mark.parametrize("name", ["mindspore-2.10-nan", "mindspore-2.10-mlp"])
    @pytest.mark.parametrize("number", STEPS)
    def test_each_step_alone_gives_the_same_answer(self, dump: Callable[[str], Dump], name: str, number: int) -> None:
        # Even steps 4 and 5, where every weight is NaN: there timestamps decide what the bytes do not.
        each = dump(name)
        match = each.match(number)
        assert not match.uncertain.any()
        assert each.placed(match) == each.placed(each.match(0))

    @pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.0-mlp"])
    def test_scope_less_names_are_exact_and_nothing_is_read(self, dump: Callable[[str], Dump], name: str) -> None:
        each = dump(name)

        def refuse(index: int) -> npt.NDArray[Any]:
            raise AssertionError(f"file {index} was read")

        match = match_files(each.table, each.step(0).groups, refuse)
        assert not match.uncertain.any()
        assert each.placed(match) == each.by_name()
        for number in STEPS:
            assert judge(each, each.placed(match), number)[1] == []

    def test_names_with_double_dashes_are_exact(self, dump: Callable[[str], Dump]) -> None:
        each = dump("mindspore-2.0-mlp")
        full = {node.full_name.rpartition("/")[2]: node.full_name for node in each.graph.nodes}
        groups = [replace(g, op_name=full.get(g.op_name, g.op_name).replace("/", "--")) for g in each.step(0).groups]
        match = match_files(each.table, groups, lambda _: pytest.fail("names decide"))
        assert match.node.tolist() == each.match(0).node.tolist()
        assert not match.uncertain.any()

    def test_constants_are_found_by_their_full_name(self, dump: Callable[[str], Dump]) -> None:
        each = dump("mindspore-2.0-nan")
        groups = [FileGroup("Parameter", name, ((1, 0, 0),)) for name in ("data-0", "Default--data-1", "data-99")]
        node = match_files(each.table, groups, lambda _: pytest.fail("names decide")).node
        assert [each.table.names[row] if row >= 0 else None for row in node] == ["cst1", "cst2", None]


def renumbered(groups: Iterable[FileGroup], seed: int, *, timestamps: bool = True) -> tuple[FileGroup, ...]:
    """The same files with their ``-opN`` numbers dealt out anew inside each scope and type."""
    pick = np.random.default_rng(seed)
    groups = list(groups)
    alike: dict[Key, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        if group.op_type != "Parameter":
            alike[group.op_type, re.sub(r"-op\d+$", "", group.op_name)].append(index)
    for members in alike.values():
        names = [groups[index].op_name for index in pick.permutation(members)]
        for index, name in zip(members, names, strict=True):
            groups[index] = replace(groups[index], op_name=name)
    return tuple(group if timestamps else replace(group, timestamp=0) for group in groups)


@pytest.fixture(scope="module")
def nan(dumps: Dumps) -> Dump:
    return Dump(dumps("mindspore-2.10-nan"))


@pytest.fixture(scope="module")
def truth(nan: Dump) -> dict[tuple[int, ...], int]:
    """Right node by the files of a group."""
    match = nan.match(0)
    return {
        tuple(index for _, _, index in group.files): int(row)
        for group, row in zip(nan.step(0).groups, match.node, strict=True)
    }


class TestDamaged:
    """The real dumps with names, files or whole operators taken away: what is called certain stays right."""

    def agreement(
        self, truth: Mapping[tuple[int, ...], int], groups: Iterable[FileGroup], match: GroupMatch
    ) -> Counter[str]:
        """How many groups were placed, by outcome; groups whose files were cut are recognised by what is left."""
        by_file = {index: row for files, row in truth.items() for index in files}
        outcomes: Counter[str] = Counter()
        for group, row, doubt in zip(groups, match.node.tolist(), match.uncertain.tolist(), strict=True):
            right = row == by_file[group.files[0][2]]
            outcomes["uncertain" if doubt else "right" if right else "wrong"] += 1
        return outcomes

    @pytest.mark.parametrize("seed", range(4))
    def test_shuffled_numbers_are_seen_through_by_data_flow_alone(self, nan: Dump, truth: Any, seed: int) -> None:
        groups = renumbered(nan.step(0).groups, seed, timestamps=False)
        match = match_files(nan.table, groups, nan.step(0).load)
        assert self.agreement(truth, groups, match) == {"right": len(groups)}

    @pytest.mark.parametrize("side", [0, 1])
    def test_dumps_of_one_side_only(self, nan: Dump, truth: Any, side: int) -> None:
        kept = (replace(g, files=tuple(f for f in g.files if f[0] == side)) for g in nan.step(0).groups)
        groups = renumbered((group for group in kept if group.files), 1)
        outcomes = self.agreement(truth, groups, match_files(nan.table, groups, nan.step(0).load))
        assert outcomes["wrong"] == 0
        assert outcomes["right"] > 100

    @pytest.mark.parametrize("seed", range(3))
    def test_dumps_of_some_operators_only(self, nan: Dump, truth: Any, seed: int) -> None:
        pick = np.random.default_rng(seed)
        groups = renumbered((g for g in nan.step(0).groups if pick.random() < 0.6), seed)
        outcomes = self.agreement(truth, groups, match_files(nan.table, groups, nan.step(0).load))
        assert outcomes["wrong"] == 0
        assert outcomes["right"] > 100

    def test_unreadable_files_are_evidence_for_nothing(self, nan: Dump, truth: Any) -> None:
        def load(index: int) -> npt.NDArray[Any]:
            if index % 5 == 0:
                raise UnreadableTensorError("cut off")
            return nan.step(0).load(index)

        groups = renumbered(nan.step(0).groups, 5)
        outcomes = self.agreement(truth, groups, match_files(nan.table, groups, load))
        assert outcomes["wrong"] == 0
        assert outcomes["right"] > 300

    def test_without_any_readable_file_timestamps_decide_what_they_can(self, nan: Dump, truth: Any) -> None:
        def load(_: int) -> npt.NDArray[Any]:
            raise UnreadableTensorError("statistics only")

        groups = nan.step(0).groups
        outcomes = self.agreement(truth, groups, match_files(nan.table, groups, load))
        assert outcomes["wrong"] == 0
        assert outcomes["uncertain"] > 0

    def test_corrupted_bytes_cast_doubt_and_mislead_nobody(self, nan: Dump, truth: Any) -> None:
        groups = renumbered(nan.step(0).groups, 7)
        victims = {group.files[0][2] for group in groups[::40] if group.op_type not in {"Parameter", "Adam"}}

        def load(index: int) -> npt.NDArray[Any]:
            array = nan.step(0).load(index)
            return array + 1 if index in victims else array

        outcomes = self.agreement(truth, groups, match_files(nan.table, groups, load))
        assert outcomes["wrong"] == 0
        assert 0 < outcomes["uncertain"] < 40

    def test_a_degenerate_step_is_completed_by_another(self, nan: Dump) -> None:
        # Timestamps taken away, all-NaN tensors say nothing: step 0 then decides what step 4 left open.
        blind = match_files(nan.table, renumbered(nan.step(4).groups, 0, timestamps=False), nan.step(4).load)
        groups = renumbered(nan.step(0).groups, 0, timestamps=False)
        match = match_files(nan.table, groups, nan.step(0).load, earlier=blind)
        assert len(blind.open) > 50
        assert blind.uncertain.any()
        assert not match.open
        assert not match.uncertain.any()
        alone = match_files(nan.table, groups, nan.step(0).load)
        assert match.node.tolist() == alone.node.tolist()


def test_flattening_covers_both_separators_and_dots() -> None:
    assert flatten("Default/net-A/fc1.weight") == flatten("Default--net-A--fc1.weight") == "Default_net-A_fc1_weight"
