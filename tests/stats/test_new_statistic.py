"""A new statistic is an attribute and a row of the table: added to a copy of the program, it is there everywhere.

``CHANGE`` is the whole change. Programs run in fresh interpreters, on the copy (``new``) or on the program as it is
(``old``), which then stands for an older version: of a cache, and of a client or a server of the live protocol.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tui_debugger
from tests.cli.running import file_of
from tests.sources.writer import MLP, DumpWriter, write_dump

pytestmark = pytest.mark.usefixtures("measured_by")
in_turn = pytest.mark.turns("measured_by")
"""One way is enough for what takes over what was measured: ``test_every_way_makes_what_its_row_says`` tries both."""

ROOT = Path(tui_debugger.__file__).parent.parent
PART = '''\
def _kurtosis_part(x: Any) -> Sums:
    mean = x.mean()
    away = x - mean
    squares = away * away
    return len(x), mean, squares.sum(), (squares * away).sum(), (squares * squares).sum()


def _kurtosis_merged(one: Sums, other: Sums) -> Sums:
    """By the formulas of Pébay (2008): number, mean, central sums of second, third and fourth powers."""
    (n1, mean1, second1, third1, fourth1), (n2, mean2, second2, third2, fourth2) = one, other
    n = n1 + n2
    if not n:
        return one
    d = (mean2 - mean1) / n
    return (
        n,
        mean1 + d * n2,
        second1 + second2 + d * d * n * n1 * n2,
        third1 + third2 + d**3 * n * n1 * n2 * (n1 - n2) + 3 * d * (n1 * second2 - n2 * second1),
        fourth1
        + fourth2
        + d**4 * n * n1 * n2 * (n1 * n1 - n1 * n2 + n2 * n2)
        + 6 * d * d * (n1 * n1 * second2 + n2 * n2 * second1)
        + 4 * d * (n1 * third2 - n2 * third1),
    )


def _kurtosis(sums: Sums) -> Number:
    return float(sums[0] * sums[4] / sums[2] ** 2) if sums[0] and sums[2] else None


FIELDS: Final = (
'''
ROW = '''\
    StatisticField(
        "kurtosis",
        Form.REAL,
        "fourth central moment over the square of the variance: 3 for a normal distribution",
        column="kurtosis",
        title="kurtosis",
        made=Recipe((0, 0.0, 0.0, 0.0, 0.0), _kurtosis_part, _kurtosis_merged, _kurtosis),
        sent=StatisticsPlace(199, "kurtosis"),
    ),
)
"""All statistics, '''
CHANGE = {
    "model.py": [("    at_least: AtLeast = ", "    kurtosis: float | None = None\n    at_least: AtLeast = ")],
    "stats/fields.py": [
        ("FIELDS: Final = (\n", PART),
        (')\n"""All statistics, ', ROW),
        (
            '")\n"""The columns that ``tdbg stat``',
            ' kurtosis")\n"""The columns that ``tdbg stat``',
        ),
        ('")\n"""The columns of lists of tensors', ' kurtosis")\n"""The columns of lists of tensors'),
        ('    "zero": FIELD_BY_NAME', '    "kurtosis": FIELD_BY_NAME["kurtosis"],\n    "zero": FIELD_BY_NAME'),
    ],
}
"""For each file what is replaced by what, once."""


def kurtosis(values: Any) -> float:
    """In the longest floats that there are."""
    finite = np.asarray(values, np.float64).ravel()
    away = finite[np.isfinite(finite)].astype(np.longdouble)
    away -= away.mean()
    return float((away**4).mean() / (away**2).mean() ** 2)


class Program:
    """The program, as it is or changed."""

    def __init__(self, root: Path, home: Path) -> None:
        self.environment = dict(os.environ, PYTHONPATH=f"{root}{os.pathsep}{ROOT}")
        self.environment |= {"TDBG_CACHE_DIR": str(home), "XDG_STATE_HOME": str(home)}
        self.root = root

    def run(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=self.environment, cwd=self.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def tdbg(self, *words: object, code: int = 0) -> str:
        return self.run("-m", "tui_debugger", *map(str, words), code=code)

    def answer(self, program: str, *words: object) -> Any:
        """What a program prints as JSON. ``sys`` and ``json`` are imported."""
        return json.loads(self.run("-c", f"import json, sys\n{program}", *map(str, words)))

    def stat(self, dump: Path) -> dict[str, Any]:
        """The rows by node and slot."""
        rows = json.loads(self.tdbg("stat", dump, "--json"))["tensors"]
        return {f"{row['node']} {row['side']} {row['step']}": row for row in rows}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with the change; what is not changed need not be compiled anew."""
    root = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "tui_debugger", root / "tui_debugger")
    for name, replacements in CHANGE.items():
        path = root / "tui_debugger" / name
        text = path.read_text("utf-8")
        for before, after in replacements:
            assert text.count(before) == 1, f"{name} has not one {before!r}: the change has to be written anew"
            text = text.replace(before, after)
        path.write_text(text, "utf-8")
    return root


@pytest.fixture
def new(changed: Path, tmp_path: Path) -> Program:
    return Program(changed, tmp_path / "cache")


@pytest.fixture
def old(tmp_path: Path) -> Program:
    return Program(ROOT, tmp_path / "cache")


VALUES = {
    "big": np.random.default_rng(1).gamma(2.0, size=200_000).astype(np.float32),
    "small": np.array([1, 2, np.nan, 9, -np.inf, 4.5], np.float32),
}
MATMUL, RELU = MLP.nodes[0], MLP.nodes[1]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A dump of long ago with a tensor of several blocks and a small one with NaN and Inf."""
    root = tmp_path / "dump"
    writer: DumpWriter = write_dump(root, steps=(0,))
    for node, values in ((MATMUL, VALUES["big"]), (RELU, VALUES["small"])):
        np.save(file_of(writer.step(0), f"{node.type}.*.output.*"), values)
    for path in root.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return root


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    for name, values in VALUES.items():
        np.save(tmp_path / f"{name}.npy", values)
    return {name: tmp_path / f"{name}.npy" for name in VALUES}


@in_turn
def test_it_touches_at_most_four_files() -> None:
    assert len(CHANGE) <= 4


def test_every_way_makes_what_its_row_says(new: Program) -> None:
    """Blocks, windows of small files, merged parts, torch: what holds for all rows of the table holds for it."""
    test = Path(__file__).with_name("test_fields.py")
    options = ("-v", "--import-mode=append", "-p", "no:cacheprovider", "-k", "kurtosis or not TestEvery")
    said = new.run("-m", "pytest", *options, str(test))
    assert said.count("kurtosis") > 50, "the copy was tested"


@in_turn
def test_its_row_says_the_right_thing(new: Program) -> None:
    program = """
import numpy as np
from tui_debugger.stats.blocks import Accumulator
values = np.load(sys.argv[1])
total = Accumulator()
for x in np.array_split(values, 7):
    part = Accumulator()
    part.add(x)
    total.merge(part)
print(json.dumps(total.stats().kurtosis))
"""
    for shift in (0.0, 1000.0):
        np.save(new.root / "values.npy", VALUES["big"].astype(np.float64) + shift)
        found = new.answer(program, new.root / "values.npy")
        assert found == pytest.approx(kurtosis(VALUES["big"].astype(np.float64) + shift), rel=1e-10)


@in_turn
def test_a_record_has_it_also_one_from_another_thread(new: Program, files: dict[str, Path]) -> None:
    program = """
import numpy as np
from tui_debugger.model import ReadSpec
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.records import ReadRequests, ReadSpecs, RequiredStats
from tui_debugger.stats.scan import joined, measure_file_span
from tui_debugger.stats.workers import WORTH_HANDING_OVER, MeasureWorkers
specs = [ReadSpec(path) for path in sys.argv[1:]]
need = RequiredStats()
batch = ReadRequests(ReadSpecs.of(specs), np.full(2, -1, np.int32), (need,), np.zeros(2, np.int16))
workers = MeasureWorkers(2)
executor = workers.executor(WORTH_HANDING_OVER)
whole = executor.submit(read_all, batch).result()
halves = [executor.submit(measure_file_span, specs[0], None, need, span) for span in ((0, 90_000), (90_000, 200_000))]
merged = joined([half.result() for half in halves], need)
workers.close()
found = [whole.get(0), whole.get(1), merged.get(0), read_all(batch).get(0)]
print(json.dumps([record.stats.kurtosis for record in found]))
"""
    big, small, merged, here = new.answer(program, files["big"], files["small"])
    wanted = kurtosis(VALUES["big"])
    assert [big, small, merged] == pytest.approx([wanted, kurtosis(VALUES["small"]), wanted], rel=1e-10)
    assert here == big


@in_turn
def test_the_cache_has_it_and_an_older_one_is_not_believed(old: Program, new: Program, dump: Path) -> None:
    assert not any("kurtosis" in row for row in old.stat(dump).values())
    first = new.stat(dump)
    place = f"{MATMUL.name} output 0"
    assert first[place]["kurtosis"] == pytest.approx(kurtosis(VALUES["big"]), rel=1e-10)
    assert new.stat(dump) == first
    assert re.search(r"the index is right: \d+ tensors", new.tdbg("config", "--cache", "verify", dump))
    assert "nothing is remembered" in old.tdbg("config", "--cache", "verify", dump), (
        "what a newer program wrote is not believed"
    )


@in_turn
def test_stat_prints_sorts_and_exports_it(new: Program, dump: Path) -> None:
    rows = {name: new.stat(dump)[f"{node.name} output 0"] for name, node in (("big", MATMUL), ("small", RELU))}
    for name, row in rows.items():
        assert row["kurtosis"] == pytest.approx(kurtosis(VALUES[name]), rel=1e-10)
    table = new.tdbg("stat", dump, "--sort", "kurtosis", "--limit", "1")
    assert table.splitlines()[0].split()[-2:] == ["kurtosis", "tensor"]
    assert f"{kurtosis(VALUES['big']):.5g}" in table.splitlines()[1]
    sheet = list(csv.DictReader(io.StringIO(new.tdbg("stat", dump, "--csv"))))
    assert {float(row["kurtosis"]) for row in sheet} >= {row["kurtosis"] for row in rows.values()}
    shown = new.tdbg("show", dump, MATMUL.name, "--stat")
    assert "kurtosis" in shown
    drawn = json.loads(new.tdbg("trend", dump, MATMUL.name, "--metric", "kurtosis", "--json"))
    assert f"{rows['big']['kurtosis']}" in json.dumps(drawn)


@in_turn
def test_the_table_of_tensors_shows_it(new: Program, dumps: Callable[[str], Path]) -> None:
    program = """
import asyncio
from pathlib import Path
from tests.tui.driver import opened
async def seen():
    async with opened(Path(sys.argv[1]), size=(220, 50)) as screen:
        for key in ("n", "5", "z"):
            await screen.press(key)
            await screen.settled()
        return screen.lines, screen.pane("tensors")
print(json.dumps(asyncio.run(seen())))
"""
    lines, rows = new.answer(program, dumps("mindspore-2.0-nan"))
    assert any("kurtosis" in line for line in lines)
    assert rows


SEND = """
from tui_debugger.live.client.messages import summary
from tui_debugger.model import TensorMeta
from tui_debugger.stats.blocks import measure_stats
import numpy as np
values = np.load(sys.argv[1])
sent = summary((TensorMeta("float32", values.shape, values.nbytes), measure_stats(values)[0]))
print(json.dumps(sent.SerializeToString().hex()))
"""
RECEIVE = """
import dataclasses
from tui_debugger.live.server.answers import stats_of
from tui_debugger.live.wire import message
came = message("TensorSummary").FromString(bytes.fromhex(sys.argv[1]))
print(json.dumps(dataclasses.asdict(stats_of(came.tensor_base, came.statistics, full=True).stats)))
"""


@in_turn
def test_it_is_sent_and_whoever_is_older_is_understood(old: Program, new: Program, files: dict[str, Path]) -> None:
    by_new, by_old = (program.answer(SEND, files["small"]) for program in (new, old))
    wanted = pytest.approx(kurtosis(VALUES["small"]), rel=1e-10)
    assert new.answer(RECEIVE, by_new)["kurtosis"] == wanted
    plain = old.answer(RECEIVE, by_old)
    assert old.answer(RECEIVE, by_new) == plain, "an older server skips what it does not know"
    assert new.answer(RECEIVE, by_old) == {**plain, "kurtosis": None}, "of an older client nobody knows it"
