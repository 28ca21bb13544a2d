"""The audit of a run: what went wrong is named, with how; nothing is named that is right; coverage says all of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.recompute.test_real_dumps import spoil
from tests.linked import linked, own
from tui_debugger.diagnose.audit import UPDATE, AuditReport, Fault, audit, verdict_text
from tui_debugger.errors import TdbgError
from tui_debugger.session.auditing import audit_session, checked_there
from tui_debugger.session.session import Session, open_dump
from tui_debugger.sources import open_source
from tui_debugger.stats.workers import MeasureWorkers

Dumps = Callable[[str], Path]
NAN_RUN, MLP = "mindspore-2.10-nan", "mindspore-2.0-mlp"


@contextmanager
def opened(path: Path) -> Iterator[Session]:
    with closing(Session(open_source(path))) as session:
        session.open()
        yield session


def audited(path: Path, **more: object) -> AuditReport:
    with opened(path) as session:
        return audit(session, session.pairs(), **more)  # type: ignore[arg-type]  # keywords of audit


@pytest.mark.parametrize(
    "name",
    [MLP, NAN_RUN, "mindspore-2.10-multi-gan", "mindspore-2.10-multi-flow", "msprobe-L1-nan", "msprobe-mindspore"],
)
def test_nothing_is_wrong_in_a_real_dump(name: str, dumps: Dumps) -> None:
    report = audited(dumps(name))
    assert (report.findings, report.doubts, report.exit_code) == ((), (), 0)
    assert report.checked > 80


PAIRS = {
    "c_kernels": {},
    "d_sdpa": {},
    "n_prefix": {},
    "k_noreduce": {},
    "e_mul": {"B": "gelu"},
    "e_mul_bf16": {"B": "gelu"},
}
"""Pairs of runs, and the operator that was made wrong in one of them."""


@pytest.mark.parametrize("name", PAIRS)
def test_the_operator_that_was_made_wrong_is_named_from_its_own_run_alone(name: str, dumps: Dumps) -> None:
    for side in ("A", "B"):
        report = audited(dumps("msprobe-pairs") / name / side)
        wrong = PAIRS[name].get(side)
        assert report.exit_code == (1 if wrong else 0)
        assert [(each.kind, each.step) for each in report.findings] == ([(wrong, 1)] if wrong else [])
        if report.headline is not None:
            assert report.headline.name == "b/1/mlp/act/Functional.gelu"
            assert report.headline.shown_by == ("b/1/mlp/act/GELU",)
            assert "times 1.0" in report.headline.text
            assert verdict_text(report) == "1 output wrong, recorded of 2 nodes"
            assert sum(each.wrong for each in report.coverage) == 2


def scaled(values: np.ndarray) -> None:
    values *= np.float32(1.01)


def test_the_headline_is_the_first_whose_inputs_are_sound(dumps: Dumps, tmp_path: Path) -> None:
    path = linked(dumps(MLP), tmp_path / "dump")
    with opened(path) as session:
        names = [name for name in session.nodes(0).names if "Tanh-op" in name or "Sigmoid-op" in name]
        for name in names:
            spoil(session, name, 2, scaled)
    report = audited(path)
    assert {each.name for each in report.findings} == set(names)
    assert [each.place for each in report.findings] == sorted(each.place for each in report.findings)
    headline = report.headline
    assert headline is not None
    assert headline == next(each for each in report.findings if each.sound)
    assert (headline.step, headline.fault) == (2, Fault.OVERWRITTEN)  # what reads it has a file of its own
    assert headline.check.found == pytest.approx(1.01 * headline.check.expected, rel=1e-6)


def test_an_update_that_is_missing_is_named(dumps: Dumps, tmp_path: Path) -> None:
    path = linked(dumps(MLP), tmp_path / "dump")
    (before,), (after,) = (list(path.rglob(f"*/{step}/Parameter.fc1.weight.*.output.0.*")) for step in (1, 2))
    shutil.copy(before, own(after))
    report = audited(path)
    first = report.findings[0]
    assert (first.step, first.kind, first.fault) == (2, "sgd", Fault.NOT_UPDATED)
    assert first.key is not None
    assert first.key.node == "fc1.weight"


@pytest.mark.parametrize("history", [True, False])
def test_an_update_behind_a_step_that_was_not_dumped_is_not_checked(
    history: bool, dumps: Dumps, tmp_path: Path
) -> None:
    """What the parameters were before is what step 3 left, of which nothing was dumped."""
    path = linked(dumps("mindspore-2.10-mlp"), tmp_path / "dump")
    (left_out,) = (each for each in path.glob("rank_0/*/0/3") if each.is_dir())
    shutil.rmtree(left_out)
    for file in path.rglob("ms_global_execution_order_graph_*.csv") if not history else ():
        file.unlink()
    report = audited(path)
    assert (report.findings, report.exit_code) == ((), 0)
    updates = {each.kind: each for each in report.coverage if each.kind in {"sgd", "assign"}}
    assert {kind: (each.checked, each.missing) for kind, each in updates.items()} == {"sgd": (30, 10), "assign": (3, 1)}


def test_a_parameter_that_stays_although_others_move_is_named(dumps: Dumps, tmp_path: Path) -> None:
    """No node of the dump makes the update: the gradient tells, and the other parameters."""
    path = tmp_path / "dump"
    shutil.copytree(dumps("msprobe-pairs") / "c_kernels" / "A", path)
    folders = [path / f"step{step}" for step in (0, 1)]
    names = [file.relative_to(folders[0]) for file in folders[0].rglob("*fc1*forward*parameters.weight*")]
    assert names
    for name in names:
        shutil.copy(folders[0] / name, folders[1] / name)
    report = audited(path, nodes=None)
    named = [each for each in report.findings if each.fault is Fault.NOT_UPDATED]
    assert {each.name for each in named} == {"b.0.mlp.fc1.weight", "b.1.mlp.fc1.weight"}
    assert {each.kind for each in named} == {UPDATE}


def test_coverage_names_what_was_left_out_and_why(dumps: Dumps) -> None:
    report = audited(dumps(MLP))
    rows = {row.kind: row for row in report.coverage}
    assert rows["tanh"].checked == 6
    assert dict(rows["sgd"].left) == {"nothing was dumped before the update: the first step": 10}
    assert sum(row.checked for row in report.coverage) == report.checked
    assert not [row for row in report.coverage if row.wrong or (row.known and not row.checked)]


def test_what_is_required_has_to_be_checked_all_of_it(dumps: Dumps) -> None:
    flow = dumps("mindspore-2.10-multi-flow")
    assert audited(flow).exit_code == 0
    report = audited(flow, required=("matmul", "softmax", "sgd", "tanh"))
    assert report.exit_code == 2
    assert [kind for kind, _ in report.missing] == ["matmul", "softmax", "sgd"]
    assert audited(dumps(MLP), required=("matmul", "linear", "sgd")).exit_code == 0
    with pytest.raises(TdbgError, match="no kind of operator is called"):
        audited(flow, required=("multiply-accumulate",))


def test_what_cannot_be_read_is_a_doubt(dumps: Dumps, tmp_path: Path) -> None:
    path = linked(dumps(MLP), tmp_path / "dump")
    file = own(next(path.rglob("2/Tanh*.output.*")))
    file.write_bytes(file.read_bytes()[:100])
    report = audited(path)
    assert report.exit_code == 2
    assert any("cannot be read" in doubt for doubt in report.doubts)


def test_a_dump_without_values_cannot_be_audited(dumps: Dumps) -> None:
    report = audited(dumps("msprobe-xor"))
    assert (report.exit_code, report.checked) == (2, 0)


def test_workers_find_the_same(dumps: Dumps, tmp_path: Path) -> None:
    path = linked(dumps(MLP), tmp_path / "dump")
    with opened(path) as session:
        name = next(each for each in session.nodes(0).names if "Tanh-op" in each)
        spoil(session, name, 2, scaled)
    expected = audited(path)
    with closing(open_dump(path, workers=MeasureWorkers(2), remember=False)) as session:
        session.open()
        report = audit_session(session, session.pairs())
    assert len(report.findings) == 1
    assert report == expected


def test_a_worker_that_lists_the_nodes_otherwise_checks_nothing(dumps: Dumps) -> None:
    path = str(dumps(MLP))
    with opened(Path(path)) as session:
        row = session.nodes(0).names.index(next(each for each in session.nodes(0).names if "Tanh-op" in each))
        name = session.nodes(0).names[row]
    from tui_debugger.diagnose.audit import AuditItem

    there = checked_there(path, [AuditItem(0, 2, row, 0, name)])
    assert there is not None
    assert checked_there(path, [AuditItem(0, 2, row, 0, "another")]) is None
    assert checked_there(path + "-nowhere", [AuditItem(0, 2, row, 0, name)]) is None


# -- faults of recorded calls of PyTorch -----------------------------------------------------------


def test_what_was_written_over_is_told_from_what_was_computed_wrong(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    from tests.diagnose.recompute.recording import Call, Recorder

    torch.manual_seed(3)
    left, right = torch.randn(8, 6), torch.randn(6, 8)
    made = left @ right
    kept = torch.full((8, 8), 0.5) + torch.eye(8)
    for step in (0, 1):
        other, by = torch.randn(8, 8), float(step)
        tanh = torch.tanh(other)
        recorder = Recorder(tmp_path, step=step)
        for call in (
            Call("Torch.mm", torch.mm, (left, right), spoil=lambda made, by=by: made + by),
            Call("Functional.relu", torch.relu, (made,)),
            Call("Torch.tanh", torch.tanh, (other,)),
            Call("Torch.exp", lambda _, tanh=tanh: torch.exp(tanh), (tanh * (1 + by),)),
            Call("Torch.sin", lambda _: kept.sin(), (kept + by,)),
            Call("Torch.cos", torch.cos, (other,), spoil=lambda made, by=by: made * (1 - 2 * by)),
        ):
            recorder.run(call)
        recorder.write()
    report = audited(tmp_path)
    found = {each.name: (each.step, each.fault) for each in report.findings}
    assert found == {
        "Torch.mm.0": (1, Fault.OVERWRITTEN),
        "Torch.exp.0": (1, Fault.INPUT_OVERWRITTEN),
        "Torch.sin.0": (1, Fault.STALE),
        "Torch.cos.0": (1, Fault.WRONG),
    }
    texts = {each.name: each.text for each in report.findings}
    assert "Functional.relu.0 read the right one" in texts["Torch.mm.0"]
    assert "input 0 was written over" in texts["Torch.exp.0"]
    assert "with the output of Torch.tanh.0 it is right" in texts["Torch.exp.0"]
    assert "that of step 0" in texts["Torch.sin.0"]
    assert "with the sign turned" in texts["Torch.cos.0"]


def test_the_gradient_that_a_linear_module_passes_on_is_checked(dumps: Dumps, tmp_path: Path) -> None:
    """Its weight is recorded with the forward pass."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    path = tmp_path / "dump"
    shutil.copytree(dumps("msprobe-pairs") / "c_kernels" / "A", path)
    (file,) = (path / "step1").rglob("Module.b.0.mlp.fc2.Linear.backward.0.output.0.pt")
    values = torch.load(file)
    torch.save(values * 1.01, file)
    (finding,) = audited(path).findings
    assert (finding.name, finding.kind) == ("Gradients/b/0/mlp/fc2/Linear", "gradient of linear")
    assert "times 1.01" in finding.text
