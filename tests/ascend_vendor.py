"""What the vendor's own parser makes of files of Ascend devices: the oracle, where it is installed.

It comes with the package ``mindstudio-probe`` (the extra ``ascend-tests``) and needs no device. The package leaves out
a library of C that turns a file's header into JSON: protobuf does that here, from the vendor's definition of the
message. All that follows is the vendor's code: where tensors begin, what their elements are, how they are put in order,
what a record of an overflow says, which operator it is about.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import sys
from argparse import Namespace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from tui_debugger.graph.messages import Messages, add_file, describe, message_class, pool

Array = npt.NDArray[Any]

_NCDHW: Final = 30
_PACKAGE: Final = "tests.ascend"
_MESSAGES: Messages = {
    "Shape": "1 dim uint64*",
    "DimRange": "1 dim_start uint64; 2 dim_end uint64",
    "OriginalOp": "1 name bytes; 2 output_index uint32; 3 data_type int32; 4 format int32",
    "OpOutput": """1 data_type int32; 2 format int32; 3 shape Shape; 4 original_op OriginalOp; 5 data bytes;
        6 size uint64; 7 original_shape Shape; 8 sub_format int32; 9 address uint64; 10 dim_range DimRange*;
        11 offset uint64""",
    "OpInput": """1 data_type int32; 2 format int32; 3 shape Shape; 4 data bytes; 5 size uint64;
        6 original_shape Shape; 7 sub_format int32; 8 address uint64; 9 offset uint64""",
    "OpBuffer": "1 buffer_type int32; 2 data bytes; 3 size uint64",
    "OpAttr": "1 name string; 2 value string",
    "Workspace": "1 type int32; 2 data bytes; 3 size uint64",
    "DumpData": """1 version string; 2 dump_time uint64; 3 output OpOutput*; 4 input OpInput*; 5 buffer OpBuffer*;
        6 op_name string; 7 attr OpAttr*; 8 space Workspace*""",
}


@lru_cache(maxsize=1)
def _directory() -> Path | None:
    spec = importlib.util.find_spec("msprobe")
    found = Path(spec.origin).parent / "msaccucmp" if spec is not None and spec.origin else None
    return found if found is not None and found.is_dir() else None


def needed() -> None:
    """Skips a test where the vendor's parser is not installed."""
    if _directory() is None:
        pytest.skip("the vendor's parser is not here: pip install -e '.[ascend-tests]'")


@lru_cache(maxsize=1)
def _modules() -> Namespace:
    """The vendor's modules, whose names have no package."""
    sys.path.append(str(_directory()))
    names = ("dump_parse.big_dump_data", "dump_parse.dump_utils", "conversion.tensor_conversion")
    names += ("dump_parse.dump_data_parser", "dump_parse.nano_dump_data", "overflow.overflow_analyse")
    found = {name.rpartition(".")[2]: importlib.import_module(name) for name in names}
    add_file(pool(), describe("tests/ascend.proto", _PACKAGE, _MESSAGES))

    def parse(parser: Any) -> None:
        from google.protobuf.json_format import MessageToDict

        content = Path(parser.dump_file_path).read_bytes()
        message = message_class("DumpData", _PACKAGE)()
        message.ParseFromString(content[8 : 8 + int.from_bytes(content[:8], "little")])
        parser.dump_json_data = MessageToDict(message, preserving_proto_field_name=True)

    found["big_dump_data"].BigDumpDataParser._parse_dump_to_json = parse
    return Namespace(**found)


def tensors(path: Path, version: int = 2) -> dict[str, Any]:
    """Returns the vendor's tensors of a file by ``input.0``, ``output.1``: in the order that the device has."""
    with contextlib.redirect_stdout(io.StringIO()):
        found = _modules().dump_utils.parse_dump_file(str(path), version)
    both = (("input", found.input_data), ("output", found.output_data))
    return {f"{side}.{at}": each for side, some in both for at, each in enumerate(some)}


def program_values(path: Path, member: str) -> Array:
    """Returns what the vendor's ``convert`` makes of a tensor: in the program's order, where it knows that."""
    tensor = tensors(path)[member]
    conversion, shape = _modules().tensor_conversion, tuple(tensor.original_shape)
    with contextlib.redirect_stdout(io.StringIO()):
        convert = conversion.ConvertSingleTensorFormat()
        if len(shape) == 5:  # the vendor's table of targets ends at four dimensions, its conversions do not
            both = conversion.SrcToDest(tensor.tensor_format, _NCDHW, tensor.shape, shape)
            whole = convert.manager.execute_format_convert(both, tensor.data, {"group": 1})
            return np.asarray(convert.tensor_conversion.slice_data(whole, shape))
        found: Array = np.asarray(convert(tensor))
    return found.reshape(shape) if found.size == np.prod(shape, dtype=np.int64) else found


def record(path: Path, into: Path) -> dict[str, Any] | None:
    """Returns what the vendor's ``convert`` says of an overflow record; None: it refuses it."""
    args = Namespace(dump_path=str(path), output_path=str(into), dump_version=2, output_file_type="npy")
    with contextlib.redirect_stdout(io.StringIO()):
        _modules().dump_data_parser.DumpDataParser(args).parse_dump_data()
    written = into / f"{path.name}.output.0.json"
    found: dict[str, Any] | None = json.loads(written.read_text()) if written.exists() else None
    return found


def overflowed(directory: Path, into: Path) -> str:
    """Returns what the vendor's ``overflow`` says of a directory with a record and files of operators."""
    args = Namespace(dump_path=str(directory), output_path=str(into), top_num=10)
    with contextlib.redirect_stdout(io.StringIO()):
        _modules().overflow_analyse.OverflowAnalyse(args).analyse()
    return "".join(each.read_text() for each in into.glob("overflow_summary_*.txt"))


def nano_values(path: Path) -> list[Array]:
    """Returns the vendor's inputs and outputs of a file of a small device."""
    with contextlib.redirect_stdout(io.StringIO()):
        found = _modules().nano_dump_data.NanoDumpDataHandler(str(path)).parse_dump_data()
        made = _modules().dump_utils.DumpDataObj(nano_dump_data=found)
    return [np.asarray(each.data).reshape(each.shape) for each in (*made.input_data, *made.output_data)]
