"""``config.json`` of msprobe: what its manual shows is right, and every mistake is explained."""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import pytest

from tests.recording.examples import PROBE_EXAMPLES, changed, only_message
from tui_debugger.recording.json_lines import parse
from tui_debugger.recording.keys import ConfigurationReport, Weight
from tui_debugger.recording.msprobe import FRAMEWORKS, TASK_KEYS, TOP_KEYS, MsprobeChoices, check, is_msprobe, new

REJECTED, CHANGED, NOTE = Weight.REJECTED, Weight.CHANGED, Weight.NOTE


def checked(text: str, framework: str | None = "pytorch") -> ConfigurationReport:
    return check(parse(text.encode()), framework, "/home/me/config.json")


@pytest.mark.parametrize("name", PROBE_EXAMPLES)
def test_every_example_of_the_manual_is_right(name: str) -> None:
    framework, content = PROBE_EXAMPLES[name]
    text = json.dumps(content, indent=4)
    assert is_msprobe(parse(text.encode()))
    for who in (framework, None):
        assert checked(text, who).mistakes == []


# -- mistakes --------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "task": "statistics",
    "dump_path": "/data/dump",
    "rank": [],
    "step": [],
    "level": "L1",
    "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
}
TENSOR: dict[str, Any] = {**BASE, "task": "tensor", "tensor": {"scope": [], "list": [], "data_mode": ["all"]}}


class Mistake(NamedTuple):
    """A file with a mistake, for which framework, and what the message must say."""

    content: dict[str, Any]
    changes: dict[str, Any]
    weight: Weight
    key: str
    what: str
    hint: str
    framework: str = "pytorch"


SLICE = [{"dim": 0, "begin": 0, "end": 2}]
MISTAKES: dict[str, Mistake] = {
    "task statistic": Mistake(BASE, {"task": "statistic"}, REJECTED, "task", "not known", "did you mean statistics?"),
    "task overflow_check": Mistake(
        BASE, {"task": "overflow_check"}, REJECTED, "task", "no task overflow_check any more", "tdbg origin"
    ),
    "task free_benchmark": Mistake(BASE, {"task": "free_benchmark"}, REJECTED, "task", "any more", "older releases"),
    "task run_ut": Mistake(BASE, {"task": "run_ut"}, REJECTED, "task", "any more", "acc_check"),
    "task of the other framework": Mistake(
        BASE, {"task": "exception_dump"}, REJECTED, "task", "no task for PyTorch", "statistics"
    ),
    "task of PyTorch": Mistake(
        BASE, {"task": "acc_check"}, REJECTED, "task", "no task for MindSpore", "statistics", "mindspore"
    ),
    "task as a list": Mistake(BASE, {"task": ["tensor"]}, REJECTED, "task", "not known", "one of"),
    "no task": Mistake(BASE, {"task": ...}, REJECTED, "task", "is missing", '"statistics"'),
    "level l1": Mistake(BASE, {"level": "l1"}, REJECTED, "level", "not known", "did you mean L1?"),
    "level 1": Mistake(BASE, {"level": 1}, REJECTED, "level", "not known", "L0, L1"),
    "level of structure": Mistake(BASE, {"task": "structure"}, CHANGED, "level", "mix is used", '"mix"'),
    "level of nan_check": Mistake(
        BASE, {"task": "nan_check", "level": "L0"}, REJECTED, "level", "takes level L1 only", '"L1"'
    ),
    "L2 without a name": Mistake(
        TENSOR, {"level": "L2"}, REJECTED, "level", "list must name exactly one call", "write L1"
    ),
    "L2 of statistics": Mistake(BASE, {"level": "L2"}, REJECTED, "level", "task must be tensor", "write L1"),
    "no dump_path": Mistake(BASE, {"dump_path": ...}, REJECTED, "dump_path", "is missing", "./dump"),
    "dump_path as a number": Mistake(BASE, {"dump_path": 1}, REJECTED, "dump_path", "takes a text", "./dump"),
    "a blank in the path": Mistake(BASE, {"dump_path": "/my dump"}, REJECTED, "dump_path", "other than letters", ""),
    "rank as a number": Mistake(BASE, {"rank": 0}, REJECTED, "rank", "takes a list", "write [0]"),
    "rank as a text": Mistake(BASE, {"rank": "0-3"}, REJECTED, "rank", "takes a list", 'write ["0-3"]'),
    "rank below 0": Mistake(BASE, {"rank": [-1]}, REJECTED, "rank", "from 0 to 1000000", "5-8"),
    "step as MindSpore has it": Mistake(BASE, {"step": "0|5-8"}, REJECTED, "step", "takes a list", ""),
    "bars in a step": Mistake(BASE, {"step": ["0|5"]}, REJECTED, "step", "neither a number nor a span", "5-8"),
    "a span from behind": Mistake(BASE, {"step": ["8-5"]}, REJECTED, "step", "8 comes after 5", ""),
    "a step with a point": Mistake(BASE, {"step": [1.5]}, REJECTED, "step", "a number with a point", ""),
    "a step beyond all": Mistake(BASE, {"step": [1000001]}, REJECTED, "step", "from 0 to 1000000", ""),
    "scope of one": Mistake(
        BASE, {"statistics.scope": ["Module.fc.Linear.forward.0"]}, REJECTED, "scope", "first and the last", "two names"
    ),
    "a scope of modules at L1": Mistake(
        BASE,
        {"statistics.scope": ["Module.fc.Linear.forward.0", "Functional.relu.0.forward"]},
        *(REJECTED, "scope", "'Module.fc.Linear.forward.0' is no full name of level L1", "Functional.relu"),
    ),
    "scope as a text": Mistake(BASE, {"statistics.scope": "fc"}, REJECTED, "scope", "takes a list", '["fc"]'),
    "list of numbers": Mistake(BASE, {"statistics.list": [1]}, REJECTED, "list", "takes a list of texts", "quotation"),
    "data_mode as a text": Mistake(BASE, {"statistics.data_mode": "all"}, REJECTED, "data_mode", "a list", '["all"]'),
    "data_mode inputs": Mistake(
        BASE, {"statistics.data_mode": ["inputs"]}, REJECTED, "data_mode", "not known", "did you mean input?"
    ),
    "all with others": Mistake(
        BASE, {"statistics.data_mode": ["all", "input"]}, REJECTED, "data_mode", "with others", '["all"] alone'
    ),
    "summary_mode mean": Mistake(
        BASE, {"statistics.summary_mode": "mean"}, REJECTED, "summary_mode", "not known", "statistics, md5, xor"
    ),
    "summary_mode as a list": Mistake(
        BASE, {"statistics.summary_mode": ["max"]}, REJECTED, "summary_mode", "PyTorch takes a text", '"statistics"'
    ),
    "an unknown statistic": Mistake(
        BASE, {"statistics.summary_mode": ["maxi"]}, REJECTED, "summary_mode", "not known", "max?", "mindspore"
    ),
    "slice at the top level": Mistake(
        BASE, {"slice": SLICE}, CHANGED, "slice", "does not read it at the top level", '"statistics": {...}'
    ),
    "slice as an object": Mistake(
        BASE, {"statistics.slice": SLICE[0]}, REJECTED, "slice", "a list of objects", '"begin"'
    ),
    "slice of a text": Mistake(
        BASE, {"statistics.slice": [{"dim": "0"}]}, REJECTED, "slice", "whole numbers only", "write a number"
    ),
    "slice below 0": Mistake(BASE, {"statistics.slice": [{"dim": -1}]}, REJECTED, "slice", "below 0", "count from 0"),
    "slice with start": Mistake(
        BASE, {"statistics.slice": [{"dim": 0, "start": 1}]}, CHANGED, "slice", "start is not known", ""
    ),
    "list at the top level": Mistake(
        TENSOR, {"list": ["relu"]}, CHANGED, "list", "does not read it at the top level", '"tensor": {...}'
    ),
    "task in its own section": Mistake(
        BASE, {"statistics.level": "L0"}, CHANGED, "level", "silently ignores", "top level"
    ),
    "asynchronous tensors": Mistake(TENSOR, {"async_dump": True}, REJECTED, "async_dump", "need a list", "tensor.list"),
    "asynchronous checksums": Mistake(
        BASE,
        {"async_dump": True, "statistics.summary_mode": "md5"},
        *(REJECTED, "async_dump", "md5 cannot", "statistics"),
    ),
    "async_dump as a text": Mistake(BASE, {"async_dump": "true"}, REJECTED, "async_dump", "true or false", "true"),
    "extra_info 1": Mistake(BASE, {"extra_info": 1}, REJECTED, "extra_info", "true or false", "true"),
    "precision middle": Mistake(BASE, {"precision": "middle"}, REJECTED, "precision", "not known", "high, low"),
    "seed": Mistake(BASE, {"seed": 1234}, CHANGED, "seed", "up to 1.x", "seed_all"),
    "acl_config": Mistake(BASE, {"acl_config": "acl.json"}, CHANGED, "acl_config", "up to 1.x", "L2"),
    "a key misspelled": Mistake(BASE, {"dumppath": "/x"}, CHANGED, "dumppath", "silently", "did you mean dump_path?"),
    "a setting misspelled": Mistake(
        BASE, {"statistics.data_modes": ["all"]}, CHANGED, "data_modes", "silently", "did you mean data_mode?"
    ),
    "settings as a list": Mistake(BASE, {"statistics": []}, REJECTED, "statistics", "takes an object", "{}"),
    "diff_nums 0": Mistake(
        BASE, {"task": "diff_check", "diff_check": {"diff_nums": 0}}, REJECTED, "diff_nums", "0 is not known", "-1"
    ),
    "load without modules": Mistake(BASE, {"load": {"path": "/x"}}, REJECTED, "modules", "is missing", "modules"),
    "load of a call": Mistake(
        BASE,
        {"load": {"path": "/x", "modules": ["Torch.relu.0.forward"]}},
        *(REJECTED, "modules", "no call of a module", "Module."),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_explained(name: str) -> None:
    mistake = MISTAKES[name]
    text = changed(mistake.content, mistake.changes)
    messages = checked(text, mistake.framework).messages
    found = only_message(messages, mistake.weight, mistake.key, mistake.what, mistake.hint)
    assert (found.line > 0) == (f'"{mistake.key}"' in text)


def test_the_list_of_mistakes_is_long() -> None:
    assert len(MISTAKES) >= 30


def test_a_byte_order_mark_stops_msprobe() -> None:
    (mistake,) = checked("\ufeff" + json.dumps(BASE)).mistakes
    assert "msprobe stops at it" in mistake.what


def test_what_depends_on_the_framework_is_a_note_where_nobody_knows_it() -> None:
    report = checked(changed(BASE, {"task": "exception_dump"}), None)
    assert report.mistakes == []
    assert any("MindSpore only" in each.what for each in report.notes)


VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    1.5,
    "",
    "all",
    "0-3",
    "\x1b[2J",
    [],
    [0],
    [""],
    [[]],
    [{}],
    [None],
    {},
    {"dim": []},
]
PATHS = [*TOP_KEYS, *(f"{task}.{key}" for task, keys in TASK_KEYS.items() for key in keys), "load.path", "load.modules"]


@pytest.mark.parametrize("path", PATHS)
def test_any_value_of_any_key_is_looked_at(path: str) -> None:
    task = path.split(".", maxsplit=1)[0]
    known = {"task": task} if task in TASK_KEYS else {}
    for value, framework, level in itertools.product(VALUES, [None, *FRAMEWORKS], ["L1", "L2", "debug"]):
        for each in checked(changed(BASE, {**known, "level": level, path: value}), framework).messages:
            assert each.what
            assert each.hint or each.weight is NOTE, each


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("level", ["L0", "L1", "mix", "debug"])
@pytest.mark.parametrize("task", ["statistics", "tensor", "structure"])
def test_what_is_written_is_right(framework: str, level: str, task: str) -> None:
    level = "mix" if task == "structure" else level
    made = new(MsprobeChoices(task=task, level=level, step=(0, "5-8"), rank=(1,), list=("relu",)))
    assert check(parse(json.dumps(made).encode()), framework).mistakes == []


def test_which_file_is_whose() -> None:
    assert not is_msprobe(parse(b'{"common_dump_settings": {}}'))
    assert not is_msprobe(parse(b"{}"))
    assert not is_msprobe(parse(b"["))
    assert is_msprobe(parse(b'{"task": "overflow_check"}'))


def test_the_lines_for_the_program_fit_the_level() -> None:
    def lines(level: str) -> str:
        return " ".join(each.value for each in checked(changed(BASE, {"level": level})).environment)

    assert 'config_path="/home/me/config.json"' in lines("L1")
    assert "start(model=model)" in lines("L0")
    assert "start()" in lines("L1")
