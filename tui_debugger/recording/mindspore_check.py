"""Checks a ``data_dump.json``: rejected values, silently changed values, and environment variables for the file."""

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
from tui_debugger.recording.mindspore import (
    ASYNC,
    ASYNC_KEYS,
    CATEGORIES,
    COMMON,
    COMMON_KEYS,
    E2E,
    E2E_KEYS,
    HASHES,
    HASHES_SINCE,
    ITEM,
    NAMES,
    ON_DEVICE,
    TOP_KEYS,
    Target,
    number_text,
)

_REQUIRED: Final = ("dump_mode", "net_name", "iteration", "input_output", "kernels", "support_device")

_ITERATION: Final = re.compile(r"[0-9|-]+")
_PATH: Final = re.compile(r"[A-Za-z0-9_/-]*")
_NET: Final = re.compile(r"[A-Za-z0-9_-]+")
_OVERFLOWS: Final = (1, 2, 3)
_LOOKS_FOR_TROUBLE: Final = (*_OVERFLOWS, 4)
_LAST_STEP: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class _Mistake:
    weight: Weight
    what: str
    hint: str


def check(parsed: Parsed, target: Target, file: str = "") -> ConfigurationReport:
    """Checks a file; ``file`` is its absolute path, for the environment."""
    return _MindSporeChecker(target).run(parsed, file)


class _MindSporeChecker(ConfigurationChecker):
    def __init__(self, target: Target) -> None:
        super().__init__(target.text, f"MindSpore {number_text(target.checked)}")
        self.version = target.checked
        self.device = target.device
        self.jit_level = target.jit_level
        self.synchronous = False
        self.has_e2e = False

    def run(self, parsed: Parsed, file: str) -> ConfigurationReport:
        taken = {
            Slip.BOM: (Weight.NOTE, "MindSpore skips it"),
            Slip.REST: (Weight.CHANGED, "MindSpore does not read it"),
            Slip.DUPLICATE: (Weight.CHANGED, ""),
        }
        self.spelling(parsed, taken, "MindSpore")
        top = self.top(parsed, f'it begins with {{ "{COMMON}"')
        if top is None:
            return self.finish()
        common, e2e = self._section(top, COMMON), self._section(top, E2E)
        if self.device is None and e2e is None and common is not None and "file_format" in common.members:
            self.device = "ascend"
            common.note("file_format", "it is for an asynchronous dump on Ascend: the file is checked for that")
        self.has_e2e = e2e is not None
        self.synchronous = self.device in {"cpu", "gpu"} or (e2e is not None and e2e.plain("enable") is True)
        top.explain(TOP_KEYS)
        top.unknown(TOP_KEYS, {COMMON: COMMON_KEYS, E2E: E2E_KEYS})
        if common is None:
            cut = any(problem.slip is Slip.END for problem in parsed.problems)  # keys after the end were not read
            if COMMON not in top.members and not cut:
                top.reject(COMMON, "it is missing", f'everything else stands in "{COMMON}": {{...}}')
        else:
            self._common(common, e2e)
        if e2e is not None:
            self._e2e(e2e, common)
        self._async(top, e2e)
        self._mode(top, common, e2e)
        self.report.environment += environment(parsed.root, Target(self.version, self.device, self.jit_level), file)
        return self.finish()

    def _section(self, top: KeySection, name: str) -> KeySection | None:
        value = top.get(name)
        if value is None:
            return None
        if not isinstance(value.content, dict):
            if name == COMMON:
                top.reject(name, f"it is {value.kind}", "it must be an object: {...}")
            else:
                top.change(name, f"it is {value.kind}: it is taken for an empty object", "it must be an object: {...}")
            return None
        return KeySection(self, name, value)

    # -- what a value may be ----------------------------------------------------------------------------

    def _say_on(
        self,
        section: KeySection,
        name: str,
        devices: Sequence[str],
        what: str,
        hint: str,
        *,
        weight: Weight = Weight.REJECTED,
    ) -> None:
        """Adds a message about some devices; where the device is not known it is a note that names them."""
        if self.device is None:
            names = " and ".join(NAMES[each] for each in devices)
            section.note(name, f"on {names}: {what}", hint)
        elif self.device in devices:
            section.say(weight, name, what, hint)

    def _since(self, section: KeySection, keys: Mapping[str, Key]) -> set[str]:
        """Reports keys that this version does not know yet, or no more; returns all of these."""
        found = set()
        for name in section.members:
            key = keys.get(name)
            if key is None:
                continue
            if key.since is not None and self.version < key.since:
                section.change(
                    name,
                    f"{self.who} silently ignores it: it came with {number_text(key.since)}",
                    "take it away, or use a newer MindSpore",
                )
                found.add(name)
            elif key.until is not None and self.version > key.until:
                found.add(name)
        return found

    def _whole(
        self, section: KeySection, name: str, allowed: Sequence[int] | None = None, least: int = 0
    ) -> int | None:
        """The integer of a key; None where it is missing, or wrong, which is reported."""
        value = section.get(name)
        if value is None:
            return None
        expected = " or ".join(map(str, allowed)) if allowed else f"a whole number from {least}"
        number = value.content
        if not value.is_whole or not isinstance(number, int) or number < 0:
            what = f"{short(value)} is {value.kind}" + (" below 0" if value.is_whole else "")
            section.reject(
                name, f"{what}: {self.who} takes whole numbers only", f"write {expected}, without quotation marks"
            )
            return None
        if (allowed and number not in allowed) or number < least:
            section.reject(name, f"{number} is not known", f"write {expected}")
            return None
        return number

    def _text(self, section: KeySection, name: str, allowed: Sequence[str] | None = None) -> str | None:
        """``_whole`` for a text."""
        expected = " or ".join(f'"{each}"' for each in allowed) if allowed else "a text in quotation marks"
        text = section.of_type(name, str, "a text", f"write {expected}")
        value = section.get(name)
        if text is not None and value is not None and allowed and text not in allowed:
            section.reject(name, f"{short(value)} is not known", near(text, allowed, "") or f"write {expected}")
            return None
        return text

    def _switch(self, section: KeySection, name: str) -> bool | None:
        return section.of_type(name, bool, "true or false", "write true or false, without quotation marks")

    def _list(self, section: KeySection, name: str) -> list[Value] | None:
        return section.of_type(name, list, "a list", "write it in brackets: [...]")

    # -- common_dump_settings ------------------------------------------------------------------------

    def _common(self, common: KeySection, e2e: KeySection | None) -> None:
        unread = self._since(common, COMMON_KEYS)
        if self.version <= (1, 2):
            unread.add("op_debug_mode")
        common.explain({name: key for name, key in COMMON_KEYS.items() if name not in unread})
        common.unknown(COMMON_KEYS, {"": TOP_KEYS, E2E: E2E_KEYS})
        for name in _REQUIRED:
            if common.get(name) is None:
                common.reject(name, f"it is missing: {self.who} stops without it", f'write "{name}": {_DEFAULTS[name]}')
        debug = self._debug_mode(common, unread)
        mode = self._dump_mode(common, debug)
        self._path(common)
        self._net_name(common)
        self._iteration(common, debug)
        sides = self._whole(common, "input_output", (0, 1, 2))
        if debug == 3 and sides in {1, 2} and self.version >= (2, 3):
            common.change(
                "input_output", "with op_debug_mode 3 inputs and outputs are recorded, whatever it says", "write 0"
            )
        if debug == 4 and sides in {0, 2}:
            common.note("input_output", "with op_debug_mode 4 inputs alone are recorded")
        if sides == 1 and self.version < (2, 3):
            what = "a GPU records outputs only"
            self._say_on(common, "input_output", ("gpu",), what, "write 2, and expect no inputs", weight=Weight.CHANGED)
        self._kernels(common, mode)
        self._support_device(common)
        saved = self._saved_data(common, debug, unread)
        self._file_format(common, saved, unread)
        self._categories(common, e2e, saved, unread)
        self._overflow_number(common, debug, unread)
        if "initial_iteration" not in unread:
            self._whole(common, "initial_iteration")

    def _asynchronous(self) -> bool:
        """Whether it may be an asynchronous dump on Ascend."""
        return self.device in {None, "ascend"} and not self.synchronous

    def _through_ge(self) -> bool:
        """Whether the parser expects an asynchronous dump with a ``file_format``."""
        if not self._asynchronous():
            return False
        return not self.has_e2e or self.version < (2, 4)

    def _debug_mode(self, common: KeySection, unread: set[str]) -> int | None:
        if common.get("op_debug_mode") is None:
            if self._through_ge() and self.version >= (1, 3):
                what = f"it is missing: {self.who} stops without it, where the dump is asynchronous"
                self._say_on(common, "op_debug_mode", ("ascend",), what, 'write "op_debug_mode": 0')
            return None
        if "op_debug_mode" in unread:
            common.change("op_debug_mode", f"{self.who} reads it in {ASYNC} only", f"move it into {ASYNC}")
            return None
        if self.version < (2, 3) and self.synchronous:
            if common.plain("op_debug_mode") != 0:
                what = "a synchronous dump does not look for overflows: everything is recorded"
                common.change("op_debug_mode", what, f'write 0, or "enable": false in {E2E}')
            return 0
        if self.version < (2, 3):
            if common.plain("op_debug_mode") == 4:
                common.reject("op_debug_mode", f"{self.who} does not know 4: it came with 2.3", "write 0, 1, 2 or 3")
                return None
            mode = self._whole(common, "op_debug_mode", (0, 1, 2, 3))
        else:
            mode = self._whole(common, "op_debug_mode", (0, 1, 2, 3, 4))
            if mode in {1, 2}:
                common.change("op_debug_mode", f"{self.who} takes {mode} for 3: every kind of overflow", "write 3")
                mode = 3
        if mode:
            what = f"op_debug_mode {mode} records nothing"
            devices = ("cpu", "gpu")
            self._say_on(
                common,
                "op_debug_mode",
                devices,
                what,
                "write 0: these devices do not look for it",
                weight=Weight.CHANGED,
            )
        return mode

    def _dump_mode(self, common: KeySection, debug: int | None) -> int | None:
        allowed = (0, 1) if self.version < (1, 6) else (0, 1, 2)
        if self.version < (1, 6) and common.plain("dump_mode") == 2:
            common.reject("dump_mode", f"{self.who} does not know 2: it came about 1.6", "write 0 or 1")
            return None
        mode = self._whole(common, "dump_mode", allowed)
        if debug and mode:
            what = f"op_debug_mode {debug} looks at every operator: {self.who} sets dump_mode to 0"
            common.change("dump_mode", what, "write 0; or op_debug_mode 0 to record chosen operators")
            return 0
        if mode == 2:
            what = "dump_mode 2 is for Ascend"
            self._say_on(common, "dump_mode", ("cpu", "gpu"), what, "write 0 or 1")
            if self.version < (2, 3) and self.synchronous and self.device not in {"cpu", "gpu"}:
                what = f"up to 2.2 dump_mode 2 is for the asynchronous dump, and {E2E}.enable is true"
                common.reject("dump_mode", what, f'write 0 or 1, or "enable": false in {E2E}')
            if self.jit_level == "O2" and self.version >= (2, 3):
                common.change("dump_mode", "set_dump() is not supported at O2: nothing is marked", "write 0 or 1")
            common.note("dump_mode", "nothing is recorded unless the program calls mindspore.set_dump(cell)")
        return mode

    def _path(self, common: KeySection) -> None:
        path = self._text(common, "path")
        if not path:
            if self.version < (1, 6) and (path == "" or common.get("path") is None):
                common.reject("path", f"{self.who} stops without a path", 'write "path": "/absolute/path"')
            elif common.get("path") is None or path == "":
                hint = "export MS_DIAGNOSTIC_DATA_PATH=/absolute/path, or write the path"
                common.note("path", "no path: the dump goes to $MS_DIAGNOSTIC_DATA_PATH/debug_dump", hint)
            return
        if not _PATH.fullmatch(path):
            odd = sorted(set(re.sub(r"[A-Za-z0-9_/-]", "", path)))
            shown = " ".join("a blank" if each == " " else each for each in odd[:5])
            what = f"the path has {shown}: {self.who} takes letters, digits, -, _ and / only"
            common.reject("path", what, "choose another directory; a link to it may have the name that you want")
        if path.startswith(("~", "$")):
            common.reject("path", f"{path[0]} means nothing here: no shell reads it", "write the path in full")
        elif not path.startswith("/"):
            common.reject("path", f"{path} is a relative path: it must begin with /", "write it in full")

    def _net_name(self, common: KeySection) -> None:
        name = self._text(common, "net_name")
        if name == "":
            common.reject("net_name", "it is empty", 'write a name such as "Net"')
        elif name is not None and not _NET.fullmatch(name):
            what = f"{name} has a character other than letters, digits, - and _"
            common.reject("net_name", what, f'write "{re.sub("[^A-Za-z0-9_-]+", "_", name).strip("_") or "Net"}"')

    def _iteration(self, common: KeySection, debug: int | None) -> None:
        value = common.get("iteration")
        if value is None:
            return
        if self.version <= (1, 2):
            number = self._whole(common, "iteration")
            if number == 0:
                common.note("iteration", "up to 1.2 0 means every step")
            return
        if value.is_whole:
            hint = f'write "{value.content}"'
            common.reject("iteration", f"it is a number: {self.who} takes a text, as every version from 1.3 on", hint)
            return
        text = self._text(common, "iteration")
        if text is None:
            return
        self._iteration_text(common, text)
        if text != "all" and debug == 4:
            common.change("iteration", "op_debug_mode 4 records every step, whatever it says", 'write "all"')
        if text != "all" and debug == 3 and self.jit_level == "O2":
            common.change("iteration", "at O2 overflows of chosen steps are not supported", 'write "all"')
        elif text != "all" and debug in _OVERFLOWS and self.device not in {"cpu", "gpu"}:
            what = "in PyNative mode overflows of chosen steps are not found"
            common.note("iteration", what, 'write "all" for a program in PyNative mode')

    def _iteration_text(self, common: KeySection, text: str) -> None:
        if text == "all":
            return
        if text.strip().lower() == "all":
            common.reject("iteration", f"{text!r} is not all", 'write "all"')
        elif text == "":
            common.reject("iteration", "it is empty", 'write "all", or steps such as "0|5-8"')
        elif re.search(r"\s", text):
            hint = f'write "{re.sub(chr(92) + "s+", "", text)}"'
            common.reject("iteration", f"{text!r} has blanks: {self.who} takes digits, - and | only", hint)
        elif "," in text or ";" in text:
            hint = 'write "' + re.sub("[,;]", "|", text) + '"'
            common.reject("iteration", f"{text!r} has a comma: | stands between steps", hint)
        elif not _ITERATION.fullmatch(text):
            what = f"{text!r} has characters other than digits, - and |"
            common.reject("iteration", what, 'write "all", or steps such as "0|5-8|100-120"')
        else:
            for item in text.split("|"):
                if (why := _no_step(item)) is not None:
                    what = f"{item!r} in {text!r} chooses no step: {why}; nothing says so while it trains"
                    common.change("iteration", what, "a span is FIRST-LAST, both from 0, the first not after the last")
                    break

    def _kernels(self, common: KeySection, mode: int | None) -> None:
        kernels = self._list(common, "kernels")
        if kernels is None:
            return
        if mode != 1:
            if any(each.content != "" for each in kernels) and mode is not None:
                common.note("kernels", f"it is not used: dump_mode is {mode}", "dump_mode 1 records these alone")
            return
        if not [each for each in kernels if each.content != ""]:
            if self.version < (2, 3):
                common.change("kernels", "no operator is named: nothing is recorded", "name some, or write dump_mode 0")
            else:
                what = "no operator is named: all of them are recorded, as with dump_mode 0"
                common.note("kernels", what, "name some, or write dump_mode 0")
            return
        wrong = first_wrong(kernels, lambda each: isinstance(each.content, str))
        if wrong is not None:
            what = f"{short(wrong[0])} is {wrong[0].kind}{wrong[1]}: it names no operator"
            common.say(Weight.CHANGED, "kernels", what, "write names in quotation marks", line=wrong[0].line)
        common.note_repeated("kernels", kernels)
        expected: set[_Mistake] = set()  # the same mistake in a thousand names is said once
        for each in kernels:
            found = self._kernel(each.content) if isinstance(each.content, str) else None
            if found is not None and found not in expected:
                expected.add(found)
                common.say(found.weight, "kernels", f"{short(each)}: {found.what}", found.hint, line=each.line)

    def _kernel(self, name: str) -> _Mistake | None:
        if name.startswith("name-regex(") and name.endswith(")"):
            return self._regex(name[len("name-regex(") : -1])
        if "name-regex" in name or re.search(r"[*?^$\\]", name):
            what = "it is taken for a name or a type, not for a pattern"
            return _Mistake(Weight.CHANGED, what, "write name-regex(Default/.+); the whole name must match")
        if "/" in name:
            return None
        full = "write the full name: Default/.../Conv2D-op12"
        if "-op" in name:
            what = "no operator is called so: a name has its scope before it, and with -op it is no type"
            return _Mistake(Weight.CHANGED, what, full)
        return self._type(full)

    def _type(self, full: str) -> _Mistake | None:
        if self.version < (1, 6):
            return _Mistake(Weight.CHANGED, f"{self.who} takes full names only: types came later", full)
        if self.jit_level == "O2" and self.version >= (2, 3):
            hint = "write the full name of the compiled graph, or name-regex(...)"
            return _Mistake(Weight.CHANGED, "at O2 types are not matched", hint)
        return None

    def _regex(self, expression: str) -> _Mistake | None:
        if self.version < (2, 3):
            what = f"{self.who} takes it for a name: regular expressions came with 2.3"
            return _Mistake(Weight.CHANGED, what, "write full names or types")
        if not expression:
            return _Mistake(Weight.CHANGED, "the expression is empty: it matches nothing", "name-regex(Default/.+)")
        try:
            re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            return _Mistake(
                Weight.REJECTED,
                f"it is no regular expression: {error}",
                "correct it, such as name-regex(.+Conv2D-op[0-9]+)",
            )
        return None

    def _support_device(self, common: KeySection) -> None:
        devices = self._list(common, "support_device")
        if devices is None:
            return
        if not devices:
            what = "no device records anything; only a warning in the log says so"
            weight = Weight.NOTE if self.device == "cpu" else Weight.CHANGED
            common.say(weight, "support_device", what, "write [0,1,2,3,4,5,6,7], or the devices that you want")
        numbers = first_wrong(devices, lambda each: isinstance(each.content, int | float))
        if numbers is not None:
            what = f"{short(numbers[0])} is {numbers[0].kind}{numbers[1]}: devices are numbers"
            hint = "write numbers without quotation marks: [0,1]"
            common.say(Weight.REJECTED, "support_device", what, hint, line=numbers[0].line)
            return
        wrong = first_wrong(devices, lambda each: each.is_whole and isinstance(each.content, int) and each.content >= 0)
        if wrong is not None:
            what = f"no device has the number {short(wrong[0])}{wrong[1]}"
            common.say(Weight.CHANGED, "support_device", what, "write whole numbers from 0", line=wrong[0].line)
        common.note_repeated("support_device", devices)

    def _saved_data(self, common: KeySection, debug: int | None, unread: set[str]) -> str:
        if "saved_data" in unread:
            return "tensor"
        saved = self._text(common, "saved_data", ("tensor", "statistic", "full")) or "tensor"
        if saved == "tensor":
            return saved
        if debug == 4:
            what = "op_debug_mode 4 records tensors, whatever it says"
            common.change("saved_data", what, 'write "tensor", or op_debug_mode 0')
            return "tensor"
        what = f"a CPU calculates no statistics: {saved} is refused"
        self._say_on(common, "saved_data", ("cpu",), what, 'write "tensor"')
        if debug:
            what = f"overflows (op_debug_mode {debug}) are recorded as tensors, not as statistics"
            common.change("saved_data", what, 'write "tensor", or op_debug_mode 0')
        if self.version < (2, 3) and self.synchronous and self.device != "gpu":
            what = f"up to 2.2 a synchronous dump on Ascend has no statistics: {saved} is refused"
            hint = f'write "tensor"; or take {E2E} away and write "file_format": "npy"'
            self._say_on(common, "saved_data", ("ascend",), what, hint)
        if self._through_ge() and common.plain("file_format", "bin") != "npy":
            shown = "bin" if common.get("file_format") is not None else "missing, which is bin"
            what = f"{saved} needs file_format npy where the dump is asynchronous, and file_format is {shown}"
            self._say_on(common, "saved_data", ("ascend",), what, 'write "file_format": "npy"')
        return saved

    def _file_format(self, common: KeySection, saved: str, unread: set[str]) -> None:
        if "file_format" in unread:
            return
        value = common.get("file_format")
        if value is None:
            if self._through_ge() and self.device == "ascend" and self.version >= (1, 6) and saved == "tensor":
                what = "without it files are written as they lie on the device (bin)"
                common.note("file_format", what, '"file_format": "npy" writes .npy')
            return
        if self._through_ge():
            self._text(common, "file_format", ("bin", "npy"))
            return
        if value.content == "npy":
            common.note("file_format", "it is not read here: this dump is .npy always")
        elif value.content == "bin":
            common.change(
                "file_format", "it is not read here: this dump is .npy always", 'take it away, or write "npy"'
            )
        else:
            common.change("file_format", f"{short(value)} is not known, and not read here", 'write "npy"')

    def _categories(self, common: KeySection, e2e: KeySection | None, saved: str, unread: set[str]) -> None:
        if "statistic_category" in unread:
            return
        value = common.get("statistic_category")
        if value is not None and saved == "tensor" and not isinstance(value.content, list):
            common.note("statistic_category", f"it is {value.kind}; it is not used: saved_data is tensor")
            return
        listed = self._list(common, "statistic_category")
        if listed is None:
            return
        known = (*CATEGORIES, *HASHES) if self.version >= HASHES_SINCE else CATEGORIES
        wrong = first_wrong(listed, lambda each: each.content in known)
        weight = Weight.NOTE if saved == "tensor" else Weight.REJECTED
        if wrong is not None:
            text = wrong[0].content
            hint = near(text, known, f"there is {', '.join(known)}") if isinstance(text, str) else "write names"
            what = f"{short(wrong[0])}{wrong[1]} is no statistic of {self.who}"
            common.say(weight, "statistic_category", what, hint, line=wrong[0].line)
        if saved == "tensor":
            common.note("statistic_category", "it is not used: saved_data is tensor")
        elif not listed:
            common.change(
                "statistic_category", "no statistic is named: rows have none", f"name some of {', '.join(known)}"
            )
        on_device = e2e is not None and e2e.plain("stat_calc_mode") == "device" and saved == "statistic"
        hosts = [each for each in listed if each.content in known and each.content not in ON_DEVICE]
        if on_device and hosts and self.device not in {"cpu", "gpu"}:
            what = f"a device calculates {', '.join(ON_DEVICE)} only: {short(hosts[0])} is left out"
            hint = 'take it away, or write "stat_calc_mode": "host"'
            common.say(Weight.CHANGED, "statistic_category", what, hint, line=hosts[0].line)

    def _overflow_number(self, common: KeySection, debug: int | None, unread: set[str]) -> None:
        if "overflow_number" in unread or common.get("overflow_number") is None:
            return
        if debug != 3:
            hint = "take it away, or write op_debug_mode 3"
            common.reject("overflow_number", f"{self.who} takes it with op_debug_mode 3 only", hint)
            return
        self._whole(common, "overflow_number")

    # -- e2e_dump_settings, async_dump_settings, and both together ---------------------------------------

    def _e2e(self, e2e: KeySection, common: KeySection | None) -> None:
        unread = self._since(e2e, E2E_KEYS)
        e2e.explain({name: key for name, key in E2E_KEYS.items() if name not in unread})
        e2e.unknown(E2E_KEYS, {"": TOP_KEYS, COMMON: COMMON_KEYS})
        enabled = self._switch(e2e, "enable")
        if e2e.get("enable") is None:
            if self.version < (2, 4):
                e2e.reject("enable", f"it is missing: {self.who} stops without it", 'write "enable": true')
            elif self.device in {None, "ascend"}:
                e2e.note("enable", "it is missing, which is false on Ascend: an asynchronous dump")
        elif enabled is False and self.device in {"cpu", "gpu"}:
            e2e.note("enable", f"a {NAMES[self.device]} records synchronously all the same")
        if e2e.get("trans_flag") is None and self.version < (2, 0):
            e2e.reject("trans_flag", f"it is missing: {self.who} stops without it", 'write "trans_flag": true')
        if self._switch(e2e, "trans_flag") is False and self.device != "cpu":
            e2e.note("trans_flag", "tensors keep the layout of the device, such as NC1HWC0", "true converts them")
        debug = common.plain("op_debug_mode", 0) if common is not None else 0
        saved = common.plain("saved_data", "tensor") if common is not None else "tensor"
        if "save_kernel_args" not in unread and self._switch(e2e, "save_kernel_args") and enabled is not True:
            e2e.change("save_kernel_args", "it needs enable true: nothing is recorded of them", 'write "enable": true')
        if "sample_mode" not in unread:
            self._sampling(e2e, debug)
        if "stat_calc_mode" not in unread:
            self._calculation(e2e, saved, debug, enabled)
        if "device_stat_precision_mode" not in unread:
            precision = self._text(e2e, "device_stat_precision_mode", ("high", "low"))
            if precision is not None and e2e.plain("stat_calc_mode") != "device":
                e2e.note("device_stat_precision_mode", "it is not used: the host calculates the statistics")

    def _sampling(self, e2e: KeySection, debug: Any) -> None:
        mode = self._whole(e2e, "sample_mode", (0, 1))
        if e2e.get("sample_num") is not None:
            if mode == 1:
                self._whole(e2e, "sample_num", least=1)
            else:
                hint = 'write "sample_mode": 1, or take it away'
                e2e.note("sample_num", "it is not used: sample_mode is not 1", hint)
        if mode == 1:
            if debug in _LOOKS_FOR_TROUBLE:
                what = f"with op_debug_mode {debug} whole tensors are recorded"
                e2e.change("sample_mode", what, "write 0, or op_debug_mode 0")
            what = "parts of tensors are recorded on Ascend only"
            self._say_on(e2e, "sample_mode", ("cpu", "gpu"), what, "write 0", weight=Weight.CHANGED)

    def _calculation(self, e2e: KeySection, saved: Any, debug: Any, enabled: bool | None) -> None:
        mode = self._text(e2e, "stat_calc_mode", ("host", "device"))
        if mode != "device":
            return
        if saved != "statistic":
            what = f"the host calculates them all the same: saved_data is {saved}"
            e2e.change("stat_calc_mode", what, 'write "host", or "saved_data": "statistic"')
        elif debug in _OVERFLOWS and enabled is not True:
            e2e.change("stat_calc_mode", f"with op_debug_mode {debug} the host calculates them", 'write "host"')
        what = "only Ascend calculates statistics on the device: the host does it"
        self._say_on(e2e, "stat_calc_mode", ("cpu", "gpu"), what, 'write "host"', weight=Weight.CHANGED)

    def _async(self, top: KeySection, e2e: KeySection | None) -> None:
        section = self._section(top, ASYNC)
        if ASYNC not in top.members:
            if self.version <= (1, 2) and (e2e is None or e2e.plain("enable") is not True):
                what = f"neither {E2E} nor {ASYNC} is enabled: nothing is recorded"
                top.change(ASYNC, what, f'write "{ASYNC}": {{"enable": true, "op_debug_mode": 0}}')
            return
        if self.version >= (2, 0):
            hint = f'take it away; without "{E2E}" an Ascend dump is asynchronous'
            top.change(ASYNC, f"{self.who} silently ignores it: it ended with 1.10", hint)
            return
        if section is None:
            return
        section.explain(ASYNC_KEYS)
        section.unknown(ASYNC_KEYS, {COMMON: COMMON_KEYS, E2E: E2E_KEYS})
        enabled = self._switch(section, "enable")
        if self.version <= (1, 2):
            for name in ("enable", "op_debug_mode"):
                if section.get(name) is None:
                    section.reject(name, f"it is missing: {self.who} stops without it", f'write "{name}"')
            self._whole(section, "op_debug_mode", (0, 1, 2, 3))
            both = e2e is not None and e2e.plain("enable") is True
            if enabled and both:
                section.note("enable", f"{E2E} is enabled, too: only the synchronous dump is written")
            if enabled is False and not both:
                section.change("enable", "nothing is enabled: nothing is recorded", "write true")
            return
        if section.get("op_debug_mode") is not None:
            section.change("op_debug_mode", f"{self.who} reads it in {COMMON}", f"move it into {COMMON}")
        if enabled is False:
            what = f"{self.who} does not read it: without {E2E} an Ascend dump is asynchronous"
            section.change("enable", what, "take it away; unset MINDSPORE_DUMP_CONFIG to record nothing")
        elif enabled:
            section.note("enable", "it is not needed: an Ascend dump is asynchronous by default")

    def _mode(self, top: KeySection, common: KeySection | None, e2e: KeySection | None) -> None:
        """Reports what the presence of e2e_dump_settings means for the compilation of graphs."""
        if self.device not in {None, "ascend"} or common is None:
            return
        level = self.jit_level
        if level == "O2" and self.version >= (2, 6):
            what = "graphs that are compiled at O2 (backend GE) are not recorded by this file any more, but by msprobe"
            top.change(COMMON, what, "tdbg dump-config --msprobe writes a configuration for it; or compile at O0")
        elif (
            level == "O2"
            and self.version >= (2, 3)
            and e2e is not None
            and (self.version >= (2, 4) or self.synchronous)
        ):
            top.change(E2E, "at O2 nothing is recorded through it", "take it away; write file_format and op_debug_mode")
        elif level in {"O0", "O1"} and self.version >= (2, 4) and e2e is None:
            what = f"without it {self.who} records nothing of graphs that are compiled at {level}"
            top.change(E2E, what, f'write "{E2E}": {{"enable": true, "trans_flag": true}}')
        elif level is None and self.version >= (2, 4) and e2e is None:
            what = "without it only graphs that are compiled at O2 are recorded on Ascend"
            top.note(E2E, what, f'at O0 and O1 write "{E2E}": {{"enable": true, "trans_flag": true}}')
        elif level is None and self.version >= (2, 4) and e2e is not None:
            top.note(E2E, "with it graphs that are compiled at O0 or O1 are recorded on Ascend, none at O2")


def _no_step(item: str) -> str | None:
    """Why an item of an iteration chooses no step; None when it does."""
    match = ITEM.fullmatch(item)
    if not item:
        return "it is empty"
    if match is None:
        return "it is neither a number nor a span"
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        return f"{first} comes after {last}"
    return f"steps end at {_LAST_STEP}" if first > _LAST_STEP else None


def environment(root: Value | None, target: Target, file: str = "") -> Iterator[Variable]:
    """Yields the variables to export before the training, for a file with this content at the path ``file``."""
    version = target.checked
    top = root.content if root is not None and isinstance(root.content, dict) else {}
    member = top.get(COMMON)
    common = member.value.plain if member is not None else {}
    common = common if isinstance(common, dict) else {}
    yield Variable("MINDSPORE_DUMP_CONFIG", file, "the absolute path of this file; unset: nothing is recorded")
    if not common.get("path"):
        yield Variable("MS_DIAGNOSTIC_DATA_PATH", "", "an absolute path: the dump goes to debug_dump below it")
    if target.device in {None, "ascend"} and (2, 1) <= version <= (2, 2) and E2E not in top:
        yield Variable("ENABLE_MS_GE_DUMP", "1", "on Ascend, where graphs run in GE (2.1 and 2.2)")
    if target.device in {None, "ascend"} and version >= (2, 3) and E2E not in top:
        why = "on Ascend: seconds that cards wait for each other; a dump at O2 slows them down"
        yield Variable("HCCL_EXEC_TIMEOUT", "", why)
    if common.get("dump_mode") == 1 and version >= (2, 6):
        yield Variable("MS_DEV_SAVE_GRAPHS", "2", "saves graphs, to find the names for kernels; the same in every run")
    yield Variable("MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT", "0", "only to record outputs that no operator reads, too")


_DEFAULTS: Final = {
    "dump_mode": "0",
    "net_name": '"Net"',
    "iteration": '"0"',
    "input_output": "0",
    "kernels": "[]",
    "support_device": "[0,1,2,3,4,5,6,7]",
}
