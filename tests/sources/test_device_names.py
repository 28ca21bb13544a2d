"""Names of files of Ascend devices in all their forms: an operator has one name over threads, steps and conversions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.ascend_files import DeviceDump, Written, file_bytes, to_device, write
from tui_debugger.model import Side
from tui_debugger.sources import open_source
from tui_debugger.sources.base import NO_NUMBER, Source, Writer
from tui_debugger.sources.mindspore.names import DeviceName, split_device_name
from tui_debugger.stats.npy import open_array

TIME = 1_700_000_000_000_100
HEX = "0123456789abcdef0123456789abcdef"
DIGITS = "12345678901234567890123456789012"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (f"Conv2D.net_conv.5.2.{TIME}", DeviceName(b"Conv2D.net_conv", b"5", b"2", TIME)),
        (f"Conv2D.net_conv.5.{TIME}", DeviceName(b"Conv2D.net_conv", b"5", b"65535", TIME)),
        (f"Conv2D.net_conv.5.2.{TIME}.4.7.1.0", DeviceName(b"Conv2D.net_conv", b"5", b"2", TIME, 7, 1)),
        (f"Conv2D.net_conv.5.{TIME}.4.7.1.0", DeviceName(b"Conv2D.net_conv", b"5", b"65535", TIME, 7, 1)),
        (f"Conv2D.7.5.2.{TIME}", DeviceName(b"Conv2D.7", b"5", b"2", TIME)),
        (f"Conv2D.net.0.conv.5.2.{TIME}", DeviceName(b"Conv2D.net.0.conv", b"5", b"2", TIME)),
        (f"Conv2D.net.0.1.5.2.{TIME}", DeviceName(b"Conv2D.net.0.1", b"5", b"2", TIME)),
        ("Conv2D.net_conv.5.2.16", DeviceName(b"Conv2D.net_conv", b"5", b"2", 16)),
        ("Conv2D.net_conv.5.16", None),
        ("Conv2D.5.2", None),
        (f"net_conv.5.{TIME}", None),
        (f"Conv2D.net_conv.5.2.{TIME}.4.7.x.0", None),
    ],
)
def test_the_parts_of_a_name(name: str, parts: DeviceName | None) -> None:
    assert split_device_name(name.encode()) == parts


@pytest.fixture
def dump(tmp_path: Path) -> DeviceDump:
    return DeviceDump(tmp_path / "dump")


def values(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.full((2, 3), number, np.float32)


def content(number: int) -> bytes:
    return file_bytes(outputs=[Written(values(number))])


def outputs(source: Source, step: int = 0) -> dict[str, list[float]]:
    """The first element of every output, by node and in the order in which they were written."""
    table, names = source.tensors(0, step), source.nodes(0).names
    found: dict[str, list[float]] = {}
    for row in range(len(table)):
        name = names[int(table.node[row])]
        found.setdefault(name, []).append(float(open_array(table.spec(row)).reshape(-1)[0]))
    return found


class TestThreads:
    def test_an_operator_keeps_its_name_over_threads_and_steps(self, tmp_path: Path, dump: DeviceDump) -> None:
        for step in range(2):
            for thread in range(3):
                name = f"Conv2D.net_conv.5.2.{TIME + 10 * step + thread}.4.{7 + thread}.{thread}.0"
                write(dump.writer.step(step) / name, content(10 * step + thread))
        with closing(open_source(tmp_path / "dump")) as source:
            assert [outputs(source, step) for step in range(2)] == [{"net_conv": [0, 1, 2]}, {"net_conv": [10, 11, 12]}]
            assert not source.unreadable()
            table = source.tensors(0, 1)
            assert source.written_by(table.spec(0)) == Writer("Conv2D", "net_conv", 5, 2, TIME + 10)
            assert Path(table.spec(1).path).name == f"Conv2D.net_conv.5.2.{TIME + 11}.4.8.1.0"

    def test_a_name_without_a_stream(self, tmp_path: Path, dump: DeviceDump) -> None:
        write(dump.writer.step(0) / f"Conv2D.net_conv.5.{TIME}", content(1))
        with closing(open_source(tmp_path / "dump")) as source:
            assert outputs(source) == {"net_conv": [1]}


class TestMapping:
    @pytest.mark.parametrize("original", [f"Conv2D.net_conv.5.2.{TIME}", f"Conv2D.net_conv.5.{TIME}.4.7.1.0"])
    @pytest.mark.parametrize("short", ["12345", DIGITS, HEX])
    def test_files_of_devices(self, tmp_path: Path, dump: DeviceDump, short: str, original: str) -> None:
        directory = dump.writer.step(0)
        write(directory / short, content(1))
        write(directory / "mapping.csv", f"{short},{original}\n".encode())
        with closing(open_source(tmp_path / "dump")) as source:
            assert outputs(source) == {"net_conv": [1]}
            assert Path(source.tensors(0, 0).spec(0).path).name == short
            assert not source.unreadable()

    @pytest.mark.parametrize("short", ["12345", DIGITS, HEX])
    @pytest.mark.parametrize("ending", ["output.0.npy", "output.0.ND.npy", "output.0.2x3.npy"])
    def test_what_tools_converted(self, tmp_path: Path, dump: DeviceDump, short: str, ending: str) -> None:
        directory = dump.writer.step(0)
        np.save(directory / f"{short}.npy", values(1))
        write(directory / "mapping.csv", f"{short}.npy,Conv2D.net_conv.5.2.{TIME}.{ending}\n".encode())
        with closing(open_source(tmp_path / "dump")) as source:
            assert outputs(source) == {"net_conv": [1]}
            assert not source.unreadable()

    def test_values_without_a_header_are_a_doubt(self, tmp_path: Path, dump: DeviceDump) -> None:
        directory = dump.writer.step(0)
        write(directory / f"Conv2D.net_conv.5.2.{TIME}", content(1))
        write(directory / DIGITS, values(1).tobytes())
        write(directory / "mapping.csv", f"{DIGITS},Conv2D.net_x.5.2.{TIME}.output.0.NCHW.BF16\n".encode())
        with closing(open_source(tmp_path / "dump")) as source:
            source.tensors(0, 0)
            (part,) = source.unreadable()
            assert part.where.endswith(DIGITS)
            assert part.why.startswith("values of a tensor without a header")


class TestConverted:
    @pytest.mark.parametrize("numbers", [f"5.2.{TIME}", f"5.{TIME}", f"5.2.{TIME}.4.7.1.0"])
    @pytest.mark.parametrize(
        "ending", ["output.0.npy", "output.0.2x3.npy", "output.0.ND.npy", "output.0.ND.float32.npy"]
    )
    def test_every_form_has_the_operator_s_name(
        self, tmp_path: Path, dump: DeviceDump, numbers: str, ending: str
    ) -> None:
        np.save(dump.writer.step(0) / f"Conv2D.net_conv.{numbers}.{ending}", values(1))
        with closing(open_source(tmp_path / "dump")) as source:
            assert outputs(source) == {"net_conv": [1]}
            assert not source.unreadable()
            row = source.tensors(0, 0).find(source.nodes(0).find("net_conv"), Side.OUTPUT, 0)
            assert source.tensors(0, 0).spec(row).path.endswith(ending)

    @pytest.mark.parametrize(("ending", "device"), [("output.0.npy", True), ("output.0.ND.npy", False)])
    def test_beside_the_device_s_file_padding_is_never_read(
        self, tmp_path: Path, dump: DeviceDump, ending: str, device: bool
    ) -> None:
        """A tool that does not know the order leaves it, and the padding with it."""
        directory, name = dump.writer.step(0), f"Conv2D.net_conv.5.2.{TIME}"
        write(directory / name, file_bytes(outputs=[Written(values(1), format="FRACTAL_NZ")]))
        np.save(directory / f"{name}.{ending}", to_device(values(1), "FRACTAL_NZ", 16) if device else values(2))
        with closing(open_source(tmp_path / "dump")) as source:
            assert outputs(source) == {"net_conv": [1 if device else 2]}
            assert source.tensors(0, 0).spec(0).format == ("ascend" if device else "npy")

    @pytest.mark.parametrize(
        "ending", ["output.0.2_3.float32.ND.bin", "input.0.2_3.float32.ND.bin", "output.0.NCHW.BF16"]
    )
    def test_raw_values_are_a_doubt(self, tmp_path: Path, dump: DeviceDump, ending: str) -> None:
        write(dump.writer.step(0) / f"Conv2D.net_x.5.2.{TIME}", content(1))
        write(dump.writer.step(0) / f"Conv2D.net_conv.5.2.{TIME}.{ending}", values(1).tobytes())
        with closing(open_source(tmp_path / "dump")) as source:
            source.tensors(0, 0)
            assert [part.where.endswith(ending) for part in source.unreadable()] == [True]


def test_the_numbers_of_no_thread_are_not_known() -> None:
    parts = split_device_name(f"Conv2D.net_conv.5.2.{TIME}".encode())
    assert parts is not None
    assert (parts.context, parts.thread) == (NO_NUMBER, NO_NUMBER)
