"""The part of the kernel for the orders in which devices hold elements: as numpy has it, and no further.

Each test runs with the code for every level of the processor that this one has: they turn other numbers of rows at
once. Where the elements of whole tensors stand, ``test_ascend_file`` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.ascend_files import BITS, Written
from tests.stats.kernels import needs_kernel
from tests.stats.test_ascend_file import tensors
from tests.thorough import examples
from tui_debugger.stats import kernel
from tui_debugger.stats.device_order import SharedBytes, device_order
from tui_debugger.stats.kernel import build
from tui_debugger.stats.kernel.elements import copy_elements

pytestmark = needs_kernel

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@pytest.fixture(scope="module", autouse=True, params=build.LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    """The code for one level of the processor."""
    library, number = kernel.shared_library(), int(request.param)
    assert library is not None
    if number > library.level:
        pytest.skip("this processor has no such level")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "function", kernel.Library(library._loaded, number).function)
        yield number


def at_the_end(raw: Array, shift: int = 0) -> Array:
    """The same bytes, right before the end of some memory."""
    memory = np.zeros(len(raw) + shift, np.uint8)
    memory[shift:] = raw
    return memory[shift:]


LENGTHS = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 50, 65))


@st.composite
def orders(draw: st.DrawFn, most: int = 50_000) -> tuple[Shape, list[int], int]:
    """A shape, how far neighbours are apart, axis by axis, and how far all of them reach."""
    shape = tuple(draw(st.lists(LENGTHS, min_size=0, max_size=4)))
    while math.prod(shape) > most:
        shape = shape[:-1]
    steps, step = [0] * len(shape), 1
    for axis in draw(st.permutations(range(len(shape)))):
        steps[axis], step = step, step * (shape[axis] + draw(st.sampled_from((0, 1, 2, 7))))
    return shape, steps, 1 + sum((n - 1) * each for n, each in zip(shape, steps, strict=True))


@examples(150)
@given(st.sampled_from(["u1", "u2", "u4", "u8", "c16"]), orders(), st.integers(0, 5), st.booleans())
def test_elements_are_copied_from_any_order(
    name: str, order: tuple[Shape, list[int], int], offset: int, apart: bool
) -> None:
    """Against numpy's strided copy; lengths around those of the squares that are turned at once."""
    dtype, (shape, steps, reach) = np.dtype(name), order
    raw = np.random.default_rng(1).integers(0, 256, (offset + reach) * dtype.itemsize, np.uint8)
    source = at_the_end(raw, 1).view(dtype)
    target = np.zeros((*shape, 3), dtype)[..., 1] if apart else np.zeros(shape, dtype)
    copy_elements(source, offset, steps, target)
    strides = tuple(each * dtype.itemsize for each in steps)
    wanted = np.ndarray(shape, dtype, source.data, offset * dtype.itemsize, strides)
    assert target.tobytes() == wanted.tobytes()


@examples(100)
@given(st.sampled_from(["u1", "u2", "u4", "u8"]), orders(), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_a_part_of_a_larger_array_is_filled_and_nothing_beside_it(
    name: str, order: tuple[Shape, list[int], int], gaps: list[int]
) -> None:
    dtype, (shape, steps, reach) = np.dtype(name), order
    source = np.random.default_rng(3).integers(0, 256, reach * dtype.itemsize, np.uint8).view(dtype)
    wanted = np.full([n + gap for n, gap in zip(shape, gaps, strict=False)], 99, dtype)
    part = (..., *(slice(n) for n in shape))
    wanted[part] = np.ndarray(shape, dtype, source.data, 0, tuple(each * dtype.itemsize for each in steps))
    whole = np.full_like(wanted, 99)
    copy_elements(source, 0, steps, whole[part])
    assert whole.tobytes() == wanted.tobytes()


SMALL = [(4, True), (4, False), (2, True), (2, False), (1, False)]


def values_of(packed: Array, bits: int, *, signed: bool) -> Array:
    """The elements of some bytes, one by one."""
    each = [(int(byte) >> at) & ((1 << bits) - 1) for byte in packed for at in range(0, 8, bits)]
    return np.array([value - (1 << bits) if signed and value >> (bits - 1) else value for value in each], np.int16)


@pytest.mark.parametrize(("bits", "signed"), SMALL)
@examples(150)
@given(order=orders(most=5_000), offset=st.integers(0, 9), apart=st.booleans(), behind=st.integers(0, 3))
@example(order=((4, 2, 4), [4, 16, 1], 32), offset=0, apart=False, behind=0)
def test_elements_that_share_bytes_are_copied_from_any_order(
    bits: int, signed: bool, *, order: tuple[Shape, list[int], int], offset: int, apart: bool, behind: int
) -> None:
    shape, steps, reach = order
    raw = np.random.default_rng(2).integers(0, 256, -(-(offset + reach) * bits // 8) + behind, np.uint8)
    packed = at_the_end(raw)
    target = np.full((*shape, 2), 99, np.uint8)[..., 1] if apart else np.full(shape, 99, np.uint8)
    copy_elements(packed, offset, steps, target, bits=bits, signed=signed)
    places = np.full(shape, offset)
    for axis, step in enumerate(steps):
        places += np.expand_dims(np.arange(shape[axis]) * step, tuple(i for i in range(len(shape)) if i != axis))
    wanted = values_of(packed, bits, signed=signed)[places]
    assert (target.view(np.int8) == wanted.astype(np.int8)).all()
    if apart:
        assert target.base is not None
        assert (target.base[..., 0] == 99).all(), "what lies between is left alone"


@pytest.mark.parametrize(("bits", "signed"), SMALL)
@given(data=st.data())
def test_elements_that_share_bytes(bits: int, signed: bool, data: st.DataObject) -> None:
    packed = np.frombuffer(data.draw(st.binary(min_size=1, max_size=40)), np.uint8)
    wanted = values_of(packed, bits, signed=signed).astype(np.int8)
    start = data.draw(st.integers(0, len(wanted) - 1))
    step = data.draw(st.integers(1, 5))
    many = (len(wanted) - 1 - start) // step + 1
    target = np.zeros(many, np.uint8)
    copy_elements(packed, start, (step,), target, bits=bits, signed=signed)
    assert target.view(np.int8).tolist() == wanted[start::step].tolist()


# -- arguments that make no sense --------------------------------------------------------------------------------------

HOSTILE = (-(1 << 63), -(1 << 32), -1, 0, 1, 2, 5, 1 << 31, 1 << 60, (1 << 62) + 1, (1 << 63) - 1)


def test_steps_that_leave_the_buffer_are_refused() -> None:
    source = np.zeros(10, np.uint16)
    for offset, steps, shape in (
        (0, (2,), (6,)),
        (1, (3, 1), (4, 1)),
        (-1, (1,), (2,)),
        (0, (-1,), (2,)),
        (10, (), ()),
        (5, (1 << 62,), (3,)),
    ):
        with pytest.raises(ValueError, match="no sense"):
            copy_elements(source, offset, steps, np.zeros(shape, np.uint16))
    with pytest.raises(ValueError, match="fit"):
        copy_elements(source, 0, (1,), np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="fit"):
        copy_elements(source, 0, (1,), np.zeros((3, 3), np.uint16))
    copy_elements(source[:0], 5, (1,), np.zeros(0, np.uint16))


@examples(400)
@given(
    st.sampled_from([0, 1, 2, 4]),
    st.sampled_from(HOSTILE),
    st.lists(st.sampled_from(HOSTILE), max_size=4),
    st.lists(st.integers(0, 9), max_size=4),
)
def test_whatever_the_numbers_are_nothing_outside_is_read(
    bits: int, offset: int, steps: list[int], lengths: list[int]
) -> None:
    """Offsets and steps below 0, and such as are too big for a product; lengths of 0."""
    source, target = np.zeros(40, np.uint8), np.zeros(lengths, np.uint8)
    reach = offset + sum((n - 1) * each for n, each in zip(lengths, steps, strict=False))
    held = 40 * 8 // bits if bits else 40
    sound = len(steps) == len(lengths) and min((offset, *steps)) >= 0 and reach < held
    if target.size and not sound:
        with pytest.raises(ValueError, match=r"no sense|do not fit"):
            copy_elements(source, offset, steps, target, bits=bits)
    elif len(steps) == len(lengths):
        try:
            copy_elements(source, offset, steps, target, bits=bits)
        except ValueError:
            assert not target.size


def copied(
    lengths: Sequence[int], steps: Sequence[int], target_steps: Sequence[int], *, count: int, offset: int, bits: int
) -> int:
    """What the kernel answers that is called by hand, with numbers that no array of numpy could have."""
    source, target = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    layout = np.array([lengths, steps, target_steps], np.int64).reshape(3, -1)
    at, row = kernel.address(layout), layout.strides[0]
    call = kernel.function("copy", "pqqiipippp")
    pointers = kernel.address(source), kernel.address(target)
    return int(call(pointers[0], count, offset, bits, 0, pointers[1], len(lengths), at, at + row, at + 2 * row))


def test_lengths_that_no_array_has_are_refused() -> None:
    assert copied((2, 3), (3, 1), (3, 1), count=64, offset=0, bits=8) == 0
    for lengths, steps, target_steps in (
        ((-1,), (1,), (1,)),
        ((-(1 << 63),), (1,), (1,)),
        ((1 << 32, 1 << 32), (1 << 31, 1), (1, 1)),
        (((1 << 63) - 1,), ((1 << 63) - 1,), (1,)),
        ((2, 2), ((1 << 63) - 1, (1 << 63) - 1), (1, 1)),
        ((2,), (-1,), (1,)),
        ((2,), (1,), (-1,)),
        ((65,), (1,), (1,)),
        ((1,) * 17, (1,) * 17, (1,) * 17),
    ):
        answer = copied(lengths, steps, target_steps, count=64, offset=0, bits=8)
        assert answer == -1, (lengths, steps)
    for count, offset, bits in (
        (-1, 0, 8),
        ((1 << 60) + 1, 0, 8),
        (64, -1, 8),
        (64, 63, 8),
        (64, (1 << 63) - 1, 8),
        (64, 0, 0),
        (64, 0, 3),
        (64, 0, -8),
        (64, 0, 256),
        (1, 0, 8),
        (0, 0, 8),
    ):
        answer = copied((2,), (1,), (1,), count=count, offset=offset, bits=bits)
        assert answer == -1, (count, offset, bits)
    assert copied((5, 0), (1, 1), (1, 1), count=64, offset=1 << 59, bits=8) == 0, "nothing is asked for"


DIMS = st.one_of(st.integers(1, 20), st.sampled_from((-(1 << 40), -1, 0, 16, 64, 1 << 31, 1 << 61, 1 << 63)))
GROUPS = st.one_of(st.integers(-2, 20), st.sampled_from((1 << 31, 1 << 62)))


@examples(1500)
@given(tensors(), st.lists(st.tuples(st.booleans(), st.integers(0, 9), DIMS), max_size=2), st.data())
def test_shapes_that_do_not_fit_have_no_order_and_those_that_do_leave_no_buffer(
    tensor: Written, changes: list[tuple[bool, int, int]], data: st.DataObject
) -> None:
    """Zeros, numbers below 0, products beyond every integer, groups that do not divide; buffers that are too short."""
    device, host = list(tensor.on_device().shape), list(tensor.values.shape)
    for of_host, at, length in changes:
        changed = host if of_host else device
        changed[at % len(changed)] = length
    groups = data.draw(st.one_of(st.just(tensor.groups), GROUPS))
    dtype = tensor.type_name
    order = device_order(tensor.format, tuple(device), tuple(host), groups)
    if order is None:
        assert changes or groups != tensor.groups
        return
    assert min(*device, *host) > 0
    assert math.prod(host) <= order.count == math.prod(device)
    if order.count > 50_000:
        return
    bits, item = BITS.get(dtype, 0), tensor.values.itemsize
    missing = data.draw(st.integers(0, 70))
    held = max((-(-order.count * bits // 8) if bits else order.count) - missing, 0)
    raw: Array = np.zeros(held, np.complex128 if item > 8 else f"u{item}")
    target = np.ones(math.prod(host), raw.dtype)
    try:
        order.copy(SharedBytes(raw, bits, signed=True) if bits else raw, 0, target)
    except ValueError:
        assert missing
    else:
        assert not target.any()
