"""The configurations that MindSpore's manual and msprobe's show, by version, as they stand there."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tui_debugger.recording.keys import Message, Weight

COMMON = "common_dump_settings"
E2E = "e2e_dump_settings"

_OLD = {
    "dump_mode": 0,
    "path": "/absolute_path",
    "net_name": "ResNet50",
    "iteration": 0,
    "input_output": 0,
    "kernels": ["Default/Conv-op12"],
    "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
}
_TEXT = {**_OLD, "iteration": "0|5-8|100-120"}
_SAVED = {**_TEXT, "saved_data": "tensor"}
_NEW = {"op_debug_mode": 0, **_SAVED, "statistic_category": ["max", "min", "l2norm"]}
_SYNC = {"enable": True, "trans_flag": True}


@dataclass(frozen=True)
class Example:
    """A configuration, and for whom the manual shows it."""

    name: str
    version: tuple[int, int]
    devices: tuple[str, ...]
    content: dict[str, Any]
    jit_levels: tuple[str | None, ...] = (None,)

    @property
    def text(self) -> str:
        return json.dumps(self.content, indent=4)


ALL = ("cpu", "gpu", "ascend")
EXAMPLES = (
    Example("1.1 synchronous", (1, 1), ("gpu", "ascend"), {COMMON: _OLD, E2E: {"enable": True, "trans_flag": False}}),
    Example("1.2 synchronous", (1, 2), ("gpu", "ascend"), {COMMON: _OLD, E2E: _SYNC}),
    Example(
        "1.2 asynchronous",
        (1, 2),
        ("ascend",),
        {COMMON: _OLD, "async_dump_settings": {"enable": True, "op_debug_mode": 0}},
    ),
    Example("1.3 synchronous", (1, 3), ALL, {COMMON: _TEXT, E2E: _SYNC}),
    Example("1.3 asynchronous", (1, 3), ("ascend",), {COMMON: {**_TEXT, "op_debug_mode": 0}}),
    Example("2.0 synchronous", (2, 0), ALL, {COMMON: _SAVED, E2E: _SYNC}),
    Example("2.0 asynchronous", (2, 0), ("ascend",), {COMMON: {**_SAVED, "op_debug_mode": 0, "file_format": "npy"}}),
    Example(
        "sample script, synchronous",
        (2, 0),
        ALL,
        {
            COMMON: {**_SAVED, "net_name": "Alexnet", "iteration": "0", "input_output": 2, "kernels": [""]},
            E2E: _SYNC,
        },
    ),
    Example(
        "sample script, asynchronous",
        (2, 0),
        ("ascend",),
        {
            COMMON: {
                **_SAVED,
                "net_name": "Alexnet",
                "iteration": "0",
                "kernels": [""],
                "op_debug_mode": 0,
                "file_format": "bin",
            }
        },
    ),
    Example(
        "2.3 synchronous", (2, 3), ALL, {COMMON: _NEW, E2E: {**_SYNC, "stat_calc_mode": "host"}}, (None, "O0", "O1")
    ),
    Example("2.3 asynchronous", (2, 3), ("ascend",), {COMMON: {**_NEW, "file_format": "npy"}}, (None, "O2")),
    *(
        Example(
            f"{major}.{minor} O0 and O1",
            (major, minor),
            ("ascend",),
            {COMMON: _NEW, E2E: {**_SYNC, "stat_calc_mode": "host"}},
            (None, "O0", "O1"),
        )
        for major, minor in ((2, 4), (2, 5), (2, 6), (2, 7), (2, 10), (2, 11))
    ),
    Example("2.4 O2", (2, 4), ("ascend",), {COMMON: {**_NEW, "file_format": "npy"}}, (None, "O2")),
    Example("2.7 CPU and GPU", (2, 7), ("cpu", "gpu"), {COMMON: _NEW, E2E: _SYNC}),
    Example(
        "guide of large models",
        (2, 5),
        ("ascend",),
        {COMMON: {"op_debug_mode": 0, **_SAVED}, E2E: _SYNC},
        (None, "O0", "O1"),
    ),
    Example(
        "statistics of one operator type, kernel by kernel",
        (2, 5),
        ("ascend",),
        {
            COMMON: {
                **_SAVED,
                "dump_mode": 1,
                "net_name": "Net",
                "iteration": "0",
                "saved_data": "statistic",
                "kernels": ["TensorDump"],
                "op_debug_mode": 0,
            },
            E2E: {"enable": False, "trans_flag": True},
        },
        (None, "O0"),
    ),
)

COMMA_IN_THE_MANUAL = """\
{
    "common_dump_settings": {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": "/absolute_path",
        "net_name": "ResNet50",
        "iteration": "0|5-8|100-120",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": ["Default/Conv-op12"],
        "support_device": [0,1,2,3,4,5,6,7],
        "statistic_category": ["max", "min", "l2norm"]
    },
    "e2e_dump_settings": {
        "enable": true,
        "trans_flag": true,
    }
}
"""
"""The manual of 2.4 shows this for CPU and GPU, with a comma that no JSON parser takes."""

NOTHING_ENABLED = {COMMON: _OLD, "async_dump_settings": {"enable": False, "op_debug_mode": 0}}
"""The manual of 1.1 shows this: it is read, and nothing is recorded."""

_PROBE: dict[str, Any] = {"dump_path": "/home/data_dump", "rank": [], "step": [], "level": "L1"}
_SELECTION = {"scope": [], "list": [], "data_mode": ["all"]}
PROBE_EXAMPLES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "the file that comes with it": (
        "pytorch",
        {
            **_PROBE,
            "task": "statistics",
            "dump_path": "./dump_path",
            "extra_info": True,
            "async_dump": False,
            "statistics": {**_SELECTION, "summary_mode": "statistics"},
            "tensor": _SELECTION,
            "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
        },
    ),
    "statistics": (
        "pytorch",
        {
            **_PROBE,
            "task": "statistics",
            "async_dump": False,
            "extra_info": True,
            "statistics": {**_SELECTION, "tensor_list": [], "summary_mode": "statistics"},
        },
    ),
    "tensor": (
        "pytorch",
        {
            **_PROBE,
            "task": "tensor",
            "async_dump": False,
            "tensor": {**_SELECTION, "bench_path": "/home/bench_data_dump", "summary_mode": "md5", "diff_nums": 5},
        },
    ),
    "acc_check": (
        "pytorch",
        {
            **_PROBE,
            "task": "acc_check",
            "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
        },
    ),
    "structure": ("pytorch", {**_PROBE, "task": "structure", "level": "mix"}),
    "switched while it runs": (
        "pytorch",
        {**_PROBE, "task": "statistics", "dump_enable": False, "statistics": {"summary_mode": "statistics"}},
    ),
    "MindSpore, kernels": (
        "mindspore",
        {
            **_PROBE,
            "task": "statistics",
            "level": "L2",
            "statistics": {"list": [], "data_mode": ["all"], "summary_mode": "statistics"},
        },
    ),
    "MindSpore, chosen statistics": (
        "mindspore",
        {
            **_PROBE,
            "task": "statistics",
            "level": "L2",
            "statistics": {
                "list": ["name-regex(Default/.+)"],
                "device": "host",
                "precision": "high",
                "summary_mode": ["max", "l2norm"],
            },
        },
    ),
    "MindSpore, exceptions": ("mindspore", {**_PROBE, "task": "exception_dump", "level": "L2", "exception_dump": {}}),
}


def changed(content: dict[str, Any], changes: dict[str, Any]) -> str:
    """The text of a configuration after changes by path (``common_dump_settings.path``); ``...`` takes a key away."""
    made = copy.deepcopy(content)
    for path, value in changes.items():
        *way, name = path.split(".")
        place = made
        for each in way:
            place = place.setdefault(each, {})
        if value is ...:
            del place[name]
        else:
            place[name] = copy.deepcopy(value)  # a later path may lead into it
    return json.dumps(made, indent=4, ensure_ascii=False)


def only_message(messages: Sequence[Message], weight: Weight, key: str, what: str, hint: str) -> Message:
    """The one message about a key that says this; there is no other one like it."""
    found = [
        each
        for each in messages
        if (each.weight, each.key.split(".")[-1]) == (weight, key) and what in each.what and hint in each.hint
    ]
    assert len(found) == 1, messages
    return found[0]
