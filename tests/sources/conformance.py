"""What every Source promises. Subclass, and give a ``source`` fixture.

Where opening one takes long, several tests may be given the same ``source``; ``fresh`` is nobody else's then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from tui_debugger import opener
from tui_debugger.errors import CancelledError
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Progress, Side, turns
from tui_debugger.sources.base import Argument, Capability, Source, TensorFlag, TensorSlot, TensorTable
from tui_debugger.stats.npy import open_array


def pairs(source: Source) -> Iterator[tuple[int, int, TensorTable]]:
    for rank in source.ranks():
        for step in source.steps(rank):
            yield rank, step, source.tensors(rank, step)


def asked(source: Source) -> dict[int, list[int]]:
    """The steps by rank that the opened path asks about."""
    return {rank: list(source.scope.steps(source, rank)) for rank in source.scope.ranks(source)}


def flat(values: Iterable[Argument]) -> Iterator[Argument]:
    """Arguments, those in tuples and dicts one by one."""
    for value in values:
        if isinstance(value, tuple):
            yield from flat(value)
        elif isinstance(value, dict):
            yield from flat(value.values())
        else:
            yield value


def _class(nodes: NodeTable, table: TensorTable, row: int) -> int:
    """0 operators, 1 parameters, 2 constants."""
    constant = bool(table.flags[row] & TensorFlag.CONSTANT)
    return 2 if constant else {"Parameter": 1, "Constant": 2}.get(nodes.op_type(int(table.node[row])), 0)


def _runs(nodes: NodeTable, table: TensorTable) -> list[list[int]]:
    """The rows of each run of each graph, constants apart."""
    runs: dict[tuple[int, int], list[int]] = {}
    for row in range(len(table)):
        if _class(nodes, table, row) < 2:
            run = nodes.graph_of(int(table.node[row])).root_id, int(table.round[row])
            runs.setdefault(run, []).append(row)
    return list(runs.values())


class SourceConformance:
    @pytest.fixture
    def source(self) -> Iterator[Source]:
        raise NotImplementedError

    @pytest.fixture
    def fresh(self, source: Source) -> Source:
        """For tests that close it, or stop its work."""
        return source

    def test_ranks_ascend_and_steps_do_not_repeat(self, source: Source) -> None:
        assert list(source.ranks()) == sorted(set(source.ranks())) != []
        for rank in source.ranks():
            assert len(set(source.steps(rank))) == len(source.steps(rank))

    def test_info_names_the_layout_and_notices_are_texts_without_repeats(self, source: Source) -> None:
        for _ in pairs(source):
            pass
        assert source.info.layout
        assert all(source.info.notices)
        assert len(set(source.info.notices)) == len(source.info.notices)

    def test_a_graph_capability_means_edges(self, source: Source) -> None:
        edges = any(len(source.nodes(rank).in_node) for rank in source.ranks())
        assert bool(source.capabilities & Capability.GRAPH) == edges

    def test_tables_are_sorted_by_order_and_unique(self, source: Source) -> None:
        for _, _, table in pairs(source):
            assert np.all(np.diff(table.order) > 0)
            columns = (table.node, table.side, table.slot, table.round)
            keys = list(zip(*(column.tolist() for column in columns), strict=True))
            assert len(set(keys)) == len(keys) == len(table)

    def test_columns_have_their_types_and_cannot_be_written(self, source: Source) -> None:
        types = {"node": "i4", "side": "u1", "slot": "i2", "flags": "u1", "order": "i4", "timestamp": "i8"}
        for _, _, table in pairs(source):
            for name, dtype in types.items():
                column = getattr(table, name)
                assert column.dtype == dtype
                assert not column.flags.writeable

    def test_inputs_of_a_node_come_before_its_outputs_by_slot(self, source: Source) -> None:
        for _, _, table in pairs(source):
            for node in set(table.node.tolist()):
                of_node = table.of_node(node)
                keys = [(int(table.side[i]), int(table.slot[i])) for i in of_node]
                assert keys == sorted(keys)
                assert list(of_node) == sorted(of_node)

    def test_node_rows_are_in_the_node_table(self, source: Source) -> None:
        for rank, _, table in pairs(source):
            nodes = source.nodes(rank)
            assert table.node.min(initial=0) >= 0
            assert table.node.max(initial=-1) < len(nodes)

    def test_parameters_come_after_the_operators_of_their_run_and_constants_last(self, source: Source) -> None:
        for rank, _, table in pairs(source):
            nodes = source.nodes(rank)
            classes = [_class(nodes, table, row) for row in range(len(table))]
            assert [each == 2 for each in classes] == sorted(each == 2 for each in classes)
            for rows in _runs(nodes, table):
                assert [classes[row] for row in rows] == sorted(classes[row] for row in rows)

    def test_operators_of_a_run_come_in_execution_order(self, source: Source) -> None:
        for rank, _, table in pairs(source):
            nodes = source.nodes(rank)
            for rows in _runs(nodes, table):
                order = nodes.order[table.node[rows]]
                assert np.all(np.diff(order[order >= 0]) >= 0)

    def test_later_rounds_stand_behind_earlier_ones_and_are_younger(self, source: Source) -> None:
        for _, _, table in pairs(source):
            seen: dict[tuple[int, int, int], tuple[int, int]] = {}
            columns = (table.node, table.side, table.slot, table.round, table.timestamp)
            for node, side, slot, number, time in zip(*(column.tolist() for column in columns), strict=True):
                earlier = seen.get((node, side, slot))
                assert earlier is None or earlier < (number, time)
                seen[node, side, slot] = number, time

    def test_find_and_of_node_agree(self, source: Source) -> None:
        for _, _, table in pairs(source):
            for i in range(len(table)):
                node, side, slot = int(table.node[i]), Side(int(table.side[i])), int(table.slot[i])
                assert table.find(node, side, slot, int(table.round[i])) == i or not table.round[i]
                newest = table.find(node, side, slot)
                assert newest >= i
                assert newest in table.of_node(node)
                assert i in table.of_node(node, every=True)
            assert table.find(2**31 - 1, Side.INPUT, 0) == -1
            assert table.find(0, Side.INPUT, 999) == -1
            assert table.find(-1, Side.INPUT, 0) == -1
            assert len(table.of_node(2**31 - 1)) == len(table.of_node(-1)) == 0

    def test_every_value_can_be_read_or_has_recorded_statistics(self, source: Source) -> None:
        for _, _, table in pairs(source):
            for i in range(len(table)):
                if table.flags[i] & TensorFlag.STAT_ONLY:
                    assert table.recorded(i) is not None
                else:
                    open_array(table.spec(i))

    def test_specs_are_the_columns_of_spec(self, source: Source) -> None:
        for _, _, table in pairs(source):
            rows = np.flatnonzero(~(table.flags & TensorFlag.STAT_ONLY).astype(np.bool_))
            for some in (rows, rows[::-2], rows[:0]):
                specs = table.specs(some)
                assert len(specs) == len(some)
                assert specs.kind.dtype == np.int32
                assert list(map(specs.spec, range(len(some)))) == [table.spec(i) for i in some.tolist()]
                assert all(kind.path == "" for kind in specs.kinds)
                assert len(set(specs.kinds)) == len(specs.kinds)

    def test_file_states_are_those_of_the_files(self, source: Source) -> None:
        for _, _, table in pairs(source):
            rows = np.arange(len(table))[::-1]
            sizes, times = table.file_states(rows)
            assert sizes.dtype == times.dtype == np.int64
            for i, size, time in zip(rows.tolist(), sizes.tolist(), times.tolist(), strict=True):
                if table.flags[i] & TensorFlag.STAT_ONLY:
                    assert (size, time) == (-1, 0)
                else:
                    status = opener.stat(table.spec(i).path)
                    assert size == status.st_size
                    assert time in {opener.state_of(status), 0}

    def test_a_digest_names_the_files_of_one_table(self, source: Source) -> None:
        digests = [table.digest for _, _, table in pairs(source)]
        assert {len(digest) for digest in digests} <= {0, 16}
        known = [digest for digest in digests if digest]
        assert len(set(known)) == len(known)

    def test_graphs_hold_the_nodes_and_nothing_is_recorded_of_what_was_not_dumped(self, source: Source) -> None:
        for rank in source.ranks():
            graphs = source.graphs(rank)
            assert bool(graphs) <= bool(source.capabilities & Capability.GRAPH)
            assert sum(len(graph.nodes) for graph in graphs) <= len(source.nodes(rank))
            missing = max(source.steps(rank), default=0) + 1000
            assert source.recorded_rows(rank, missing) is None
            for step in source.steps(rank):
                rows = list(source.recorded_rows(rank, step) or ())
                assert all(row.keys() >= {"Op Name", "IO", "Slot"} for row in rows)

    def test_who_wrote_a_file_is_told_by_its_name_or_not_at_all(self, source: Source) -> None:
        for _, _, table in pairs(source):
            for index in np.flatnonzero((table.flags & TensorFlag.STAT_ONLY) == 0)[:20].tolist():
                by = source.written_by(table.spec(index))
                if by is not None:
                    assert by.timestamp == table.timestamp[index]
                    assert by.op_type
                    assert by.op_name

    def test_the_previous_run_is_dumped_and_ran_before(self, source: Source) -> None:
        for rank in source.ranks():
            runs = [run for run in source.history(rank) if run.has_data]
            turn = {(run.root_graph, run.step, run.round): run.turn for run in runs}
            for run in runs:
                before = source.previous_run(rank, run.root_graph, run.step, run.round)
                if before is not None:
                    assert turn[(run.root_graph, *before)] < run.turn
                    others = [each for each in runs if each.root_graph == run.root_graph]
                    between = [each for each in others if turn[(run.root_graph, *before)] < each.turn < run.turn]
                    assert not between
            last = max(source.steps(rank), default=0) + 1
            for info in source.nodes(rank).graphs:
                newest = source.previous_run(rank, info.root_id, last)
                assert newest is None or (info.root_id, *newest) in turn

    def test_the_history_is_in_the_order_of_the_runs_and_knows_every_dumped_step(self, source: Source) -> None:
        for rank in source.ranks():
            runs = source.history(rank)
            assert [run.turn for run in runs] == turns([run.step for run in runs])
            assert len({(run.step, run.root_graph, run.round) for run in runs}) == len(runs)
            dumped = list(dict.fromkeys(run.step for run in runs if run.has_data))
            assert dumped == list(source.steps(rank))

    def test_a_table_names_every_writing_and_finds_the_newest(self, source: Source) -> None:
        for rank in source.ranks():
            for step in source.steps(rank):
                table = source.tensors(rank, step)
                columns = (table.node.tolist(), table.side.tolist(), table.slot.tolist())
                keys = list(zip(*columns, table.round.tolist(), strict=True))
                assert len(set(keys)) == len(keys)
                newest = {key[:3]: index for index, key in enumerate(keys)}
                assert table.find_all(*columns).tolist() == [newest[key[:3]] for key in keys]
                for index, (node, side, slot, number) in list(enumerate(keys))[:50]:
                    assert table.find(node, Side(side), slot, number) == (index if number else newest[node, side, slot])

    def test_a_step_that_is_not_dumped_is_empty(self, source: Source) -> None:
        for rank in source.ranks():
            missing = max(source.steps(rank), default=0) + 1000
            assert len(source.tensors(rank, missing)) == 0

    def test_tables_are_kept(self, source: Source) -> None:
        for rank, step, table in pairs(source):
            assert source.tensors(rank, step) is table

    def test_refresh_on_a_static_source_finds_nothing(self, fresh: Source) -> None:
        for rank in fresh.ranks():
            fresh.nodes(rank)
        before = [table for _, _, table in pairs(fresh)]
        fresh.refresh()  # may tell that listing steps found more nodes
        assert not fresh.refresh()
        assert all(old is new for old, (_, _, new) in zip(before, pairs(fresh), strict=True))

    def test_a_progress_that_cancels_stops_the_work_and_a_second_try_works(self, fresh: Source) -> None:
        def cancel(_: Progress) -> None:
            raise CancelledError("stopped")

        rank = fresh.ranks()[0]
        step = fresh.steps(rank)[0]
        with contextlib.suppress(CancelledError):
            fresh.tensors(rank, step, cancel)
        assert len(fresh.tensors(rank, step)) > 0

    def test_what_is_asked_about_is_there(self, source: Source) -> None:
        assert asked(source)
        for rank, steps in asked(source).items():
            assert rank in source.ranks()
            assert set(steps) <= set(source.steps(rank))

    def test_watch_paths_exist_and_are_few(self, source: Source) -> None:
        for _ in pairs(source):
            pass
        assert len(source.watch_paths()) < 40 * len(source.ranks()) + 2
        assert len(set(source.watch_paths())) == len(source.watch_paths())

    def test_close_can_be_called_twice(self, fresh: Source) -> None:
        for _ in pairs(fresh):
            break
        fresh.close()
        fresh.close()

    def test_arguments_name_an_input_slot_once(self, source: Source) -> None:
        for rank, step, table in pairs(source):
            for node in set(table.node.tolist()):
                call = source.arguments(rank, step, node)
                if call is None:
                    continue
                values = (*call.positional, *call.keywords.values(), *(call.parameters or {}).values())
                slots = [each.slot for each in flat(values) if isinstance(each, TensorSlot)]
                assert len(set(slots)) == len(slots)

    def test_nobody_knows_the_arguments_of_a_node_that_is_not_there(self, source: Source) -> None:
        for rank in source.ranks():
            for step in source.steps(rank)[:1]:
                assert source.arguments(rank, step, 2**31 - 1) is None
