"""``data_dump.json``: what the manual shows is right, and every mistake is explained."""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recording.examples import (
    ALL,
    COMMA_IN_THE_MANUAL,
    COMMON,
    E2E,
    EXAMPLES,
    NOTHING_ENABLED,
    Example,
    changed,
    only_message,
)
from tui_debugger.errors import TdbgError
from tui_debugger.recording.json_lines import parse
from tui_debugger.recording.keys import ConfigurationReport, Message, Weight
from tui_debugger.recording.mindspore import (
    ASYNC_KEYS,
    COMMON_KEYS,
    E2E_KEYS,
    NEWEST,
    OLDEST,
    TOP_KEYS,
    MindSporeChoices,
    Target,
    new,
    steps_of,
    version_of,
)
from tui_debugger.recording.mindspore_check import check

REJECTED, CHANGED, NOTE = Weight.REJECTED, Weight.CHANGED, Weight.NOTE


def checked(
    text: str, version: tuple[int, int] = NEWEST, device: str | None = None, level: str | None = None
) -> ConfigurationReport:
    return check(parse(text.encode()), Target(version, device, level), "/home/me/data_dump.json")


def examples() -> list[tuple[Example, str | None, str | None]]:
    return [
        (example, device, level)
        for example in EXAMPLES
        for device in (None, *example.devices)
        for level in (example.jit_levels if device in {None, "ascend"} else (None,))
    ]


@pytest.mark.parametrize(("example", "device", "level"), examples(), ids=lambda each: getattr(each, "name", each))
def test_every_example_of_the_manual_is_right(example: Example, device: str | None, level: str | None) -> None:
    report = checked(example.text, example.version, device, level)
    assert report.mistakes == []
    explained = {each.key for each in report.keys}
    for name, section in example.content.items():
        assert {f"{name}.{key}" for key in section} <= explained


def test_a_comma_in_the_manual_is_a_comma_too_many() -> None:
    (mistake,) = checked(COMMA_IN_THE_MANUAL, (2, 4), "cpu").mistakes
    assert (mistake.weight, mistake.line, mistake.key) == (REJECTED, 16, E2E)
    assert "a comma stands before }" in mistake.what


def test_an_example_of_the_manual_that_records_nothing() -> None:
    (mistake,) = checked(json.dumps(NOTHING_ENABLED), (1, 1), "ascend").mistakes
    assert "nothing is recorded" in mistake.what


# -- mistakes --------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    COMMON: {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": "/data/dump",
        "net_name": "Net",
        "iteration": "0|5-8",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0, 1],
    },
    E2E: {"enable": True, "trans_flag": True},
}
GE = {COMMON: {**BASE[COMMON], "file_format": "npy"}}
"""Asynchronous, through GE."""


class Mistake(NamedTuple):
    """A file with a mistake, for whom it is one, and what the message must say."""

    given: Given
    weight: Weight
    key: str
    what: str
    hint: str


class Given(NamedTuple):
    """A configuration, what is changed in it, and who reads it."""

    content: dict[str, Any]
    changes: dict[str, Any]
    version: tuple[int, int]
    device: str | None
    level: str | None

    @property
    def text(self) -> str:
        return changed(self.content, self.changes)

    def says(self, weight: Weight, key: str, what: str, hint: str) -> Mistake:
        return Mistake(self, weight, key, what, hint)


MISTAKES: dict[str, Mistake] = {
    "blanks in iteration": Given(BASE, {f"{COMMON}.iteration": "0 | 5-8 | 100-120"}, (2, 3), None, None).says(
        REJECTED, "iteration", "has blanks", 'write "0|5-8|100-120"'
    ),
    "commas in iteration": Given(BASE, {f"{COMMON}.iteration": "0,5-8"}, (2, 3), None, None).says(
        REJECTED, "iteration", "has a comma", 'write "0|5-8"'
    ),
    "iteration as a number": Given(BASE, {f"{COMMON}.iteration": 3}, (2, 3), None, None).says(
        REJECTED, "iteration", "takes a text", 'write "3"'
    ),
    "iteration as a text, up to 1.2": Given(BASE, {f"{COMMON}.iteration": "0"}, (1, 2), None, None).says(
        REJECTED, "iteration", "whole numbers only", "without quotation marks"
    ),
    "iteration as a list": Given(BASE, {f"{COMMON}.iteration": [0, 5]}, (2, 3), None, None).says(
        REJECTED, "iteration", "is a list", "text"
    ),
    "an empty iteration": Given(BASE, {f"{COMMON}.iteration": ""}, (2, 3), None, None).says(
        REJECTED, "iteration", "is empty", "all"
    ),
    "ALL": Given(BASE, {f"{COMMON}.iteration": "ALL"}, (2, 3), None, None).says(
        REJECTED, "iteration", "is not all", '"all"'
    ),
    "letters in iteration": Given(BASE, {f"{COMMON}.iteration": "5..8"}, (2, 3), None, None).says(
        REJECTED, "iteration", "other than digits", "0|5-8|100-120"
    ),
    "a span from behind": Given(BASE, {f"{COMMON}.iteration": "8-5"}, (2, 3), None, None).says(
        CHANGED, "iteration", "chooses no step: 8 comes after 5", "FIRST-LAST"
    ),
    "half a span": Given(BASE, {f"{COMMON}.iteration": "0|5-"}, (2, 3), None, None).says(
        CHANGED, "iteration", "chooses no step", "FIRST-LAST"
    ),
    "two bars": Given(BASE, {f"{COMMON}.iteration": "0||5"}, (2, 3), None, None).says(
        CHANGED, "iteration", "it is empty", ""
    ),
    "a step beyond all": Given(BASE, {f"{COMMON}.iteration": "4294967296"}, (2, 3), None, None).says(
        CHANGED, "iteration", "steps end at 4294967295", ""
    ),
    "a relative path": Given(BASE, {f"{COMMON}.path": "dump"}, (2, 3), None, None).says(
        REJECTED, "path", "relative path", "in full"
    ),
    "a point in the path": Given(BASE, {f"{COMMON}.path": "/data/run.1"}, (2, 3), None, None).says(
        REJECTED, "path", "the path has .", "another directory"
    ),
    "a tilde": Given(BASE, {f"{COMMON}.path": "~/dump"}, (2, 3), None, None).says(
        REJECTED, "path", "the path has ~", ""
    ),
    "no path, up to 1.5": Given(BASE, {f"{COMMON}.path": ...}, (1, 5), None, None).says(
        REJECTED, "path", "stops without a path", "/absolute/path"
    ),
    "path as a number": Given(BASE, {f"{COMMON}.path": 1}, (2, 3), None, None).says(
        REJECTED, "path", "takes a text", ""
    ),
    "blank in the name": Given(BASE, {f"{COMMON}.net_name": "My Net"}, (2, 3), None, None).says(
        REJECTED, "net_name", "letters, digits, - and _", 'write "My_Net"'
    ),
    "no name": Given(BASE, {f"{COMMON}.net_name": ""}, (2, 3), None, None).says(REJECTED, "net_name", "is empty", ""),
    "dump_mode 3": Given(BASE, {f"{COMMON}.dump_mode": 3}, (2, 3), None, None).says(
        REJECTED, "dump_mode", "3 is not known", "0 or 1 or 2"
    ),
    "dump_mode as a text": Given(BASE, {f"{COMMON}.dump_mode": "0"}, (2, 3), None, None).says(
        REJECTED, "dump_mode", "is a text", "without quotation marks"
    ),
    "dump_mode 2 before 1.6": Given(
        BASE, {f"{COMMON}.dump_mode": 2, f"{COMMON}.saved_data": ...}, (1, 3), None, None
    ).says(REJECTED, "dump_mode", "does not know 2", "0 or 1"),
    "dump_mode 2 on a CPU": Given(BASE, {f"{COMMON}.dump_mode": 2}, (2, 5), "cpu", None).says(
        REJECTED, "dump_mode", "is for Ascend", "0 or 1"
    ),
    "set_dump, synchronously": Given(BASE, {f"{COMMON}.dump_mode": 2}, (2, 0), "ascend", None).says(
        REJECTED, "dump_mode", "asynchronous", "enable"
    ),
    "set_dump at O2": Given(GE, {f"{COMMON}.dump_mode": 2}, (2, 4), "ascend", "O2").says(
        CHANGED, "dump_mode", "not supported at O2", "0 or 1"
    ),
    "dump_mode with op_debug_mode": Given(
        BASE,
        {f"{COMMON}.dump_mode": 1, f"{COMMON}.op_debug_mode": 3},
        (2, 4),
        "ascend",
        None,
    ).says(CHANGED, "dump_mode", "sets dump_mode to 0", "op_debug_mode 0"),
    "input_output 3": Given(BASE, {f"{COMMON}.input_output": 3}, (2, 3), None, None).says(
        REJECTED, "input_output", "3 is not known", "0 or 1 or 2"
    ),
    "inputs of overflows": Given(
        BASE, {f"{COMMON}.input_output": 1, f"{COMMON}.op_debug_mode": 3}, (2, 4), "ascend", None
    ).says(CHANGED, "input_output", "inputs and outputs are recorded", "write 0"),
    "inputs on a GPU": Given(BASE, {f"{COMMON}.input_output": 1}, (2, 0), "gpu", None).says(
        CHANGED, "input_output", "outputs only", "write 2"
    ),
    "no devices": Given(BASE, {f"{COMMON}.support_device": []}, (2, 3), "ascend", None).says(
        CHANGED, "support_device", "no device records anything", "[0,1,2,3,4,5,6,7]"
    ),
    "a device as a text": Given(BASE, {f"{COMMON}.support_device": ["0"]}, (2, 3), None, None).says(
        REJECTED, "support_device", "devices are numbers", "[0,1]"
    ),
    "devices as one number": Given(BASE, {f"{COMMON}.support_device": 0}, (2, 3), None, None).says(
        REJECTED, "support_device", "takes a list", "brackets"
    ),
    "a device below 0": Given(BASE, {f"{COMMON}.support_device": [-1]}, (2, 3), None, None).says(
        CHANGED, "support_device", "no device has the number -1", "from 0"
    ),
    "no support_device": Given(BASE, {f"{COMMON}.support_device": ...}, (2, 3), None, None).says(
        REJECTED, "support_device", "is missing", "[0,1,2,3,4,5,6,7]"
    ),
    "overflows of chosen steps in PyNative mode": Given(
        BASE, {f"{COMMON}.op_debug_mode": 3, f"{COMMON}.iteration": "0|5-8"}, (2, 4), "ascend", None
    ).says(NOTE, "iteration", "PyNative", 'write "all"'),
    "op_debug_mode 4 before 2.3": Given(GE, {f"{COMMON}.op_debug_mode": 4}, (2, 0), "ascend", None).says(
        REJECTED, "op_debug_mode", "came with 2.3", "0, 1, 2 or 3"
    ),
    "op_debug_mode 5": Given(BASE, {f"{COMMON}.op_debug_mode": 5}, (2, 4), "ascend", None).says(
        REJECTED, "op_debug_mode", "5 is not known", "or 4"
    ),
    "op_debug_mode 1 since 2.3": Given(BASE, {f"{COMMON}.op_debug_mode": 1}, (2, 4), "ascend", None).says(
        CHANGED, "op_debug_mode", "takes 1 for 3", "write 3"
    ),
    "overflows of a synchronous dump": Given(BASE, {f"{COMMON}.op_debug_mode": 3}, (2, 0), "ascend", None).says(
        CHANGED, "op_debug_mode", "does not look for overflows", "enable"
    ),
    "no op_debug_mode": Given(GE, {f"{COMMON}.op_debug_mode": ...}, (2, 0), "ascend", None).says(
        REJECTED, "op_debug_mode", "is missing", '"op_debug_mode": 0'
    ),
    "overflows on a CPU": Given(BASE, {f"{COMMON}.op_debug_mode": 3}, (2, 4), "cpu", None).says(
        CHANGED, "op_debug_mode", "records nothing", "write 0"
    ),
    "steps of exceptions": Given(BASE, {f"{COMMON}.op_debug_mode": 4}, (2, 4), "ascend", None).says(
        CHANGED, "iteration", "records every step", '"all"'
    ),
    "statistics of exceptions": Given(
        BASE,
        {f"{COMMON}.op_debug_mode": 4, f"{COMMON}.iteration": "all", f"{COMMON}.saved_data": "full"},
        (2, 4),
        "ascend",
        None,
    ).says(CHANGED, "saved_data", "records tensors", "op_debug_mode 0"),
    "statistics of overflows": Given(
        BASE,
        {f"{COMMON}.op_debug_mode": 3, f"{COMMON}.saved_data": "full"},
        (2, 4),
        "ascend",
        None,
    ).says(CHANGED, "saved_data", "not as statistics", "op_debug_mode 0"),
    "saved_data statistics": Given(BASE, {f"{COMMON}.saved_data": "statistics"}, (2, 4), None, None).says(
        REJECTED, "saved_data", "is not known", "did you mean statistic?"
    ),
    "statistics on a CPU": Given(BASE, {f"{COMMON}.saved_data": "statistic"}, (2, 4), "cpu", None).says(
        REJECTED, "saved_data", "a CPU calculates no statistics", '"tensor"'
    ),
    "statistics of a synchronous dump": Given(BASE, {f"{COMMON}.saved_data": "statistic"}, (2, 0), "ascend", None).says(
        REJECTED, "saved_data", "up to 2.2", "npy"
    ),
    "statistic with bin": Given(
        GE,
        {f"{COMMON}.saved_data": "statistic", f"{COMMON}.file_format": "bin"},
        (2, 4),
        None,
        None,
    ).says(REJECTED, "saved_data", "needs file_format npy", '"file_format": "npy"'),
    "statistic without a format": Given(
        GE,
        {f"{COMMON}.saved_data": "full", f"{COMMON}.file_format": ...},
        (2, 4),
        "ascend",
        None,
    ).says(REJECTED, "saved_data", "missing, which is bin", "npy"),
    "saved_data before 1.6": Given(BASE, {}, (1, 5), None, None).says(
        CHANGED, "saved_data", "it came with 1.6", "newer"
    ),
    "file_format csv": Given(GE, {f"{COMMON}.file_format": "csv"}, (2, 4), "ascend", None).says(
        REJECTED, "file_format", "is not known", '"bin" or "npy"'
    ),
    "bin, synchronously": Given(BASE, {f"{COMMON}.file_format": "bin"}, (2, 4), "ascend", None).says(
        CHANGED, "file_format", ".npy always", "take it away"
    ),
    "an unknown statistic": Given(
        BASE,
        {f"{COMMON}.saved_data": "statistic", f"{COMMON}.statistic_category": ["max", "mean", "nan_count"]},
        (2, 4),
        "ascend",
        None,
    ).says(REJECTED, "statistic_category", '"mean" (and 1 more)', ""),
    "a statistic misspelled": Given(
        BASE, {f"{COMMON}.saved_data": "statistic", f"{COMMON}.statistic_category": ["l2_norm"]}, (2, 4), "ascend", None
    ).says(REJECTED, "statistic_category", '"l2_norm"', "did you mean l2norm?"),
    "statistics before 2.3": Given(BASE, {f"{COMMON}.statistic_category": ["max"]}, (2, 0), None, None).says(
        CHANGED, "statistic_category", "it came with 2.3", ""
    ),
    "a statistic that a device cannot do": Given(
        BASE,
        {
            f"{COMMON}.saved_data": "statistic",
            f"{COMMON}.statistic_category": ["max", "md5"],
            f"{E2E}.stat_calc_mode": "device",
        },
        (2, 4),
        "ascend",
        None,
    ).says(CHANGED, "statistic_category", '"md5" is left out', "host"),
    "the device for tensors": Given(BASE, {f"{E2E}.stat_calc_mode": "device"}, (2, 4), "ascend", None).says(
        CHANGED, "stat_calc_mode", "saved_data is tensor", "statistic"
    ),
    "the device on a GPU": Given(
        BASE,
        {f"{E2E}.stat_calc_mode": "device", f"{COMMON}.saved_data": "statistic"},
        (2, 4),
        "gpu",
        None,
    ).says(CHANGED, "stat_calc_mode", "only Ascend", "host"),
    "stat_calc_mode cpu": Given(BASE, {f"{E2E}.stat_calc_mode": "cpu"}, (2, 4), None, None).says(
        REJECTED, "stat_calc_mode", "is not known", '"host" or "device"'
    ),
    "precision middle": Given(BASE, {f"{E2E}.device_stat_precision_mode": "middle"}, (2, 4), None, None).says(
        REJECTED, "device_stat_precision_mode", "is not known", '"high" or "low"'
    ),
    "overflow_number of everything": Given(BASE, {f"{COMMON}.overflow_number": 3}, (2, 4), None, None).says(
        REJECTED, "overflow_number", "op_debug_mode 3 only", "take it away"
    ),
    "overflow_number before 2.4": Given(BASE, {f"{COMMON}.overflow_number": 3}, (2, 3), None, None).says(
        CHANGED, "overflow_number", "it came with 2.4", ""
    ),
    "initial_iteration below 0": Given(BASE, {f"{COMMON}.initial_iteration": -1}, (2, 6), None, None).says(
        REJECTED, "initial_iteration", "below 0", "from 0"
    ),
    "a regular expression before 2.3": Given(
        BASE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": ["name-regex(Default/.+)"]}, (2, 0), None, None
    ).says(CHANGED, "kernels", "came with 2.3", "full names"),
    "a broken expression": Given(
        BASE,
        {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": ["name-regex(a(b)"]},
        (2, 4),
        None,
        None,
    ).says(REJECTED, "kernels", "no regular expression", "correct it"),
    "a pattern that is none": Given(
        BASE,
        {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": ["Default/.*"]},
        (2, 4),
        None,
        None,
    ).says(CHANGED, "kernels", "not for a pattern", "name-regex("),
    "a name without its scope": Given(
        BASE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": ["MatMul-op101"]}, (2, 0), None, None
    ).says(CHANGED, "kernels", "scope", "Default/"),
    "a type before 1.6": Given(
        BASE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": ["conv"], f"{COMMON}.saved_data": ...}, (1, 3), None, None
    ).says(CHANGED, "kernels", "full names only", "Default/"),
    "a type at O2": Given(GE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": ["conv"]}, (2, 4), "ascend", "O2").says(
        CHANGED, "kernels", "types are not matched", "name-regex"
    ),
    "no kernels": Given(BASE, {f"{COMMON}.dump_mode": 1}, (2, 0), None, None).says(
        CHANGED, "kernels", "nothing is recorded", "dump_mode 0"
    ),
    "kernels as one text": Given(
        BASE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": "conv"}, (2, 4), None, None
    ).says(REJECTED, "kernels", "takes a list", "brackets"),
    "a kernel as a number": Given(BASE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": [12]}, (2, 4), None, None).says(
        CHANGED, "kernels", "names no operator", "quotation marks"
    ),
    "enable as a text": Given(BASE, {f"{E2E}.enable": "true"}, (2, 4), None, None).says(
        REJECTED, "enable", "takes true or false", "without quotation marks"
    ),
    "no enable": Given(BASE, {f"{E2E}.enable": ...}, (2, 0), None, None).says(
        REJECTED, "enable", "is missing", '"enable": true'
    ),
    "no trans_flag": Given(BASE, {f"{E2E}.trans_flag": ...}, (1, 10), None, None).says(
        REJECTED, "trans_flag", "is missing", '"trans_flag": true'
    ),
    "trans_flag as a number": Given(BASE, {f"{E2E}.trans_flag": 1}, (2, 4), None, None).says(
        REJECTED, "trans_flag", "takes true or false", ""
    ),
    "trans_flag in the wrong place": Given(BASE, {f"{COMMON}.trans_flag": True}, (2, 4), None, None).says(
        CHANGED, "trans_flag", "silently ignores", f"move it into {E2E}"
    ),
    "iteration in the wrong place": Given(BASE, {"iteration": "all"}, (2, 4), None, None).says(
        CHANGED, "iteration", "silently ignores", f"move it into {COMMON}"
    ),
    "sample_mode 2": Given(BASE, {f"{E2E}.sample_mode": 2}, (2, 4), None, None).says(
        REJECTED, "sample_mode", "2 is not known", "0 or 1"
    ),
    "sample_num 0": Given(BASE, {f"{E2E}.sample_mode": 1, f"{E2E}.sample_num": 0}, (2, 4), "ascend", None).says(
        REJECTED, "sample_num", "0 is not known", "from 1"
    ),
    "samples of overflows": Given(
        BASE, {f"{E2E}.sample_mode": 1, f"{COMMON}.op_debug_mode": 3}, (2, 4), "ascend", None
    ).says(CHANGED, "sample_mode", "whole tensors", "op_debug_mode 0"),
    "samples on a GPU": Given(BASE, {f"{E2E}.sample_mode": 1}, (2, 4), "gpu", None).says(
        CHANGED, "sample_mode", "Ascend only", "write 0"
    ),
    "sample_mode before 2.3": Given(BASE, {f"{E2E}.sample_mode": 1}, (2, 0), None, None).says(
        CHANGED, "sample_mode", "it came with 2.3", ""
    ),
    "arguments of an asynchronous dump": Given(
        BASE,
        {f"{E2E}.enable": False, f"{E2E}.save_kernel_args": True},
        (2, 4),
        "ascend",
        None,
    ).says(CHANGED, "save_kernel_args", "needs enable true", ""),
    "async_dump_settings since 2.0": Given(BASE, {"async_dump_settings": {"enable": True}}, (2, 0), None, None).says(
        CHANGED, "async_dump_settings", "ended with 1.10", "take it away"
    ),
    "nothing enabled": Given({COMMON: {**BASE[COMMON], "iteration": 0}}, {}, (1, 2), "ascend", None).says(
        CHANGED, "async_dump_settings", "nothing is recorded", "enable"
    ),
    "op_debug_mode in the wrong place": Given(BASE, {f"{COMMON}.iteration": 0}, (1, 2), "ascend", None).says(
        CHANGED, "op_debug_mode", "async_dump_settings only", "move it"
    ),
    "no e2e at O0": Given(GE, {}, (2, 4), "ascend", "O0").says(CHANGED, E2E, "records nothing", '"enable": true'),
    "e2e at O2": Given(BASE, {}, (2, 4), "ascend", "O2").says(
        CHANGED, E2E, "at O2 nothing is recorded", "take it away"
    ),
    "O2 since 2.6": Given(GE, {}, (2, 7), "ascend", "O2").says(CHANGED, COMMON, "but by msprobe", "--msprobe"),
    "no common settings": Given({E2E: BASE[E2E]}, {}, (2, 4), None, None).says(REJECTED, COMMON, "is missing", ""),
    "common settings as a list": Given(BASE, {COMMON: []}, (2, 4), None, None).says(
        REJECTED, COMMON, "is a list", "object"
    ),
    "a key misspelled": Given(BASE, {f"{COMMON}.save_data": "full"}, (2, 4), None, None).says(
        CHANGED, "save_data", "silently ignores", "did you mean saved_data?"
    ),
    "a section misspelled": Given(BASE, {"e2e_dump_setting": {}}, (2, 4), None, None).says(
        CHANGED, "e2e_dump_setting", "silently ignores", f"did you mean {E2E}?"
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_explained(name: str) -> None:
    mistake, given = MISTAKES[name], MISTAKES[name].given
    messages = checked(given.text, given.version, given.device, given.level).messages
    found = only_message(messages, mistake.weight, mistake.key, mistake.what, mistake.hint)
    assert_its_line(given.text, found)


def assert_its_line(text: str, message: Message) -> None:
    """The line is that of the key, or of the element in its list; what is missing has none."""
    *way, name = message.key.split(".")
    indent = " " * 4 * (len(way) + 1)
    begin = text.index(f'"{way[0]}"') if way else 0
    after = text.count("\n", 0, begin)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(f'{indent}"{name}"')]
    first = next((number for number in lines if number > after), 0)
    if not first:
        assert message.line == 0
        return
    assert message.line >= first
    between = text.splitlines()[first : message.line]
    assert all(line.startswith(indent + "    ") for line in between), "an element of the list, or the key itself"


def test_of_a_file_that_ends_in_the_middle_nothing_is_said_to_be_missing() -> None:
    text = json.dumps({COMMON: BASE[COMMON]}, indent=2)
    for end in range(text.index("{", 1) + 1, text.rindex("}", 0, -2)):
        report = check(parse(text[:end].encode()), Target((2, 4), None, None))
        assert [message.weight for message in report.messages if message.weight is REJECTED], end
        assert not [message for message in report.messages if "is missing" in message.what and message.key == COMMON], (
            end
        )


def test_the_list_of_mistakes_is_long() -> None:
    assert len(MISTAKES) >= 30


def test_what_is_right_for_one_version_is_said_to_be_wrong_for_another() -> None:
    text = changed(BASE, {f"{E2E}.sample_mode": 1, f"{E2E}.sample_num": 10})
    assert checked(text, (2, 4), "ascend", "O0").mistakes == []
    assert [each.key for each in checked(text, (2, 2), "ascend").mistakes] == [
        f"{E2E}.sample_mode",
        f"{E2E}.sample_num",
    ]


def test_without_a_device_what_differs_is_a_note_that_names_it() -> None:
    report = checked(changed(BASE, {f"{COMMON}.saved_data": "statistic"}), (2, 4))
    assert report.mistakes == []
    assert any(each.what.startswith("on CPU: a CPU calculates no statistics") for each in report.notes)


def test_what_is_overruled_is_not_refused() -> None:
    """Exceptions are recorded as tensors, so that a CPU does not refuse statistics of them."""
    text = changed(BASE, {f"{COMMON}.op_debug_mode": 4, f"{COMMON}.iteration": "all", f"{COMMON}.saved_data": "full"})
    assert {each.weight for each in checked(text, (2, 7), "cpu").mistakes} == {CHANGED}


@pytest.mark.parametrize("value", [None, "max", 1, {}])
def test_statistics_of_any_type_are_taken_where_nobody_reads_them(value: object) -> None:
    assert checked(changed(BASE, {f"{COMMON}.statistic_category": value}), (2, 7), "cpu").mistakes == []
    (mistake,) = checked(
        changed(BASE, {f"{COMMON}.statistic_category": value, f"{COMMON}.saved_data": "full"}), (2, 7), "gpu"
    ).mistakes
    assert (mistake.weight, mistake.key) == (REJECTED, f"{COMMON}.statistic_category")


@pytest.mark.parametrize("value", [None, True, 0, "x", []])
def test_settings_that_are_no_object_are_taken_for_an_empty_one(value: object) -> None:
    (mistake,) = checked(changed(BASE, {E2E: value}), (2, 7), "cpu").mistakes
    assert (mistake.weight, mistake.key) == (CHANGED, E2E)


def test_a_byte_order_mark_is_skipped_by_mindspore() -> None:
    report = checked("\ufeff" + json.dumps(BASE), (2, 4))
    assert report.mistakes == []
    assert "byte order mark" in report.notes[0].what


def test_the_same_mistake_in_a_thousand_names_is_said_once() -> None:
    names = [f"MatMul-op{number}" for number in range(1000)]
    text = changed(BASE, {f"{COMMON}.dump_mode": 1, f"{COMMON}.kernels": names})
    assert len(checked(text, (2, 4)).mistakes) == 1


@pytest.mark.parametrize("text", ["", "[]", "1", "null", '"x"', "{", "{}", "nonsense", "[" * 1000])
def test_what_is_no_configuration_is_a_mistake(text: str) -> None:
    assert checked(text).mistakes


# -- any value of any key --------------------------------------------------------------------------

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    -1,
    99,
    1.5,
    1e30,
    "",
    "0",
    "all",
    "é\x1b",
    [],
    [0],
    [""],
    [[]],
    [{}],
    {},
    {"a": 1},
]
PATHS = [
    *TOP_KEYS,
    *(f"{COMMON}.{key}" for key in COMMON_KEYS),
    *(f"{E2E}.{key}" for key in E2E_KEYS),
    *(f"async_dump_settings.{key}" for key in ASYNC_KEYS),
]


@pytest.mark.parametrize("path", PATHS)
def test_any_value_of_any_key_is_looked_at(path: str) -> None:
    for value, version, device in itertools.product(VALUES, [(1, 1), (1, 6), (2, 0), (2, 4), (2, 11)], [None, *ALL]):
        report = checked(changed(BASE, {path: value}), version, device)
        for each in report.messages:
            assert each.what, (value, version)
            assert each.hint or each.weight is NOTE, each


@given(st.data())
def test_any_two_values_are_looked_at(data: st.DataObject) -> None:
    changes = {data.draw(st.sampled_from(PATHS)): data.draw(st.sampled_from(VALUES)) for _ in range(3)}
    order = sorted(changes, key=lambda path: path.count("."))
    try:
        text = changed(BASE, {path: changes[path] for path in order})
    except (AttributeError, TypeError):  # a section that is none now has no keys
        return
    level = data.draw(st.sampled_from([None, "O0", "O1", "O2"]))
    checked(text, data.draw(st.sampled_from([(1, 2), (2, 2), (2, 5)])), data.draw(st.sampled_from([None, *ALL])), level)


# -- new files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [OLDEST, (1, 2), (1, 3), (1, 6), (2, 0), (2, 2), (2, 3), (2, 4), (2, 6), NEWEST])
@pytest.mark.parametrize("device", ALL)
def test_what_is_written_is_right(version: tuple[int, int], device: str) -> None:
    levels = ("O0", "O2") if device == "ascend" and (2, 3) <= version < (2, 6) else ("O0",)
    for level, asynchronous in itertools.product(levels, (False, True) if device == "ascend" else (False,)):
        target = Target(version, device, level)
        choices = MindSporeChoices(path="/data/dump", asynchronous=asynchronous or level == "O2")
        text = json.dumps(new(choices, target))
        assert check(parse(text.encode()), target).mistakes == [], text


def test_a_new_file_says_what_was_chosen() -> None:
    choices = MindSporeChoices(
        path="/d",
        dump_mode=1,
        kernels=("conv",),
        saved_data="statistic",
        statistic_category=("max", "nan count"),
        sample_num=7,
        support_device=(3,),
        input_output=2,
    )
    made = new(choices, Target((2, 4), "ascend", "O0"))
    assert made[COMMON]["statistic_category"] == ["max", "nan count"]
    assert made[COMMON]["kernels"] == ["conv"]
    assert (made[E2E]["sample_mode"], made[E2E]["sample_num"]) == (1, 7)
    assert "file_format" not in made[COMMON]


# -- small parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "steps"), [("all", None), ("3", 1), ("0|5-8|100-120", 26), ("5-8|6", 4), ("8-5", 0)])
def test_steps_are_counted(text: str, steps: int | None) -> None:
    assert steps_of(text) == steps


@pytest.mark.parametrize(("text", "version"), [("2.3", (2, 3)), ("2.10.0rc1", (2, 10)), (" 1.6.1 ", (1, 6))])
def test_versions(text: str, version: tuple[int, int]) -> None:
    assert version_of(text) == version


@pytest.mark.parametrize("text", ["", "2", "two", "0.7", "1.0", "2.3000"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(TdbgError):
        version_of(text)


def test_the_environment_names_the_file_and_what_else_is_needed() -> None:
    report = checked(changed(BASE, {f"{COMMON}.path": ...}), (2, 4))
    names = {each.name: each.value for each in report.environment}
    assert names["MINDSPORE_DUMP_CONFIG"] == "/home/me/data_dump.json"
    assert "MS_DIAGNOSTIC_DATA_PATH" in names
    assert "ENABLE_MS_GE_DUMP" in {each.name for each in checked(json.dumps(GE), (2, 1), "ascend").environment}
