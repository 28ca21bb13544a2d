"""With the kernel and without it the audit says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.diagnose.recompute.cases import Cases  # noqa: E402 - needs torch
from tests.diagnose.recompute.recording import Call, record, session_of  # noqa: E402 - as above
from tui_debugger.diagnose.recompute import kernel_checks  # noqa: E402 - as above
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck, check_operator  # noqa: E402 - as above
from tui_debugger.stats.kernel import SWITCH, available  # noqa: E402 - as above

pytestmark = pytest.mark.skipif(not available(), reason="the kernel is not built")


def spoilt(values: torch.Tensor) -> torch.Tensor:
    """One element is off by half of it, and one."""
    flat = values.reshape(-1).clone()
    if values.is_floating_point() and len(flat):
        flat[len(flat) // 2] = flat[len(flat) // 2] * 1.5 + 1
    return flat.reshape(values.shape)


def calls(dtype: torch.dtype, size: int) -> list[Call]:
    cases = Cases(3, dtype, size=size)
    parts = (cases.elementwise, cases.two, cases.reductions, cases.norms_and_losses)
    x, y = cases.tensor(4, 5 * size), cases.tensor(4, 5 * size)
    plain = [  # others of these repeat an operand along a dimension in the middle, or go along one
        Call("Torch.log_softmax", torch.log_softmax, (x, -1)),
        Call("Torch.maximum", torch.maximum, (x, y)),
        Call("Torch.minimum", torch.minimum, (x, y)),
        Call("Torch.where", torch.where, (x > 0, x, y)),
        Call("Tensor.masked_fill", torch.Tensor.masked_fill, (x, y > 0, float("-inf"))),
    ]
    return [*plain, *(call for part in parts for call in part())]


@pytest.mark.parametrize("size", [6, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_kernel_and_numpy_agree(
    dtype: torch.dtype, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = calls(dtype, size)
    every += [Call(each.name, each.function, each.args, each.kwargs, spoilt) for each in every if not each.module]
    names = record(tmp_path, every)
    session = session_of(tmp_path)
    rows = [session.nodes(0).find(name) for name in names]
    found = []
    for switch in ("", "off"):
        monkeypatch.setenv(SWITCH, switch)
        found.append([check_operator(session, 0, 0, row) for row in rows])
    session.close()
    for name, one, other in zip(names, *found, strict=True):
        if isinstance(one, NotChecked) or isinstance(other, NotChecked):
            assert one == other, name
            continue
        assert one.kind == other.kind
        for mine, plain in zip(one.outputs, other.outputs, strict=True):
            assert mine.wrong == plain.wrong, (name, mine, plain)
            assert mine.wrong or mine.r < 6
            assert not mine.wrong or (mine.worst, mine.difference) == (plain.worst, plain.difference), name


def test_every_kind_that_the_kernel_knows_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is right by that alone, in at least one of the calls."""
    sure: set[str] = set()
    unchanged = kernel_checks.KernelCheck.check
    current = ""

    def noted(self: kernel_checks.KernelCheck, start: int, count: int) -> kernel_checks.KernelResult:
        result = unchanged(self, start, count)
        if result.right:
            sure.add(current)
        return result

    monkeypatch.setattr(kernel_checks.KernelCheck, "check", noted)
    names = record(tmp_path, calls(torch.float32, 6))
    session = session_of(tmp_path)
    seen: set[str] = set()
    for name in names:
        current = name
        check = check_operator(session, 0, 0, session.nodes(0).find(name))
        if isinstance(check, OperatorCheck) and current in sure:
            seen.add(check.kind)
    session.close()
    assert set(kernel_checks.DESCRIBED) - {"attention", "cast"} - seen == set()
