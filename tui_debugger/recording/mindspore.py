"""``data_dump.json`` of MindSpore 1.1 to 2.11: what each key does, and a new file for a version.

The rules are those of MindSpore's own parser where it is known, else of its manual; for a CPU they were compared with
MindSpore 2.7.0. They depend on the version, on the device, and on Ascend on how graphs are compiled (``jit_level``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tui_debugger.errors import TdbgError
from tui_debugger.recording.keys import Key

Version = tuple[int, int]
OLDEST: Final[Version] = (1, 1)
NEWEST: Final[Version] = (2, 11)
DEVICES: Final = ("cpu", "gpu", "ascend")
JIT_LEVELS: Final = ("O0", "O1", "O2")
NAMES: Final = {"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend"}

COMMON: Final = "common_dump_settings"
E2E: Final = "e2e_dump_settings"
ASYNC: Final = "async_dump_settings"

CATEGORIES: Final = (
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "md5", "l2norm"),
)
"""The statistics of ``statistic_category``, from 2.3 on."""
HASHES: Final = ("hash", "hash:sha1", "hash:md5")
"""The statistics that only versions from ``HASHES_SINCE`` on know."""
HASHES_SINCE: Final[Version] = (2, 6)
ON_DEVICE: Final = ("max", "min", "avg", "l2norm")
"""The statistics that a device can calculate."""

COMMON_KEYS: Final[Mapping[str, Key]] = {
    "op_debug_mode": Key(
        "what is recorded",
        {
            "0": "every operator, or those that dump_mode chooses",
            "1": "operators that overflowed in the AI Core (up to 2.2; later as 3)",
            "2": "operators that overflowed in atomic additions (up to 2.2; later as 3)",
            "3": "operators that overflowed",
            "4": "the inputs of an operator that raised an exception (from 2.3 on)",
        },
    ),
    "dump_mode": Key(
        "which operators are recorded",
        {"0": "all of them", "1": "those that kernels names", "2": "those that mindspore.set_dump() marks"},
    ),
    "path": Key("where the dump goes: an absolute path; empty or missing: $MS_DIAGNOSTIC_DATA_PATH/debug_dump"),
    "net_name": Key("the name of the network: a directory of the dump is called so"),
    "iteration": Key("which steps are recorded, counted from 0: all, or numbers and spans with | between them"),
    "saved_data": Key(
        "what of a tensor is recorded",
        {
            '"tensor"': "its values",
            '"statistic"': "a row of statistic.csv",
            '"full"': "its values and a row of statistic.csv",
        },
        since=(1, 6),
    ),
    "input_output": Key(
        "which tensors of an operator are recorded", {"0": "inputs and outputs", "1": "inputs", "2": "outputs"}
    ),
    "kernels": Key(
        "the operators of dump_mode 1: full names, types (conv), or name-regex(...) from 2.3 on; "
        "what is not listed is not recorded then"
    ),
    "support_device": Key("the numbers of the devices that record; the others record nothing (a CPU ignores it)"),
    "statistic_category": Key("the columns of statistic.csv, where saved_data asks for one", since=(2, 3)),
    "file_format": Key(
        "the files of an asynchronous dump on Ascend",
        {'"npy"': ".npy, converted to the layout of the host", '"bin"': "as they lie on the device"},
        since=(1, 6),
    ),
    "overflow_number": Key("how many overflows are recorded, with op_debug_mode 3; 0: all of them", since=(2, 4)),
    "initial_iteration": Key("the number that the first step gets", since=(2, 6)),
}
E2E_KEYS: Final[Mapping[str, Key]] = {
    "enable": Key(
        "how it is recorded on Ascend",
        {
            "true": "synchronously, the training waits for each operator",
            "false": "asynchronously, the order of execution changes less",
        },
    ),
    "trans_flag": Key(
        "the layout of tensors", {"true": "converted to that of the host", "false": "left as the device has it"}
    ),
    "save_kernel_args": Key("whether the parameters of operators are recorded, as JSON", since=(2, 3)),
    "sample_mode": Key("how much of a tensor is recorded", {"0": "all", "1": "its first elements"}, since=(2, 3)),
    "sample_num": Key("how many elements, with sample_mode 1 (default 100)", since=(2, 3)),
    "stat_calc_mode": Key(
        "who calculates statistics", {'"host"': "the host", '"device"': "the device: faster, but fewer of them"}, (2, 3)
    ),
    "device_stat_precision_mode": Key(
        "how the device sums",
        {'"high"': "in float32", '"low"': "in the type of the tensor, which may overflow"},
        since=(2, 4),
    ),
}
ASYNC_KEYS: Final[Mapping[str, Key]] = {
    "enable": Key("whether an asynchronous dump is written", until=(1, 10)),
    "op_debug_mode": Key("as in common_dump_settings, up to 1.2", COMMON_KEYS["op_debug_mode"].values, until=(1, 2)),
}
TOP_KEYS: Final[Mapping[str, Key]] = {
    COMMON: Key("what is recorded, and where it goes"),
    E2E: Key("how it is recorded: synchronously, converted, sampled"),
    ASYNC: Key("up to 1.10: that an asynchronous dump is wanted", until=(1, 10)),
}
ITEM: Final = re.compile(r"(\d+)(?:-(\d+))?")
MOST_STEPS: Final = 10_000_000
"""Limit of steps that are counted in an ``iteration``."""


@dataclass(frozen=True, slots=True)
class Target:
    """The program and the device that the file is for."""

    version: Version | None = None
    """Version of MindSpore; None: unknown, the newest one is assumed."""
    device: str | None = None
    """One of ``DEVICES``; None: unknown, differences become notes."""
    jit_level: str | None = None
    """One of ``JIT_LEVELS``, how graphs are compiled on Ascend; None: unknown."""

    @property
    def checked(self) -> Version:
        """The version whose rules are used."""
        return self.version or NEWEST

    @property
    def text(self) -> str:
        """``MindSpore 2.3, Ascend, O2``."""
        parts = [f"MindSpore {number_text(self.checked)}", NAMES.get(self.device or "", ""), self.jit_level or ""]
        return ", ".join(filter(None, parts))


def number_text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def version_of(text: str) -> Version:
    """The version in a text like ``2.3`` or ``2.10.0rc1``; raises TdbgError for none, or one without such a file."""
    match = re.match(r"(\d{1,3})\.(\d{1,3})(?![0-9])", text.strip())
    if match is None:
        raise TdbgError(f"{text!r} is no version of MindSpore", where="--mindspore", hint="such as --mindspore 2.3")
    version = int(match[1]), int(match[2])
    if version < OLDEST:
        raise TdbgError(
            f"MindSpore {number_text(version)} has no data_dump.json as it is known here",
            where="--mindspore",
            hint=f"{number_text(OLDEST)} to {number_text(NEWEST)} are known",
        )
    return version


def steps_of(iteration: str) -> int | None:
    """The number of steps that an ``iteration`` chooses; None for all."""
    if iteration == "all":
        return None
    chosen: set[int] = set()
    for item in iteration.split("|"):
        match = ITEM.fullmatch(item)
        if match is not None:
            first, last = int(match[1]), int(match[2] or match[1])
            if last - first >= MOST_STEPS:
                return last - first + 1
            chosen.update(range(first, last + 1))
    return len(chosen)


@dataclass(frozen=True, slots=True)
class MindSporeChoices:
    """The values for a new file, by the names of the keys."""

    path: str = ""
    net_name: str = "Net"
    iteration: str = "0"
    dump_mode: int = 0
    kernels: Sequence[str] = ()
    input_output: int = 0
    saved_data: str = "tensor"
    statistic_category: Sequence[str] = ()
    support_device: Sequence[int] = tuple(range(8))
    op_debug_mode: int = 0
    file_format: str = "npy"
    asynchronous: bool = False
    """On Ascend: not ``enable``, and at O2 (up to 2.3 always) no ``e2e_dump_settings``."""
    sample_num: int = 0
    """Number of elements of a tensor that are recorded; 0: all."""
    stat_calc_mode: str = "host"


def new(choices: MindSporeChoices, target: Target) -> dict[str, Any]:
    """The content of a new file, with only those keys that this version reads."""
    version = target.checked
    through_ge = choices.asynchronous and (version < (2, 4) or target.jit_level == "O2")
    common: dict[str, Any] = {
        "op_debug_mode": choices.op_debug_mode,
        "dump_mode": choices.dump_mode,
        "path": choices.path,
        "net_name": choices.net_name,
        "iteration": choices.iteration,
        "saved_data": choices.saved_data,
        "input_output": choices.input_output,
        "kernels": list(choices.kernels),
        "support_device": list(choices.support_device),
    }
    if version <= (1, 2):
        del common["op_debug_mode"]
        common["iteration"] = int(choices.iteration) if choices.iteration.isdigit() else 0
    if version < (1, 6):
        del common["saved_data"]
    if version < (2, 3) and not choices.asynchronous:
        common.pop("op_debug_mode", None)
    if choices.statistic_category and version >= (2, 3):
        common["statistic_category"] = list(choices.statistic_category)
    if through_ge and version >= (1, 6):
        common["file_format"] = choices.file_format
    made: dict[str, Any] = {COMMON: common}
    if version <= (1, 2) and choices.asynchronous:
        made[ASYNC] = {"enable": True, "op_debug_mode": choices.op_debug_mode}
    elif not through_ge:
        e2e: dict[str, Any] = {"enable": not choices.asynchronous, "trans_flag": True}
        if choices.sample_num and version >= (2, 3):
            e2e |= {"sample_mode": 1, "sample_num": choices.sample_num}
        if choices.stat_calc_mode != "host" and version >= (2, 3):
            e2e["stat_calc_mode"] = choices.stat_calc_mode
        made[E2E] = e2e
    return made
