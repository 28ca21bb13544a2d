"""Reads the statistics that Transformer Engine logs through nvdlfw-inspect: a line a statistic, layer and iteration.

Numbers have four decimals: 0.0000 is anything within ±5e-5, so it is unknown, and never taken for zero. There are no
shapes and no data flow; the log of messages tells the order in which layers ran.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import UnreadableTensorError, reason_of
from tui_debugger.graph.table import PARAMETER
from tui_debugger.model import Side
from tui_debugger.opener import read_lines, why_not
from tui_debugger.sources.logs.entries import LoggedStep, LogNumbers, LogOperation, LogTensor, scope
from tui_debugger.sources.text_lines import text_lines
from tui_debugger.text.numbers import plural

NOTICES: Final = (
    "numbers have four decimals: each is exact to ±5e-5 only; 0.0000 is not known, never zero",
    "no shapes and no counts: one element stands for all of a tensor",
)
_LINE: Final = re.compile(
    r".{0,80}? - INFO - (\S.*)_(activation|gradient|weight|output|wgrad|dgrad)_(\S+)\s+"
    r"iteration=(\d{1,12})\s+value=(nan|[+-]?inf|[+-]?\d{1,40}\.\d{4})"
)
_RAN: Final = re.compile(r"LAYER=(\S+): (?:fprop|dgrad|wgrad)")
_NUMBERS: Final = {
    "min": "minimum",
    "max": "maximum",
    "mean": "mean",
    "std": "std",
    "l1_norm": "l1",
    "l2_norm": "l2",
    "cur_amax": "peak",
}
_FORWARD: Final = ("activation", "output")
_BACKWARD: Final = ("gradient", "dgrad", "wgrad")
_WHOLE: Final = "high_precision"
_MOST_MESSAGES: Final = 200_000
_NOT_FILE: Final = re.compile(r'[./\\:*?"<>| ]')


def read(paths: list[str], messages: str = "", tensors: dict[int, str] | None = None) -> dict[int, LoggedStep]:
    """Returns the steps of one rank; raises OSError when a log cannot be read.

    ``paths``: logs with statistics, the oldest first; of two lines for one number the last one counts. ``messages``:
    log of messages of this or another rank, or empty. ``tensors``: directories with dumped tensors by step.
    """
    lines: dict[int, dict[tuple[str, str], dict[str, str]]] = {}
    layers: dict[str, None] = {}
    foreign = 0
    for path in paths:
        for raw in read_lines(path):
            match = _LINE.fullmatch(raw.decode("utf-8", "replace").rstrip())
            if match is None:
                foreign += bool(raw.strip())
                continue
            layer, tensor, statistic, iteration, value = match.groups()
            layers[layer] = None
            lines.setdefault(int(iteration), {}).setdefault((layer, tensor), {})[statistic] = value
    problems = [f"{plural(foreign, 'line')} without a statistic: the step is not known"] if foreign else []
    ran, damage = _ran(messages) if messages else ([], "")
    if damage:
        name = os.path.relpath(messages, os.path.commonpath([messages, *paths]))
        problems.append(f"{name}: {damage}: the order of layers is not known")
    order = [*(layer for layer in ran if layer in layers), *(layer for layer in layers if layer not in ran)]
    steps = {}
    for number in sorted({*lines, *(tensors or ())}):
        steps[number] = _step(lines.get(number, {}), order, (tensors or {}).get(number, ""))
        steps[number].problems += problems
    return steps


def _ran(messages: str) -> tuple[list[str], str]:
    """Layers in the order in which they ran, by the messages, and problems of the messages."""
    ran: dict[str, None] = {}
    lines = broken = 0
    try:
        for text, whole in islice(text_lines(messages, cut=True), _MOST_MESSAGES):
            lines, broken = lines + 1, broken + (not whole)
            match = _RAN.search(text)
            if match is not None and whole:
                ran[match[1]] = None
    except OSError as error:
        return [], why_not(messages, error, wanted="a file")
    return list(ran), plural(broken, "broken line") if broken else "" if lines else "empty"


def _step(numbers: dict[tuple[str, str], dict[str, str]], order: list[str], directory: str) -> LoggedStep:
    step = LoggedStep()
    files = _files(directory, step) if directory else {}
    places = [(layer, tensor) for layer in order for tensor in _FORWARD]
    places += [(layer, tensor) for layer in reversed(order) for tensor in _BACKWARD]
    places += [(layer, "weight") for layer in order]
    for layer, tensor in places:
        file = files.pop(f"{_NOT_FILE.sub('_', layer)}_{tensor}.pt", "")
        found = numbers.get((layer, tensor))
        if found is not None or file:
            step.operations.append(_operation(layer, tensor, found or {}, file))
    for (
        name,
        file,
    ) in files.items():  # a layer without statistics: its name cannot be told from the file's
        layer, _, tensor = name.removesuffix(".pt").rpartition("_")
        step.operations.append(_operation(layer or "?", tensor, {}, file))
    return step


def _files(directory: str, step: LoggedStep) -> dict[str, str]:
    try:
        with opener.scandir(directory) as entries:
            return {
                entry.name: entry.path
                for entry in sorted(entries, key=lambda each: each.name)
                if entry.name.endswith(".pt")
            }
    except OSError as error:
        step.problems.append(f"{os.path.basename(directory)}: {reason_of(error)}")  # noqa: PTH119 - text all the way
        return {}


def _operation(layer: str, tensor: str, found: dict[str, str], file: str) -> LogOperation:
    backward = tensor in _BACKWARD
    weight = tensor == "weight"
    name = f"{layer}.weight" if weight else f"{layer}/{tensor}"
    dumped = _dumped(file) if file else {}
    place = dumped.pop(_WHOLE, None)
    entries = [LogTensor(Side.OUTPUT, 0, _numbers(found), file=(file, place) if place else None, others=dict(found))]
    if not found and not place:
        entries.clear()
    entries += [
        LogTensor(Side.OUTPUT, slot, _numbers({}), file=(file, member))
        for slot, member in enumerate(dumped.values(), 1)
    ]
    return LogOperation(
        name, scope(layer, tensor, backward=backward), PARAMETER if weight else tensor, tensors=entries, flows=False
    )


def _dumped(file: str) -> dict[str, str]:
    """Places of the tensors of a file by their names in it: in high precision, and quantized.

    A quantized tensor is an object of Transformer Engine; it counts as one tensor, although it consists of several.
    """
    from tui_debugger.stats.torch_file import read_tree  # only for such files

    try:
        places = [place for place in read_tree(file).members if place]
    except UnreadableTensorError:  # reading the values will say why
        return {_WHOLE: f"/{_WHOLE}"}
    found: dict[str, str] = {}
    for place in places:
        found.setdefault(place.split("/")[1], place)
    return found or {_WHOLE: f"/{_WHOLE}"}


def _numbers(found: dict[str, str]) -> LogNumbers:
    return LogNumbers.rounded(
        {name: float(found[statistic]) for statistic, name in _NUMBERS.items() if statistic in found}
    )
