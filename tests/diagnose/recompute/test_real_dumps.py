"""Nothing is wrong in dumps of real trainings, also where they went wrong; what is planted into them is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.linked import linked, own
from tests.session.opened import opened
from tests.thorough import later
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck, check_operator
from tui_debugger.model import Side
from tui_debugger.session.session import Session
from tui_debugger.stats.npy import open_array

Result = OperatorCheck | NotChecked


def checks(session: Session) -> Iterator[tuple[int, int, str, Result]]:
    """Every operator of a run, in every round: rank, step, name, result."""
    for rank in session.ranks():
        for step in session.steps(rank):
            table = session.source.tensors(rank, step)
            nodes = session.nodes(rank)
            updates = [(row, 0) for row in range(len(nodes)) if nodes.op_type(row) in {"Adam", "ApplyMomentum", "SGD"}]
            places = zip(table.node.tolist(), table.round.tolist(), strict=True)
            for row, number in dict.fromkeys([*places, *updates]):
                yield rank, step, nodes.names[row], check_operator(session, rank, step, row, round=number)


DUMPS: dict[str, int] = {
    "mindspore-2.0-mlp": 250,
    "mindspore-2.0-multi-eval": 250,
    "mindspore-2.0-multi-gan": 250,
    "mindspore-2.0-multi-flow": 80,
    "mindspore-2.10-mlp": 250,
    "mindspore-2.10-nan": 1500,
    "mindspore-2.10-multi-eval": 300,
    "mindspore-2.10-multi-gan": 400,
    "mindspore-2.10-multi-flow": 80,
    "mindspore-2.10-multi-order": 300,
    "msprobe-mix": 200,
    "msprobe-L1-nan": 80,
    "msprobe-mindspore": 150,
}
"""Outputs that are checked at least."""


OTHER_GENERATION = {
    *("mindspore-2.0-mlp", "mindspore-2.0-multi-eval", "mindspore-2.10-multi-gan", "mindspore-2.10-multi-flow"),
}
"""Dumps of a network of which the other generation is looked at every day."""


@pytest.mark.parametrize("name", [later(name) if name in OTHER_GENERATION else name for name in DUMPS])
def test_nothing_is_wrong_in_a_real_dump(name: str, dumps: Callable[[str], Path]) -> None:
    least = DUMPS[name]
    path = dumps(name)
    wrong, count = [], 0
    for part in sorted(path.iterdir()) if name == "msprobe-mix" else [path]:
        with closing(opened(part)) as session:
            for rank, step, node, result in checks(session):
                if isinstance(result, OperatorCheck):
                    count += len(result.outputs)
                    wrong += [(rank, step, node, each) for each in result.outputs if each.wrong]
    assert wrong == []
    assert count >= least


def test_every_update_of_a_parameter_is_checked_once_its_value_of_before_is_known(dumps: Callable[[str], Path]) -> None:
    with closing(opened(dumps("mindspore-2.10-nan"))) as session:
        found = Counter(
            (step, result.kind, getattr(result, "reason", ""))
            for _, step, node, result in checks(session)
            if "/Adam-" in node
        )
    first = (0, "adam", "the earlier value of input 0 was not dumped")
    assert found == {first: 34, **{(step, "adam", ""): 34 for step in range(1, 6)}}


def spoil(session: Session, name: str, step: int, change: Callable[[np.ndarray], None]) -> None:
    """Changes the recorded output of a node in its file."""
    table, nodes = session.source.tensors(0, step), session.nodes(0)
    spec = table.spec(table.find(nodes.find(name), Side.OUTPUT, 0))
    values = np.array(open_array(spec)).reshape(-1)
    path = own(Path(spec.path))
    data = path.read_bytes()
    before = values.tobytes()
    assert data.count(before) == 1
    change(values)
    path.write_bytes(data.replace(before, values.tobytes()))


def one_wrong(values: np.ndarray) -> None:
    values[np.argmax(np.abs(values))] *= 1.5


def doubled(values: np.ndarray) -> None:
    values *= 2


def stale(values: np.ndarray) -> None:
    values[:] = np.roll(values, 1)


def recorded(session: Session, name: str, step: int) -> np.ndarray:
    nodes = session.nodes(0)
    return session.read(nodes.key(0, step, nodes.find(name), Side.OUTPUT))


@pytest.mark.covering
@pytest.mark.parametrize("change", [one_wrong, doubled, stale])
@pytest.mark.parametrize("dump", ["mindspore-2.10-mlp", "mindspore-2.0-mlp", "msprobe-L1-nan"])
def test_what_is_planted_is_named(
    dump: str, change: Callable[[np.ndarray], None], dumps: Callable[[str], Path], tmp_path: Path
) -> None:
    path = linked(dumps(dump), tmp_path / "dump")
    with closing(opened(path)) as session:
        step = next(iter(session.steps(0)))
        known = [
            node
            for _, at, node, result in checks(session)
            if at == step and isinstance(result, OperatorCheck) and result.kind in {"matmul", "linear", "tanh", "gelu"}
        ]
        planted = [node for node in known if np.count_nonzero(recorded(session, node, step)) > 1][::3]
        for name in planted:
            spoil(session, name, step, change)
    with closing(opened(path)) as session:
        wrong = {node for _, _, node, result in checks(session) if isinstance(result, OperatorCheck) and result.wrong}
    assert len(planted) >= 4
    assert wrong >= set(planted)


def test_the_sum_of_ranks_is_checked_against_the_inputs_of_all(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    from tests.diagnose.recompute.recording import Call, Recorder

    parts = [torch.randn(4, 5) for _ in range(3)]
    for rank, mine in enumerate(parts):
        recorder = Recorder(tmp_path, rank=rank)
        total = sum(parts) if rank != 2 else parts[0] + parts[2]
        recorder.run(Call("Distributed.all_reduce", lambda _, total=total: total, (mine,)))
        recorder.write()
    with closing(opened(tmp_path)) as session:
        row = session.nodes(0).find("Distributed.all_reduce.0")
        results = [check_operator(session, rank, 0, row) for rank in range(3)]
    assert all(isinstance(each, OperatorCheck) for each in results)
    assert [each.wrong for each in results if isinstance(each, OperatorCheck)] == [False, False, True]
