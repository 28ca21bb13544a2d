"""The compiled part of the statistics answers as numpy does, and never reads beyond what it is given."""

from __future__ import annotations

import fcntl
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.conftest import UNPACKED
from tests.stats.kernels import needs_kernel
from tests.thorough import later
from tui_debugger.stats import kernel
from tui_debugger.stats.kernel import build
from tui_debugger.stats.kernel.elements import Moments, moments, moments_of_each
from tui_debugger.stats.kernel.pairs import change, changes

pytestmark = needs_kernel

NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
LENGTHS = (0, 1, 2, 15, 16, 17, 2047, 2048, 2049, 10_000)


def dtype_of(name: str) -> np.dtype[np.generic]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def any_bits(name: str, n: int, seed: int = 0) -> npt.NDArray[np.generic]:
    """Elements of every bit pattern: NaN, Inf, subnormals and both zeros are among them."""
    dtype = dtype_of(name)
    random = np.random.default_rng(seed)
    if name == "bool":
        return random.random(n) < 0.3
    return np.frombuffer(random.bytes(n * dtype.itemsize), dtype)


def measured(x: npt.NDArray[np.generic]) -> Moments:
    answer = moments(x)
    assert answer is not None
    return answer[0]


def as_doubles(x: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    with np.errstate(all="ignore"):
        return x.astype(np.float32).astype(np.float64) if x.dtype.itemsize <= 2 else x.astype(np.float64)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_counts_and_extremes_are_those_of_numpy_to_the_last_bit(name: str, n: int) -> None:
    x = any_bits(name, n)
    wide = as_doubles(x)
    finite = wide[np.isfinite(wide)]
    found = measured(x)
    assert found[:6] == (
        n,
        np.isnan(wide).sum(),
        np.isposinf(wide).sum(),
        np.isneginf(wide).sum(),
        (finite < 0).sum(),
        (finite > 0).sum(),
    )
    assert (found.minimum, found.maximum) == (finite.min(initial=np.inf), finite.max(initial=-np.inf))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bool"])
def test_sums_are_within_their_bound_of_exact_ones(name: str) -> None:
    x = any_bits(name, 5000, seed=3)
    wide = as_doubles(x)
    finite = wide[np.isfinite(wide)]
    if name == "float64":  # squares of the greatest overflow, in whatever order they are added
        finite = finite[np.abs(finite) < 1e150]
        x = wide = finite
    exact = [Fraction(float(each)) for each in finite]
    magnitude = sum(map(abs, exact)) / len(exact)
    squares = sum(each * each for each in exact)
    mean = sum(exact) / len(exact)
    deviations = sum((each - mean) ** 2 for each in exact)
    bound = Fraction(140 + len(x) // 2048, 1 << 53)
    found = measured(x)
    assert abs(Fraction(found.mean) - mean) <= bound * magnitude
    assert abs(Fraction(found.abs_mean) - magnitude) <= bound * magnitude
    assert abs(Fraction(found.squares) - squares) <= bound * squares
    assert abs(Fraction(found.deviations) - deviations) <= 4096 * bound * deviations


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4, -1e6])
def test_the_variance_survives_an_offset(offset: float) -> None:
    x = (np.random.default_rng(1).standard_normal(100_000) + offset).astype(np.float32)
    exact = math.fsum((Fraction(float(each)) - 0) for each in x) / len(x)
    deviations = math.fsum((float(each) - exact) ** 2 for each in x)
    assert measured(x).deviations == pytest.approx(deviations, rel=1e-9)


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int64", "int8"])
def test_elements_may_lie_at_any_address(name: str, shift: int) -> None:
    x = any_bits(name, 3000)
    memory = np.zeros(x.nbytes + 8, np.uint8)
    memory[shift : shift + x.nbytes] = x.view(np.uint8)
    moved = memory[shift : shift + x.nbytes].view(x.dtype)
    assert np.array_equal(measured(moved), measured(x), equal_nan=True)


def test_what_is_not_contiguous_or_of_another_byte_order_is_left_to_numpy() -> None:
    x = np.arange(20, dtype=np.float32)
    assert moments(x[::2]) is None
    assert moments(x.astype(">f4")) is None
    assert moments(x.astype(np.complex64)) is None
    with pytest.raises(ValueError, match="contiguous"):
        kernel.address(x[::-1])


def test_hostile_arguments_read_nothing() -> None:
    library = kernel.shared_library()
    assert library is not None
    call = library.function("moments", "ipqppqpp")
    x, result, bounds, inside = np.zeros(4, np.float32), np.zeros(12), np.zeros(2), np.zeros(1, np.int64)
    at = kernel.address
    good = (0, at(x), x.nbytes, None, at(bounds), 1, at(inside), at(result))
    assert call(*good) == 0
    for place, value in (
        (0, -1),
        (0, 11),
        (0, 10),
        (1, None),
        (2, -4),
        (2, 15),
        (4, None),
        (5, -1),
        (6, None),
        (7, None),
    ):
        assert call(*good[:place], value, *good[place + 1 :]) == -1, (place, value)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float8_e5m2", "int32"])
def test_elements_inside_ranges_are_counted(name: str) -> None:
    x = any_bits(name, 9000)
    wide = as_doubles(x)
    ranges = [(-1.0, 1.0), (0.0, math.inf), (-math.inf, math.inf), (2.0, -2.0), (0.1, 0.1), (math.nan, 1.0)]
    answer = moments(x, ranges)
    assert answer is not None
    assert answer[1] == [int(((wide >= start) & (wide <= end)).sum()) for start, end in ranges]


def numbers(values: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.array(list(values), np.int64)


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "float8_e4m3fn"])
def test_many_arrays_at_once_are_as_each_by_itself(name: str) -> None:
    arrays = [any_bits(name, n, seed=n) for n in (0, 1, 7, 2049, 64)]
    kind = kernel.kind_of(arrays[0].dtype)
    assert kind is not None
    ranges = [(-1.0, 1.0), (0.0, math.inf)]
    places, nbytes = numbers(map(kernel.address, arrays)), numbers(x.nbytes for x in arrays)
    sums, inside = moments_of_each(places, nbytes, kernel.Kinds.of([kind] * len(arrays)), ranges)
    for number, x in enumerate(arrays):
        alone = moments(x, ranges)
        assert alone is not None
        assert np.array_equal(sums[number].item(), alone[0], equal_nan=True)
        assert inside[number].tolist() == alone[1]


def test_many_pairs_at_once_are_as_each_by_itself() -> None:
    random = np.random.default_rng(2)
    now = [random.standard_normal(n).astype(np.float32) for n in (0, 1, 5, 3000)]
    before = [x + np.float32(1e-6) * (len(x) % 2) for x in now]
    kind = kernel.kind_of(now[0].dtype)
    assert kind is not None
    tests = [(1e-3, 0.0, False), (0.0, 0.0, True)]
    here, there = (numbers(map(kernel.address, each)) for each in (now, before))
    sums, close = changes(here, there, numbers(map(len, now)), kernel.Kinds.of([kind] * len(now)), tests)
    for number, pair in enumerate(zip(now, before, strict=True)):
        *alone, passed = change(*pair, tests)
        assert sums[number].tolist() == alone
        assert [bool(each) for each in close[number]] == passed


def test_many_arrays_that_make_no_sense_are_refused() -> None:
    kind = kernel.kind_of(np.dtype(np.float32))
    assert kind is not None
    place, nothing = numbers([kernel.address(np.zeros(2, np.float32))]), numbers([])
    one, none = kernel.Kinds.of([kind]), kernel.Kinds.of([])
    for call in (
        lambda: moments_of_each(place, numbers([5]), one),
        lambda: moments_of_each(place, numbers([4]), none),
        lambda: moments_of_each(place, nothing, one),
        lambda: changes(place, place, numbers([-1]), one),
        lambda: changes(place, place, nothing, one),
        lambda: changes(place, place, numbers([1]), none),
        lambda: changes(place, nothing, numbers([1]), one),
    ):
        with pytest.raises(ValueError, match="no sense"):
            call()


SANITIZED = """\
import sys
from pathlib import Path
import pytest
from tests import thorough
from tui_debugger.stats import kernel

thorough.ALTERNATING = ()
kernel.shared_library_path = lambda: Path(sys.argv[1])
assert kernel.available()
options = ["-q", "-p", "no:cacheprovider", "-n", "0", f"--basetemp={sys.argv[2]}", "-k", "not sanitize and not beyond"]
sys.exit(pytest.main([*options, *sys.argv[3:]]))
"""
"""Runs tests over another build of the kernel."""
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O0")
"""Compiling takes longer than what is compiled: lines for the report, and nothing is optimized away."""
COVERED = {
    "kernel": (
        "kernel",
        "kernel_pairs",
        "kernel_csv",
        "kernel_expected",
        "kernel_probes",
        "kernel_attention",
        "kernel_files",
        "kernel_shapes",
        "kernel_checksum",
    ),
    "users": ("side_by_side", "compare", "heat", "distribution", "precision", "ascend_file"),
}
"""Files of tests that one process runs."""


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The kernel as sanitizers watch it, and the environment of a process that loads it. All workers share one."""
    asked = [*build.compiler(), "-print-file-name=libasan.so"]
    runtime = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
    if not runtime.is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    # Python leaves memory behind by design.
    options = {"LD_PRELOAD": str(runtime), "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "sanitized-kernel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library = next(folder.glob("kernel-*.so"), None) or build.build(folder, flags=SANITIZERS)
    return library, {**os.environ, **options}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("covered", ["kernel", later("users", id="users")])
def test_nothing_is_read_or_written_beyond_its_end(
    covered: str, sanitized: tuple[Path, dict[str, str]], tmp_path: Path, dumps: Callable[[str], Path]
) -> None:
    """The address sanitizer stops at whatever is: under it the tests of the kernel pass as they do without it."""
    library, environment = sanitized
    files = [f"tests/stats/test_{name}.py" for name in COVERED[covered]]
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(library), str(tmp_path / "runs"), *files],
        env={**environment, UNPACKED: str(dumps("mindspore-2.0-nan").parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


def test_the_sanitizer_would_see_it(sanitized: tuple[Path, dict[str, str]]) -> None:
    """A read of one element too many is found."""
    library, environment = sanitized
    code = (
        "import ctypes, sys\n"
        "library, libc = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)\n"
        "libc.malloc.restype = ctypes.c_void_p\n"
        "x, result = libc.malloc(64), ctypes.create_string_buffer(96)\n"
        "at, end = ctypes.c_void_p(x), ctypes.c_int64(64 + int(sys.argv[2]))\n"
        "library.moments_0(0, at, end, None, None, ctypes.c_int64(0), None, result)\n"
    )
    for beyond, found in ((0, False), (4, True)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(library), str(beyond)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("heap-buffer-overflow" in done.stderr) is found, done.stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bool"])
def test_every_level_of_the_processor_answers_the_same_bits(name: str) -> None:
    library = kernel.shared_library()
    assert library is not None
    x = any_bits(name, 9001, seed=5)
    kind = kernel.kind_of(x.dtype)
    assert kind is not None
    answers = []
    for level in (each for each in build.LEVELS if each <= library.level):
        result = np.zeros(12)
        call = kernel.Library(library._loaded, level).function("moments", "ipqppqpp")
        assert call(kind.number, kernel.address(x), x.nbytes, kind.table, None, 0, None, kernel.address(result)) == 0
        answers.append(result.tobytes())
    assert answers == [answers[0]] * len(answers)
