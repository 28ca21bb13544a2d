"""``DumpParser``, MindInsight's older helper: what its manual says runs as it stands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.ascend_files import DeviceDump, write_device_dump
from tests.cli.running import run
from tests.session.opened import snapshot
from tests.sources.writer import Graph, Node
from tui_debugger import compat
from tui_debugger.api.dump_parser import DumpParser
from tui_debugger.errors import DebuggerParamTypeError, DebuggerParamValueError, NotADumpError, TdbgError

SOURCE = "# In file /src/net.py:{}/  {}/"
NET = Graph(
    nodes=[
        Node("Default/net-Net/MatMul-op1", "MatMul", [("w", 0)], source=SOURCE.format(7, "x = self.fc(x)")),
        Node(
            "Default/net-Net/ReLU-op2", "ReLU", [("Default/net-Net/MatMul-op1", 0)], source=SOURCE.format(8, "F.relu")
        ),
    ],
    parameters=["w"],
)
MATMUL, RELU = (node.name for node in NET.nodes)
EXAMPLE = """
from mindinsight.parser.dump import DumpParser

# initialize DumpParser
dump_dir = '/path/to/dump/dir'
parser = DumpParser(dump_dir)

# convert async dump files into host format
failed = parser.convert_all_data_to_host()

# filter operator nodes with keywords and return related tensor files info
qs = 'self.fc'
rank_ids = [1]
tensor_mapping = parser.get_tensor_files(qs, rank_ids=rank_ids)

# export graph node info to report file with excel format
output_dir = '/path/to/output/dir'
xlsx = parser.export_xlsx(output_dir=output_dir)
"""
"""The example of the old manual, with names for what the calls return."""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """What two Ascend devices dumped asynchronously: each operator a file in the layout of the device."""
    dump = DeviceDump(tmp_path / "dump")
    for rank in (0, 1):
        dump.metadata(rank)
        dump.writer.graph(NET, rank=rank)
        for step in (0, 1):
            dump.step(step, NET, rank=rank)
        dump.writer.history((0, 1), rank=rank)
    return tmp_path / "dump"


@pytest.fixture
def _installed() -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


@pytest.mark.usefixtures("_installed")
def test_the_example_of_the_manual_runs_as_it_stands_there(dump: Path, tmp_path: Path) -> None:
    before = snapshot(dump)
    names: dict[str, object] = {}
    exec(EXAMPLE.replace("/path/to/dump/dir", str(dump)).replace("/path/to", str(tmp_path)), names)  # noqa: S102
    assert names["failed"] == []
    found = names["tensor_mapping"]
    assert isinstance(found, dict)
    assert list(found) == [MATMUL]
    files = found[MATMUL].to_dict()
    assert list(files) == ["rank_1"]
    assert sorted(files["rank_1"]) == [0, 1]
    (path,) = files["rank_1"][0]["output"]
    expected = DeviceDump(tmp_path / "again").step(0, NET, rank=1)[MATMUL]
    assert np.array_equal(np.load(path), expected)
    assert len(files["rank_1"][0]["input"]) == 1
    assert str(names["xlsx"]).startswith(f"{tmp_path}/output/dir/dump_")
    assert snapshot(dump) == before, "nothing is written into the dump"


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    "module", ["mindinsight.parser", "mindinsight.debugger.dump", "mindinsight.debugger.dump.parser"]
)
def test_every_old_path_leads_to_it(module: str) -> None:
    from importlib import import_module

    assert import_module(module).DumpParser is DumpParser


def test_before_a_conversion_the_files_are_those_of_the_dump(dump: Path) -> None:
    found = DumpParser(dump).get_tensor_files(r"net\.py:8", use_regex=True, iterations=[1])
    assert {name: files.devices for name, files in found.items()} == {RELU: [0, 1]}
    (path,) = found[RELU].to_dict()["rank_0"][1]["output"]
    assert Path(path).parent.parent.parent == dump / "rank_0" / "Net"
    assert found[RELU].to_dict()["rank_0"][1]["input"] == [path], "a file of a device has both sides"


def test_a_second_conversion_takes_the_place_of_the_first(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = DumpParser(dump)
    assert parser.convert_all_data_to_host() == []
    host = dump.with_name("dump-host")
    (host / "rank_0" / "step_0" / "left over.npy").touch()
    assert DumpParser(dump).convert_all_data_to_host() == []
    assert not (host / "rank_0" / "step_0" / "left over.npy").exists()
    assert sorted(each.name for each in dump.parent.iterdir()) == ["dump", "dump-host"]
    assert run(capsys, "check", host, "--watch", "TO").code == 0


def test_what_lies_there_and_is_no_conversion_stays(dump: Path) -> None:
    notes = dump.with_name("dump-host") / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    with pytest.raises(TdbgError, match="this is no conversion"):
        DumpParser(dump).convert_all_data_to_host()
    assert notes.read_text() == "mine"


def test_what_cannot_be_converted_is_returned_and_written_down(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = next((dump / "rank_1").glob("Net/0/1/ReLU*"))
    broken.write_bytes(broken.read_bytes()[:40])
    failed = DumpParser(dump).convert_all_data_to_host()
    assert failed
    assert all(broken.name in line or RELU in line for line in failed)
    host = dump.with_name("dump-host")
    assert (host / "convert_failed_files_summary.txt").read_text().splitlines() == failed
    assert run(capsys, "check", host, "--watch", "TO").code == 2, "what is missing is never clean"


def test_mistakes_are_errors_of_the_old_kinds(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(NotADumpError):
        DumpParser(tmp_path / "nothing")
    parser = DumpParser(dump)
    with pytest.raises(DebuggerParamTypeError):
        parser.get_tensor_files(7)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(DebuggerParamValueError):
        parser.get_tensor_files("", rank_ids=[9])


def test_a_dump_that_nobody_converts_stays_alone(tmp_path: Path) -> None:
    write_device_dump(tmp_path / "dump")
    DumpParser(tmp_path / "dump").get_tensor_files("")
    assert [each.name for each in tmp_path.iterdir()] == ["dump"]
