"""What PyTorch computes is right for every operator, type and layout in memory, and what is spoiled is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.diagnose.recompute.cases import Cases  # noqa: E402 - needs torch
from tests.diagnose.recompute.recording import Call, record, session_of  # noqa: E402 - as above
from tests.thorough import examples  # noqa: E402 - as above
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck, check_operator  # noqa: E402 - as above

Checked = dict[str, OperatorCheck | NotChecked]
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def checked(calls: list[Call]) -> Checked:
    """Records calls, and checks all of them; by name with its counter."""
    with TemporaryDirectory() as directory:
        names = record(Path(directory), calls)
        session = session_of(Path(directory))
        nodes = session.nodes(0)
        places = {nodes.names[row]: row for row in range(len(nodes))}
        modules = {
            "Module.a.b.Linear": "a/b/Linear",
            "Module.net.Net": "net/Net",
            "Module.a.b.LayerNorm": "a/b/LayerNorm",
        }
        rows = [places[modules.get(name.partition(".forward")[0], name)] for name in names]
        found = {name: check_operator(session, 0, 0, row) for name, row in zip(names, rows, strict=True)}
        session.close()
        return found


@example(seed=444, dtype=torch.float16, scale=1.0, turned=False, size=5)  # a logsumexp that cancels
@example(seed=295, dtype=torch.bfloat16, scale=1.0, turned=False, size=5)
@examples(4)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(TYPES),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    turned=st.booleans(),
    size=st.sampled_from([5, 24]),
)
def test_what_pytorch_computes_is_right(seed: int, dtype: torch.dtype, scale: float, turned: bool, size: int) -> None:
    results = checked(list(Cases(seed, dtype, scale, turned=turned, size=size).all()))
    assert {name: result for name, result in results.items() if isinstance(result, NotChecked)} == {}
    assert {
        name: result for name, result in results.items() if isinstance(result, OperatorCheck) and result.wrong
    } == {}


def scaled(by: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda made: made * by


def one_element(made: torch.Tensor) -> torch.Tensor:
    flat = made.contiguous().reshape(-1)
    at = int(flat.abs().argmax())
    flat[at] = flat[at] * 1.01
    return flat.reshape(made.shape)


def swapped(made: torch.Tensor) -> torch.Tensor:
    return made.flip(0)


NOT_A_NUMBER = float("nan")


def not_a_number(made: torch.Tensor) -> torch.Tensor:
    flat = made.contiguous().reshape(-1)
    flat[len(flat) // 2] = NOT_A_NUMBER
    return flat.reshape(made.shape)


def some_calls(seed: int, dtype: torch.dtype) -> list[Call]:
    """Calls whose first output is made of numbers that are not all alike, one of each kind."""
    one_of = {call.name: call for call in Cases(seed, dtype, size=12).all()}
    kept = []
    for call in one_of.values():
        made = call.function(*call.args, **call.kwargs)
        if not isinstance(made, torch.Tensor) or made.dtype != dtype or not made.dim() or "dropout" in call.name:
            continue
        if made.shape[0] > 1 and made.isfinite().all() and not torch.equal(made, made.flip(0)):
            kept.append(call)
    return kept


@pytest.mark.parametrize("spoil", [scaled(1.001), one_element, swapped, not_a_number])
def test_what_is_spoiled_is_wrong(spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
    calls = some_calls(5, torch.float32)
    assert len(calls) > 80
    for call in calls:
        call.spoil = spoil
    results = checked(calls)
    assert [name for name, result in results.items() if not (isinstance(result, OperatorCheck) and result.wrong)] == []


@pytest.mark.parametrize("spoil", [scaled(1.05), swapped, not_a_number])
def test_what_is_spoiled_in_16_bits_is_wrong(spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
    calls = some_calls(6, torch.bfloat16)
    for call in calls:
        call.spoil = spoil
    results = checked(calls)
    assert [name for name, result in results.items() if not (isinstance(result, OperatorCheck) and result.wrong)] == []


def test_the_element_is_named_that_is_wrong() -> None:
    x, weight = torch.randn(24, 32), torch.randn(32, 32)

    def spoil(made: torch.Tensor) -> torch.Tensor:
        made[3, 17] += 0.01
        return made

    call = Call("Functional.linear", torch.nn.functional.linear, (x, weight), spoil=spoil)
    (result,) = checked([call]).values()
    assert isinstance(result, OperatorCheck)
    (output,) = result.outputs
    assert output.wrong
    assert output.worst == (3, 17)
    assert output.found - output.expected == pytest.approx(0.01, rel=1e-3)
    assert output.element_r > 10 * output.r


def test_dropout_may_leave_out_what_it_likes_and_nothing_else() -> None:
    x = torch.randn(8, 64)
    dropout = torch.nn.functional.dropout
    right = Call("Functional.dropout", dropout, (x, 0.1, True))
    wrong = Call("Functional.dropout", lambda x, p, _: x * (torch.rand_like(x) > p), (x, 0.1, True))
    first, second = checked([right, wrong]).values()
    assert isinstance(first, OperatorCheck)
    assert isinstance(second, OperatorCheck)
    assert (first.wrong, second.wrong) == (False, True)


@pytest.mark.parametrize("name", ["Tensor.__iadd__", "Tensor.add_"])
def test_a_call_that_wrote_over_its_input_is_checked_where_that_was_recorded_before(name: str) -> None:
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    before = Call(name, torch.Tensor.__iadd__, (x, y))
    written = x + y
    after = Call(name, lambda x, _: x, (written.clone(), y))
    first, second = checked([before, after]).values()
    assert isinstance(first, OperatorCheck)
    assert not first.wrong
    assert second == NotChecked("written over in place: the input that was recorded is the output", "add")


def test_what_was_not_recorded_is_said_and_not_guessed() -> None:
    x = torch.randn(3, 4)
    calls = [
        Call("Functional.unheard_of", torch.neg, (x,)),
        Call("Module.net.Net", torch.neg, (x,), module={}),
        Call("Functional.rms_norm", lambda *args: args[0], (x, (4,))),
        Call("Torch.rand_like", torch.rand_like, (x,)),
        Call("Torch.sum", lambda x, **_: x, (x,), {"unheard_of": 3}),
        Call("Torch.mm", lambda *args: args[0], (x, x)),
    ]
    reasons = [result.reason for result in checked(calls).values() if isinstance(result, NotChecked)]
    assert reasons == [
        "operator not known: unheard_of",
        "module not known: Net",
        "epsilon not recorded",
        "random",
        "argument not known: unheard_of",
        "shapes (3, 4) and (3, 4) cannot be multiplied",
    ]


@pytest.mark.parametrize(
    ("epsilon", "spoil", "says"),
    [
        (1e-5, None, "right"),
        (1e-6, None, "right"),
        (0.017, None, "epsilon not recorded, and none of the usual ones fits"),
        (1e-5, one_element, "wrong"),
    ],
)
def test_an_epsilon_that_was_not_recorded_is_one_of_the_usual_ones_or_nothing_is_said(
    epsilon: float, spoil: Callable[[torch.Tensor], torch.Tensor] | None, says: str
) -> None:
    x, gain, shift = torch.randn(6, 24), torch.randn(24), torch.randn(24)
    call = Call(
        "Module.a.b.LayerNorm",
        lambda x: torch.nn.functional.layer_norm(x, (24,), gain, shift, epsilon),
        (x * 0.01,),
        spoil=spoil,
        module={"weight": gain, "bias": shift},
    )
    (result,) = checked([call]).values()
    assert result.reason == says if isinstance(result, NotChecked) else ("wrong" if result.wrong else "right") == says


def test_an_index_is_that_of_a_largest_element() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [5.0, 4.0, 5.0]])
    first, last, wrong = (
        Call("Torch.argmax", lambda *_, it=each: torch.tensor(it), (x, 1)) for each in ([1, 0], [2, 2], [1, 1])
    )
    results = list(checked([first, last, wrong]).values())
    assert [result.wrong for result in results if isinstance(result, OperatorCheck)] == [False, False, True]


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spoil", [None, one_element, swapped, not_a_number])
def test_a_large_convolution_is_held_against_random_vectors(
    dtype: torch.dtype, spoil: Callable[[torch.Tensor], torch.Tensor] | None
) -> None:
    if spoil is one_element and dtype is torch.bfloat16:
        return  # a hundredth of one element is what rounding makes of it
    maps, kernel, bias = (torch.randn(size).to(dtype) for size in ((4, 24, 40, 30), (160, 24, 3, 3), (160,)))
    call = Call("Functional.conv2d", torch.nn.functional.conv2d, (maps, kernel, bias, 1, 1), spoil=spoil)
    (result,) = checked([call]).values()
    assert isinstance(result, OperatorCheck)
    assert result.wrong == (spoil is not None)


def test_an_accumulator_of_16_bits_is_wrong() -> None:
    """The kernel rounds every partial sum to bfloat16: no rounding of inputs or outputs explains that."""

    def summed(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(len(left), right.shape[1], dtype=torch.bfloat16)
        for at in range(left.shape[1]):
            made = made + left[:, at : at + 1] * right[at : at + 1]
        return made

    left, right = torch.randn(32, 2048).bfloat16(), torch.randn(2048, 16).bfloat16()
    (result,) = checked([Call("Torch.mm", summed, (left, right))]).values()
    assert isinstance(result, OperatorCheck)
    assert result.wrong


@pytest.mark.covering
@pytest.mark.parametrize("spoil", [None, scaled(1.001)])
@pytest.mark.parametrize("name", ["linear", "layer_norm", "softmax", "silu", "__mul__", "gelu"])
def test_large_outputs_are_computed_part_by_part(
    name: str, spoil: Callable[[torch.Tensor], torch.Tensor] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is that of the whole, whatever the parts are."""
    calls = [call for call in Cases(3, torch.float32, size=24).all() if call.name.endswith(f".{name}")]
    for call in calls:
        call.spoil = spoil
    whole = checked(calls)
    monkeypatch.setattr("tui_debugger.diagnose.recompute.parts.PART", 50)
    parts = checked(calls)
    for key, one in whole.items():
        other = parts[key]
        assert isinstance(one, OperatorCheck)
        assert isinstance(other, OperatorCheck)
        for first, second in zip(one.outputs, other.outputs, strict=True):
            assert second.wrong == first.wrong == (spoil is not None)
            if spoil is None:  # r is a bound of what is right
                assert max(first.r, second.r) <= 6
                continue
            assert second.worst == first.worst
            assert second.r == pytest.approx(first.r, rel=0.01)
            assert second.element_r == pytest.approx(first.element_r, rel=1e-6)
