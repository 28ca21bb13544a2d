"""``config.json`` of msprobe 26: what each key does, and what msprobe refuses or silently ignores.

The rules are those of msprobe 26.2.0, compared with what it refuses. PyTorch and MindSpore have different tasks; where
the framework is not known, values that only one of them accepts are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tui_debugger.recording.json_lines import Parsed, Slip, Value
from tui_debugger.recording.keys import (
    ConfigurationChecker,
    ConfigurationReport,
    Key,
    KeySection,
    Variable,
    Weight,
    first_wrong,
    near,
    short,
)

RELEASE: Final = "26.2"
WHO: Final = "msprobe"
FRAMEWORKS: Final[Mapping[str, str]] = {"pytorch": "PyTorch", "mindspore": "MindSpore"}
LEVELS: Final[Mapping[str, str]] = {
    "L0": "modules: the model must be given to the debugger",
    "L1": "calls of the framework's functions",
    "L2": "kernels of an NPU",
    "mix": "modules and the calls in them: the model must be given to the debugger",
    "debug": "what the program saves with debugger.save()",
}
TASKS: Final[Mapping[str, str]] = {
    "statistics": "maximum, minimum, mean and norm of each tensor",
    "tensor": "values and statistics of each tensor",
    "structure": "modules and stacks, no numbers",
    "acc_check": "what an accuracy check needs (PyTorch)",
    "diff_check": "a search for the first difference (PyTorch)",
    "nan_check": "the NaN register of an NPU (PyTorch, level L1)",
    "exception_dump": "what an operator got that raised an exception (MindSpore)",
}
_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "pytorch": ("statistics", "tensor", "structure", "acc_check", "diff_check", "nan_check"),
    "mindspore": ("statistics", "tensor", "structure", "exception_dump"),
}
_ENDED: Final[Mapping[str, str]] = {
    "overflow_check": "record statistics, and run `msprobe overflow_check` on a step; or tdbg origin on the dump",
    "free_benchmark": "older releases have it",
    "run_ut": "it is called acc_check now",
    "grad_probe": "the monitor of msprobe has taken its place",
}
"""Tasks of older releases, with what to do instead."""
DATA_MODES: Final = ("all", "input", "output", "forward", "backward")
SUMMARIES: Final[Mapping[str, str]] = {
    "statistics": "maximum, minimum, mean, norm",
    "md5": "also a checksum of the bytes",
    "xor": "a checksum alone: no statistics",
}
LISTED_SUMMARIES: Final = (
    *("max", "min", "mean", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "l2norm", "hash", "md5"),
)
"""The statistics of MindSpore's static graphs, for ``summary_mode`` as a list."""

TOP_KEYS: Final[Mapping[str, Key]] = {
    "task": Key("what is recorded (default statistics)", {f'"{name}"': text for name, text in TASKS.items()}),
    "dump_path": Key("the directory of the dump; it is made"),
    "rank": Key('which ranks record, such as [0, "4-6"]; empty: all. A program of one process needs []'),
    "step": Key('which steps are recorded, from 0, such as [0, "4-6"]; empty: all'),
    "level": Key("what one record is (default L1)", {f'"{name}"': text for name, text in LEVELS.items()}),
    "dump_enable": Key("whether it records; while the program runs, the file can switch it on and off"),
    "extra_info": Key("whether stacks are recorded (stack.json)"),
    "async_dump": Key("whether tensors are written while the program goes on: faster, and takes memory"),
    "precision": Key(
        "how statistics are calculated", {'"high"': "in float32 or more", '"low"': "in the tensor's type"}
    ),
    "risk_level": Key("which functions are recorded at level L1", {}),
    "custom_op_namespaces": Key("namespaces of own operators that are recorded, too (PyTorch)"),
    "load": Key("a dump whose inputs of modules take the place of the real ones (PyTorch)"),
    **{task: Key(f"settings of the task {task}") for task in TASKS},
}
_OLD_TOP: Final[Mapping[str, str]] = {
    "seed": "call seed_all() in the program",
    "is_deterministic": "call seed_all(mode=True) in the program",
    "enable_dataloader": "call start(), stop() and step() in the program",
    "acl_config": "level L2 needs one name in list, and no such file",
}
"""Keys of releases up to 1.x."""
_SELECTION: Final[Mapping[str, Key]] = {
    "scope": Key("the first and the last name of a span of calls or modules; empty: everything"),
    "list": Key("names, or parts of names, of the calls that are recorded; empty: everything"),
    "data_mode": Key('which tensors: ["all"], or some of input, output, forward, backward'),
    "summary_mode": Key("which statistics", {f'"{name}"': text for name, text in SUMMARIES.items()}),
    "slice": Key(
        "the part of each tensor that is recorded: [{dim, begin, end}]; shapes are those of the part (PyTorch)"
    ),
    "request_id": Key("the request of an inference server whose tokens are recorded (PyTorch)"),
    "diff_nums": Key("differences after which it stops; -1: never"),
}
TASK_KEYS: Final[Mapping[str, Mapping[str, Key]]] = {
    "statistics": {
        **_SELECTION,
        "tensor_list": Key("names whose values are recorded, too"),
        "device": Key("who calculates statistics of MindSpore's kernels: host or device"),
        "precision": Key("how the device sums them: high or low (MindSpore's kernels)"),
    },
    "tensor": {
        **_SELECTION,
        "bench_path": Key("a dump to compare with while it records"),
        "file_format": Key("of MindSpore's kernels: npy or bin"),
    },
    "structure": {},
    "acc_check": {
        **_SELECTION,
        "white_list": Key("functions that are checked"),
        "black_list": Key("functions that are not"),
        "error_data_path": Key("where tensors of failed checks go; it must exist"),
    },
    "diff_check": _SELECTION,
    "nan_check": {**_SELECTION, "tensor_list": Key("names whose values are recorded, too")},
    "exception_dump": _SELECTION,
}
_CHECKED: Final = ("", "load", "statistics", "tensor", "nan_check")
"""The objects whose values msprobe checks."""
_OF_MINDSPORE: Final = {"statistics": ("device", "precision"), "tensor": ("file_format",)}
_WORDS: Final = {"device": ("host", "device"), "precision": ("high", "low"), "file_format": ("npy", "bin")}
_CALL: Final = r"[A-Za-z]+\..*\.\d+\.(?:forward|backward)"
_MODULE: Final = r"(?:Module|Cell)\..*\.(?:forward|backward)\.\d+"
_NAMES: Final = {"L1": re.compile(_CALL), "L0": re.compile(_MODULE), "mix": re.compile(f"{_CALL}|{_MODULE}")}
"""Patterns of names that may bound a span, by level."""
_EXAMPLES: Final = {
    "L1": "Functional.relu.0.forward",
    "L0": "Module.fc.Linear.forward.0",
    "mix": "Functional.relu.0.forward or Module.fc.Linear.forward.0",
}
_SPAN: Final = re.compile(r"\s*\+?(\d+)\s*(?:-\s*\+?(\d+)\s*)?")
_MOST: Final = 1_000_000
_PATH: Final = re.compile(r"[a-zA-Z0-9_.:/-]+")
_RISKS: Final = ("CORE", "FOCUS", "ALL")


def is_msprobe(parsed: Parsed) -> bool:
    """Whether a file looks like msprobe's rather than MindSpore's."""
    members = parsed.root.content if parsed.root is not None else None
    if not isinstance(members, dict) or any(name.endswith("_dump_settings") for name in members):
        return False
    return bool(members.keys() & {*TOP_KEYS, *_ENDED, *_OLD_TOP})


def check(parsed: Parsed, framework: str | None = None, file: str = "") -> ConfigurationReport:
    """Checks a file. ``framework`` None: unknown. ``file``: its path, for the lines to write into the program."""
    return _MsprobeChecker(framework).run(parsed, file)


class _MsprobeChecker(ConfigurationChecker):
    def __init__(self, framework: str | None) -> None:
        super().__init__(f"msprobe {RELEASE}" + (f", {FRAMEWORKS[framework]}" if framework else ""), WHO)
        self.framework = framework
        self.task = "statistics"
        self.level = "L1"

    def run(self, parsed: Parsed, file: str) -> ConfigurationReport:
        taken = {Slip.DUPLICATE: (Weight.CHANGED, ""), Slip.NOT_FINITE: (Weight.NOTE, "Python reads it")}
        self.spelling(parsed, taken, WHO)
        top = self.top(parsed, 'it begins with { "task": ...')
        if top is None:
            return self.finish()
        top.explain(TOP_KEYS)
        self._unknown(top)
        self.level = self._one_of(top, "level", LEVELS) or "L1"
        task = self._task(top)
        self._common(top)
        self._spans(top, "rank")
        self._spans(top, "step")
        self.task = task or "statistics"
        section = self._settings(top, task)
        self._level(top, section)
        self._async(top, section)
        if self.level in {"L0", "mix"}:
            top.note("level", "the model must be given: debugger.start(model=...)")
        self.report.environment += environment(self.level, self.framework, file)
        return self.finish()

    def _unknown(self, top: KeySection) -> None:
        for name in top.members:
            if name in _OLD_TOP:
                top.change(name, f"{WHO} {RELEASE} silently ignores it: releases up to 1.x had it", _OLD_TOP[name])
            elif name in _ENDED and top.plain("task") != name:
                top.note(name, f"settings of a task that {WHO} {RELEASE} has no more; they are not read")
            elif name in _SELECTION:
                expected = " (some builds read slice here; 26.2.0 does not)" if name == "slice" else ""
                task = top.plain("task") if isinstance(top.plain("task"), str) else "statistics"
                hint = f'move it into "{task}": {{...}}'
                top.change(name, f"{WHO} does not read it at the top level and silently ignores it{expected}", hint)
            elif name not in TOP_KEYS and name not in _ENDED:
                hint = near(name, TOP_KEYS, f"take it away; here may stand {', '.join(list(TOP_KEYS)[:12])}")
                top.change(name, f"{WHO} does not know this key and silently ignores it", hint)
            elif name in TASKS and name != (top.plain("task") or "statistics"):
                top.note(name, f"it is not used: task is {top.plain('task', 'statistics')}")

    # -- what a value may be ---------------------------------------------------------------------------

    def _wrong(self, section: KeySection, name: str, what: str, hint: str, line: int = 0) -> None:
        """Adds a mistake that stops msprobe, unless it is in settings of a task that msprobe does not check."""
        weight = Weight.REJECTED if section.path in _CHECKED else Weight.CHANGED
        section.say(weight, name, what, hint, line=line)

    def _one_of(
        self, section: KeySection, name: str, allowed: Mapping[str, str] | Sequence[str], *, may_be_empty: bool = True
    ) -> str | None:
        value = section.get(name)
        if value is None or (may_be_empty and value.content in (None, "")):
            return None
        names = tuple(allowed)
        if may_be_empty and not value.content:
            section.change(
                name, f"{short(value)} is taken for nothing: the default is used", f"one of {', '.join(names)}"
            )
            return None
        if not isinstance(value.content, str) or value.content not in names:
            expected = "one of " + ", ".join(names)
            hint = (near(value.content, names, "") if isinstance(value.content, str) else "") or expected
            section.reject(name, f"{short(value)} is not known", hint)
            return None
        return value.content

    def _texts(self, section: KeySection, name: str) -> list[str] | None:
        """The texts of a list; None where it is missing, or wrong, which is reported."""
        value = section.get(name)
        if value is None or value.content is None:
            return None
        if not isinstance(value.content, list):
            hint = f"write it in brackets: [{short(value)}]" if isinstance(value.content, str) else "write a list: []"
            self._wrong(section, name, f"{short(value)} is {value.kind}: {WHO} takes a list of texts", hint)
            return None
        wrong = first_wrong(value.content, lambda each: isinstance(each.content, str))
        if wrong is not None:
            what = f"{short(wrong[0])} is {wrong[0].kind}{wrong[1]}: {WHO} takes a list of texts"
            self._wrong(section, name, what, "write names in quotation marks", line=wrong[0].line)
            return None
        return [str(each.content) for each in value.content]

    def _switch(self, section: KeySection, name: str) -> bool | None:
        if section.plain(name) is None and name == "dump_enable":
            return None
        return section.of_type(name, bool, "true or false", "write true or false")

    # -- the top level ---------------------------------------------------------------------------------

    def _task(self, top: KeySection) -> str | None:
        value = top.get("task")
        if value is None or value.content in (None, ""):
            if self.framework == "pytorch":
                top.reject(
                    "task", f"it is missing: {WHO} stops for PyTorch, unless the program gives it", 'write "statistics"'
                )
            else:
                top.note("task", "it is missing: PyTorch stops unless the program gives it; MindSpore takes statistics")
            return "statistics"
        if isinstance(value.content, str) and value.content in _ENDED:
            what = f"{WHO} {RELEASE} has no task {value.content} any more"
            top.reject("task", what, _ENDED[value.content])
            return None
        known = _OF[self.framework] if self.framework else tuple(TASKS)
        if isinstance(value.content, str) and value.content in TASKS and value.content not in known:
            framework = FRAMEWORKS[self.framework or "pytorch"]
            top.reject("task", f"{value.content} is no task for {framework}", f"one of {', '.join(known)}")
            return None
        task = self._one_of(top, "task", known, may_be_empty=False)
        if task is not None and self.framework is None:
            of = [FRAMEWORKS[each] for each in FRAMEWORKS if task in _OF[each]]
            if len(of) == 1:
                top.note("task", f"{task} is a task for {of[0]} only")
        return task

    def _common(self, top: KeySection) -> None:
        path = top.get("dump_path")
        if path is None or path.content in (None, ""):
            if "load" not in top.members:
                top.reject("dump_path", f"it is missing: {WHO} stops without it", 'write "dump_path": "./dump"')
        elif not isinstance(path.content, str):
            top.reject("dump_path", f"{short(path)} is {path.kind}: {WHO} takes a text", 'write "./dump"')
        elif not _PATH.fullmatch(path.content):
            what = "the path has characters other than letters, digits and _ . : / -"
            top.reject("dump_path", what, "choose another directory")
        elif not path.content.startswith("/"):
            top.note("dump_path", "it is below the directory in which the program starts")
        self._switch(top, "dump_enable")
        self._switch(top, "extra_info")
        self._one_of(top, "precision", ("high", "low"), may_be_empty=False)
        self._one_of(top, "risk_level", _RISKS)
        self._texts(top, "custom_op_namespaces")
        self._load(top)

    def _load(self, top: KeySection) -> None:
        value = top.get("load")
        if value is None:
            return
        if not isinstance(value.content, dict):
            top.reject("load", f"it is {value.kind}: {WHO} takes an object", 'write {"path": ..., "modules": [...]}')
            return
        load = KeySection(self, "load", value)
        for name in ("path", "modules"):
            if not load.plain(name):
                load.reject(name, f"it is missing: {WHO} stops without it", f'write "{name}"')
        for name in self._texts(load, "modules") or ():
            if not re.fullmatch(r"Module\..*\.forward\.\d+", name):
                load.reject("modules", f"{name!r} is no call of a module", "such as Module.fc.Linear.forward.0")
                break
        self._switch(load, "dump_after_load")
        self._spans(load, "step")
        self._spans(load, "rank")

    def _spans(self, section: KeySection, name: str) -> None:
        value = section.get(name)
        if value is None or value.content is None:
            return
        if not isinstance(value.content, list):
            expected = str(value.content) if value.is_whole else f'"{value.plain}"'
            section.reject(name, f"{short(value)} is {value.kind}: {WHO} takes a list", f"write [{expected}]")
            return
        for each in value.content:
            why = _no_span(each)
            if why is not None:
                what = f"{short(each)}: {why}"
                section.say(Weight.REJECTED, name, what, 'such as [0, 3, "5-8"]', line=each.line)
                return

    # -- the settings of the task -----------------------------------------------------------------------

    def _settings(self, top: KeySection, task: str | None) -> KeySection | None:
        if task is None:
            return None
        value = top.get(task)
        if value is None:
            top.note(task, f'there is no "{task}": everything is recorded, as usual')
            return None
        if not isinstance(value.content, dict):
            top.reject(task, f"it is {value.kind}: {WHO} takes an object", "write {}")
            return None
        section = KeySection(self, task, value)
        known = TASK_KEYS[task]
        section.explain(known)
        section.unknown(known, {"": {name: key for name, key in TOP_KEYS.items() if name not in known}})
        scope, listed = self._texts(section, "scope"), self._texts(section, "list")
        self._scope(section, scope, listed)
        self._data_mode(section)
        if task in {"statistics", "tensor"}:
            self._summary(section, task)
        self._slice(section)
        self._texts(section, "tensor_list")
        if self.level == "debug" and section.plain("tensor_list"):
            section.change("tensor_list", "level debug does not use it", "take it away")
        for name in _OF_MINDSPORE.get(task, ()):
            if section.get(name) is None:
                continue
            if self.framework == "pytorch":
                section.change(name, "it is for kernels of MindSpore: PyTorch does not read it", "take it away")
            else:
                self._one_of(section, name, _WORDS[name])
        self._numbers(section, task)
        folder = section.get("error_data_path")
        if folder is not None and task == "acc_check" and not (folder.content and isinstance(folder.content, str)):
            section.reject("error_data_path", f"{short(folder)} is no directory", "name one that is there")
        for name in ("white_list", "black_list") if task == "acc_check" else ():
            value = section.get(name)
            names = value.content if value is not None else []
            if not isinstance(names, list) or first_wrong(names, lambda each: isinstance(each.content, str)):
                section.reject(name, f"{WHO} takes a list of texts", 'names of functions, such as ["relu"]')
        return section

    def _scope(self, section: KeySection, scope: list[str] | None, listed: list[str] | None) -> None:
        if scope and len(scope) != 2:
            self._wrong(
                section, "scope", f"{len(scope)} names: {WHO} takes the first and the last of a span", "write two names"
            )
        pattern = _NAMES.get(self.level)
        odd = next((each for each in scope or () if pattern is not None and not pattern.fullmatch(each)), None)
        if odd is not None and scope is not None and len(scope) == 2:
            what = f"{odd!r} is no full name of level {self.level}"
            self._wrong(section, "scope", what, f"such as {_EXAMPLES[self.level]}")
        if scope and listed:
            section.note("list", "with a scope, too: what is in the span and in the list is recorded")
        for each in listed or ():
            if each.startswith("name-regex(") and each.endswith(")"):
                try:
                    re.compile(each[len("name-regex(") : -1])
                except (re.error, RecursionError, OverflowError) as error:
                    self._wrong(section, "list", f"{each}: it is no regular expression: {error}", "correct it")
                if self.level != "L2":
                    section.note("list", "name-regex(...) is for the kernels of MindSpore's static graphs")
                break

    def _data_mode(self, section: KeySection) -> None:
        modes = self._texts(section, "data_mode")
        if modes is None:
            return
        wrong = next((each for each in modes if each not in DATA_MODES), None)
        if wrong is not None:
            self._wrong(
                section,
                "data_mode",
                f"{wrong!r} is not known",
                near(wrong, DATA_MODES, "one of " + ", ".join(DATA_MODES)),
            )
        elif "all" in modes and len(modes) > 1:
            self._wrong(section, "data_mode", '"all" stands with others', 'write ["all"] alone')
        elif self.task == "nan_check" and "input" in modes and "output" not in modes:
            self._wrong(section, "data_mode", "nan_check looks at outputs", 'write ["output"] or ["all"]')

    def _summary(self, section: KeySection, task: str) -> None:
        value = section.get("summary_mode")
        if value is None or value.content in (None, ""):
            return
        if isinstance(value.content, list) and task == "statistics" and self.framework != "pytorch":
            wrong = first_wrong(value.content, lambda each: each.content in LISTED_SUMMARIES)
            if wrong is not None:
                hint = near(str(wrong[0].content), LISTED_SUMMARIES, f"there is {', '.join(LISTED_SUMMARIES)}")
                self._wrong(section, "summary_mode", f"{short(wrong[0])}{wrong[1]} is not known", hint)
            elif self.framework is None:
                section.note("summary_mode", "a list is for the kernels of MindSpore's static graphs")
            return
        if isinstance(value.content, list):
            self._wrong(
                section, "summary_mode", f"{short(value)} is a list: PyTorch takes a text", 'write "statistics"'
            )
            return
        mode = self._one_of(section, "summary_mode", SUMMARIES)
        if mode == "xor" and task == "statistics":
            section.note(
                "summary_mode", "xor records no statistics: tdbg can compare such dumps, and judge nothing in them"
            )

    def _slice(self, section: KeySection) -> None:
        value = section.get("slice")
        if value is None or not value.content:
            return
        if not isinstance(value.content, list) or first_wrong(
            value.content, lambda each: isinstance(each.content, dict)
        ):
            self._wrong(section, "slice", f"{WHO} takes a list of objects", 'write [{"dim": 0, "begin": 0, "end": 8}]')
            return
        for each in value.content:
            for name, member in each.content.items() if isinstance(each.content, dict) else ():
                number = member.value
                if not number.is_whole:
                    what = f"{name} is {short(number)}: whole numbers only"
                    self._wrong(section, "slice", what, "write a number", line=member.line)
                elif name in {"dim", "size"} and isinstance(number.content, int) and number.content < 0:
                    self._wrong(section, "slice", f"{name} is below 0", "count from 0", line=member.line)
                elif name not in {"dim", "begin", "end", "size"}:
                    hint = near(name, ("dim", "begin", "end"), "dim, begin, end")
                    section.say(Weight.CHANGED, "slice", f"{name} is not known and is ignored", hint, line=member.line)
        if self.framework == "mindspore":
            section.change("slice", "it is for PyTorch: whole tensors are recorded", "take it away")
        if self.level not in {"L0", "L1", "mix"} or self.task not in {"statistics", "tensor"}:
            section.change("slice", f"level {self.level} of task {self.task} records whole tensors", "take it away")

    def _numbers(self, section: KeySection, task: str) -> None:
        value = section.get("diff_nums")
        if value is not None and value.content is not None and task == "diff_check":
            number = value.content
            if not value.is_whole or not isinstance(number, int) or (number <= 0 and number != -1):
                section.reject("diff_nums", f"{short(value)} is not known", "write -1, or a whole number from 1")
        request = section.get("request_id")
        if request is not None and request.content is not None and not isinstance(request.content, str):
            self._wrong(
                section, "request_id", f"{short(request)} is {request.kind}: {WHO} takes a text", "write a text"
            )

    # -- both together -----------------------------------------------------------------------------------

    def _level(self, top: KeySection, section: KeySection | None) -> None:
        if self.task == "structure" and self.level not in {"L0", "mix"}:
            top.change("level", f"task structure has no level {self.level}: mix is used", 'write "L0" or "mix"')
        if self.task == "nan_check" and self.level != "L1":
            top.reject("level", "task nan_check takes level L1 only", 'write "L1"')
        if self.level == "L2" and self.framework != "mindspore":
            self._kernels(top, section)

    def _kernels(self, top: KeySection, section: KeySection | None) -> None:
        """Level L2 of PyTorch; reported as a note where the framework is not known."""
        names = section.plain("list") if section is not None else None
        wrong = []
        if self.task != "tensor":
            wrong.append("task must be tensor")
        if section is not None and section.plain("scope"):
            wrong.append("scope must be empty")
        if not isinstance(names, list) or len(names) != 1:
            wrong.append("list must name exactly one call")
        if wrong and self.framework == "pytorch":
            top.reject("level", f"L2 of PyTorch: {'; '.join(wrong)}", "correct it, or write L1")
        elif wrong:
            top.note("level", f"L2 of PyTorch would be refused: {'; '.join(wrong)}")

    def _async(self, top: KeySection, section: KeySection | None) -> None:
        if self._switch(top, "async_dump") is not True:
            return
        names = section.plain("list") if section is not None else None
        if self.task == "tensor" and self.level != "debug" and not names:
            hint = f'name calls in "{self.task}.list", or write "async_dump": false'
            top.reject("async_dump", "asynchronous tensors need a list: everything would not fit into memory", hint)
        mode = section.plain("summary_mode") if section is not None else None
        if mode == "md5" or (isinstance(mode, list) and "md5" in mode):
            top.reject("async_dump", "summary_mode md5 cannot be calculated asynchronously", 'write "statistics"')


def _no_span(value: Value) -> str | None:
    """Why an element is no number or span of numbers; None when it is one."""
    content = value.content
    if value.is_whole and isinstance(content, int):
        return None if 0 <= content <= _MOST else f"numbers go from 0 to {_MOST}"
    if not isinstance(content, str):
        return f"it is {value.kind}"
    match = _SPAN.fullmatch(content)
    if match is None:
        return "it is neither a number nor a span"
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        return f"{first} comes after {last}"
    return f"numbers go from 0 to {_MOST}" if last > _MOST else None


def environment(level: str, framework: str | None, file: str) -> Iterator[Variable]:
    """Yields the lines that the program needs: msprobe reads no environment variable to find its file."""
    package = framework or "pytorch"
    yield Variable("from", f"msprobe.{package} import PrecisionDebugger", "before the model is made")
    yield Variable("debugger =", f'PrecisionDebugger(config_path="{file}")', "once; no environment variable is read")
    start = "debugger.start(model=model)" if level in {"L0", "mix"} else "debugger.start()"
    yield Variable("", start, "before the forward pass of a step")
    yield Variable("", "debugger.stop(); debugger.step()", "after the backward pass: the next step begins")


# -- a new file ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MsprobeChoices:
    """The values for a new file, by the names of the keys."""

    task: str = "statistics"
    level: str = "L1"
    dump_path: str = "./dump"
    rank: Sequence[int | str] = ()
    step: Sequence[int | str] = ()
    scope: Sequence[str] = ()
    list: Sequence[str] = ()
    data_mode: Sequence[str] = ("all",)
    summary_mode: str = "statistics"


def new(choices: MsprobeChoices) -> dict[str, Any]:
    made: dict[str, Any] = {
        "task": choices.task,
        "dump_path": choices.dump_path,
        "rank": [*choices.rank],
        "step": [*choices.step],
        "level": choices.level,
    }
    if choices.task != "structure":
        made[choices.task] = {
            "scope": [*choices.scope],
            "list": [*choices.list],
            "data_mode": [*choices.data_mode],
            **({"summary_mode": choices.summary_mode} if choices.task in {"statistics", "tensor"} else {}),
        }
    return made
