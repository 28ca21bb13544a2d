"""The matcher on random graphs, against brute force over all assignments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.matching import Files, graph, match_files, names, node
from tests.thorough import examples
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.mindspore.match import NOWHERE, FileGroup


@dataclass(frozen=True)
class Op:
    """One operator of a random program: what it reads (earlier operators, ``w0`` ..., ``cst1`` ...), what it makes."""

    kind: int
    inputs: tuple[str, ...]
    value: int


@dataclass(frozen=True)
class Program:
    ops: tuple[Op, ...]
    parameters: tuple[int, ...]
    constants: tuple[int, ...]
    dealt: tuple[int, ...]
    """A shuffle that decides which number the files of each operator carry."""
    dumped: tuple[bool, ...]

    def value(self, source: str) -> int:
        table = {"w": self.parameters, "c": (0, *self.constants)}.get(source[0])
        return self.ops[int(source)].value if table is None else table[int(source.lstrip("wcst"))]


@st.composite
def programs(draw: st.DrawFn, *, partial: bool = False) -> Program:
    alphabet = st.integers(0, draw(st.sampled_from([0, 1, 3, 50])))
    parameters = draw(st.lists(alphabet, min_size=1, max_size=3))
    constants = draw(st.lists(alphabet, max_size=2))
    ops: list[Op] = []
    sources = [f"w{i}" for i in range(len(parameters))] + [f"cst{i + 1}" for i in range(len(constants))]
    for number in range(draw(st.integers(1, 7))):
        inputs = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=2))
        ops.append(Op(draw(st.integers(0, 1)), tuple(inputs), draw(alphabet)))
        sources.append(str(number))
    dealt = draw(st.permutations(range(len(ops))))
    dumped = [draw(st.integers(0, 3)) > 0 if partial else True for _ in ops]
    return Program(tuple(ops), tuple(parameters), tuple(constants), tuple(dealt), tuple(dumped))


KINDS = ("Mul", "Add")


def table_of(program: Program) -> NodeTable:
    """The graph; operators read each other through Depend and parameters through Load, as in real graphs."""
    nodes = []
    for number, op in enumerate(program.ops):
        inputs = []
        for place, source in enumerate(op.inputs):
            if source.startswith("cst"):
                inputs.append(source)
                continue
            route = 1000 + 10 * number + place
            load = "Load" if source[0] == "w" else "Depend"
            nodes.append(node(route, f"S/{load}-op{route}", source))
            inputs.append(str(route))
        nodes.append(node(number, f"S/{KINDS[op.kind]}-op{number}", *inputs))
    return graph(
        *nodes,
        parameters=[f"w{i}" for i in range(len(program.parameters))],
        constants=[""] * len(program.constants),
    )


def groups_of(program: Program, files: Files, *, timestamps: bool) -> list[FileGroup]:
    """Operators first, in graph order, then parameters. Constants have no files, as in 2.10."""
    kinds: dict[int, list[int]] = defaultdict(list)
    for number in program.dealt:
        kinds[program.ops[number].kind].append(number)
    shuffled = {kind: iter(members) for kind, members in kinds.items()}
    groups = []
    for number, op in enumerate(program.ops):
        label = next(shuffled[op.kind])
        if program.dumped[number]:
            inputs = [program.value(source) for source in op.inputs]
            kind = KINDS[op.kind]
            groups.append(files.group(kind, f"S_{kind}-op{label}", inputs, [op.value], (number + 1) * timestamps))
    for i, value in enumerate(program.parameters):
        groups.append(files.group("Parameter", f"w{i}", [], [value], 10_000 * timestamps))
    return groups


def assignments(program: Program) -> Iterator[dict[int, int]]:
    """Every way to hang the dumped operators' files on nodes that no equality of data flow rules out: files by node."""
    places = []
    for kind in (0, 1):
        members = [number for number, op in enumerate(program.ops) if op.kind == kind]
        dumped = [number for number in members if program.dumped[number]]
        places.append([dict(zip(chosen, dumped, strict=True)) for chosen in permutations(members, len(dumped))])
    for first, second in product(*places):
        hung = first | second
        if all(len(program.ops[files].inputs) <= len(program.ops[at].inputs) for at, files in hung.items()) and (
            _consistent(program, hung)
        ):
            yield hung


def _consistent(program: Program, hung: dict[int, int]) -> bool:
    seen: dict[str, set[int]] = defaultdict(set)
    for i, value in enumerate(program.parameters):
        seen[f"w{i}"].add(value)
    for at, files in hung.items():
        seen[str(at)].add(program.ops[files].value)
        values = [program.value(source) for source in program.ops[files].inputs]
        for source, value in zip(program.ops[at].inputs, values, strict=False):
            seen[source].add(value)
    return all(len(values) == 1 for values in seen.values())


def content(program: Program, number: int) -> tuple[object, ...]:
    op = program.ops[number]
    return (*(program.value(source) for source in op.inputs), "makes", op.value)


@examples(300)
@given(programs() | programs(partial=True))
def test_certain_and_uncertain_are_what_brute_force_says(program: Program) -> None:
    files = Files()
    groups = groups_of(program, files, timestamps=False)
    table = table_of(program)
    match = match_files(table, groups, files.load)
    dumped = [number for number in range(len(program.ops)) if program.dumped[number]]
    ways = list(assignments(program))
    possible: dict[int, set[object]] = defaultdict(set)
    for hung in ways:
        for at in range(len(program.ops)):
            possible[at].add(content(program, hung[at]) if at in hung else None)
    row_of = {table.find(f"S/{KINDS[op.kind]}-op{number}"): number for number, op in enumerate(program.ops)}
    chosen = {}
    for index, number in enumerate(dumped):
        own = content(program, number)
        able = [at for at, op in enumerate(program.ops) if op.kind == program.ops[number].kind and own in possible[at]]
        place = row_of[int(match.node[index])]
        assert place in able
        assert bool(match.uncertain[index]) == any(len(possible[at]) > 1 for at in able)
        chosen[place] = number
    assert {at: content(program, files_of) for at, files_of in chosen.items()} in [
        {at: content(program, files_of) for at, files_of in hung.items()} for hung in ways
    ]


@examples(150)
@given(programs() | programs(partial=True))
def test_with_timestamps_what_is_certain_is_true_and_what_is_open_holds_the_truth(program: Program) -> None:
    files = Files()
    groups = groups_of(program, files, timestamps=True)
    table = table_of(program)
    match = match_files(table, groups, files.load)
    blind = match_files(table, groups_of(program, Files(), timestamps=False), files.load)
    dumped = [number for number in range(len(program.ops)) if program.dumped[number]]
    for index, number in enumerate(dumped):
        true = table.find(f"S/{KINDS[program.ops[number].kind]}-op{number}")
        assert true in match.open.get(index, (int(match.node[index]),))
    assert match.uncertain.sum() <= blind.uncertain.sum()


@examples(50)
@given(st.integers(2, 40), st.randoms(use_true_random=False), st.booleans())
def test_distinct_values_recover_the_true_assignment(count: int, pick: Any, chained: bool) -> None:
    # Every operator reads a parameter of its own, and possibly an earlier operator.
    feeds = [(f"w{i}", str(pick.randrange(i))) if chained and i else (f"w{i}",) for i in range(count)]
    table = graph(
        *(node(i, f"S/Mul-op{i}", *feed) for i, feed in enumerate(feeds)),
        parameters=[f"w{i}" for i in range(count)],
    )
    files = Files()
    labels = list(range(count))
    pick.shuffle(labels)
    groups = [
        files.group("Mul", f"S_Mul-op{labels[i]}", [int(s) if s.isdigit() else 1000 + i for s in feed], [i])
        for i, feed in enumerate(feeds)
    ]
    groups += [files.group("Parameter", f"w{i}", [], [1000 + i]) for i in range(count)]
    match = match_files(table, groups, files.load)
    assert names(table, match)[:count] == [f"S/Mul-op{i}" for i in range(count)]
    assert not match.uncertain.any()


@examples(100)
@given(programs(partial=True), st.data())
def test_whatever_the_values_are_every_node_gets_one_group_at_most(program: Program, data: st.DataObject) -> None:
    files = Files()
    groups = groups_of(program, files, timestamps=data.draw(st.booleans()))
    files.arrays = [np.full(4, data.draw(st.integers(0, 2)), np.float32) for _ in files.arrays]
    table = table_of(program)
    match = match_files(table, groups, files.load)
    hung = [row for row in match.node.tolist() if row != NOWHERE]
    assert len(set(hung)) == len(hung)
    assert all(rows for rows in match.open.values())
    again = [row for row in match_files(table, groups, files.load, earlier=match).node.tolist() if row != NOWHERE]
    assert len(set(again)) == len(again)
