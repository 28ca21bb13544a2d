"""Opening: a million files, a graph of a hundred thousand nodes, as many calls of msprobe, dumps opened before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.timing import Result, best_of_each
from tui_debugger.cache.store import DiskCache
from tui_debugger.graph.messages import message_class
from tui_debugger.session import Session
from tui_debugger.sources import open_source
from tui_debugger.sources.base import TensorTable

FILES: Final = 1_000_000
STEPS: Final = 50
NODES: Final = 100_000
CALLS: Final = 100_000
REOPENED: Final = 950
"""Files of each step of the dump that is opened again."""
_TYPES: Final = ("MatMul", "BiasAdd", "ReLU", "Add", "Mul", "LayerNorm", "Softmax", "Transpose")
_SPOTS: Final = (*(("input", slot) for slot in range(8)), ("output", 0), ("output", 1))
"""Ten files of every node."""
_ENDING: Final = "DefaultFormat.float32.npy"
_HOUR: Final = 3600 * 10**9


def run(scale: float, folder: Path) -> list[Result]:
    """All five."""
    files = max(1000, round(FILES * scale))
    return [
        *of_listing(folder / "steps", "many steps", STEPS, max(20, files // STEPS)),
        *of_listing(folder / "step", "one step", 1, files),
        *of_graph(folder / "graph", max(500, round(NODES * scale))),
        *of_calls(folder / "calls", max(500, round(CALLS * scale))),
        *of_opening_again(folder / "again", max(2, round(STEPS * min(1, 4 * scale)))),
    ]


def of_listing(root: Path, what: str, steps: int, files: int) -> list[Result]:
    """What it costs to have the tables of all steps, beyond what it costs to list the directories."""
    nodes = max(1, files // len(_SPOTS))
    write_graph(root, nodes, stacks=False)
    directories = [write_step(root, step, nodes, files) for step in range(steps)]
    scanned, opened = best_of_each(partial(scan, directories), partial(tables, root, range(steps)))
    extra = 1e6 * (opened - scanned) / (steps * files)
    note = f"{steps * files:,} files, {nodes:,} nodes, graph, order and tables included"
    return [
        Result(f"{what}: opening, beyond listing the directories", extra, 10, "µs/file", at_most=True, note=note),
        Result(f"{what}: opening / listing the directories", opened / scanned, note="os.scandir alone is 1"),
        Result(f"{what}: memory", memory(root, steps), 300, "B/tensor", at_most=True, note="RssAnon, with the nodes"),
    ]


def of_graph(root: Path, nodes: int) -> list[Result]:
    """A session on a graph, with its tree, against what protobuf takes to parse the file."""
    path = write_graph(root, nodes, stacks=True)
    write_step(root, 0, nodes, 20)
    data = path.read_bytes()

    def opened() -> None:
        with closing(Session(open_source(root))) as session:
            session.open()

    parsed, whole = best_of_each(lambda: message_class("ModelProto")().ParseFromString(data), opened, repeat=5)
    note = f"{nodes:,} nodes, {len(data) / 1e6:.3g} MB, read and in a tree"
    return [
        Result("opening a graph", whole, 1.0, "s", at_most=True, note=note),
        Result("opening a graph / parsing it", whole / parsed, note="protobuf's parser alone is 1"),
    ]


def of_calls(root: Path, calls: int) -> list[Result]:
    """The first step of an msprobe dump, with its nodes and edges, beyond what it takes to parse its JSON."""
    files = write_calls(root, calls)

    def parse() -> None:
        for file in files:
            json.loads(file.read_bytes())

    def opened() -> None:
        with closing(open_source(root)) as source:
            source.tensors(0, 0)

    parsed, whole = best_of_each(parse, opened, repeat=5)
    note = f"{calls:,} calls, {sum(file.stat().st_size for file in files) / 1e6:.3g} MB of JSON"
    return [
        Result("opening calls of msprobe, beyond parsing", whole - parsed, 1.0, "s", at_most=True, note=note),
        Result("opening calls of msprobe / parsing them", whole / parsed, note="json.loads alone is 1"),
        Result("opening calls of msprobe: memory", memory(root, 1, per_tensor=False) / 1e6, note="MB, RssAnon"),
    ]


def of_opening_again(root: Path, steps: int) -> list[Result]:
    """A dump whose listings are in the index."""
    write_graph(root, REOPENED // 3, stacks=False)
    directories = [write_step(root, step, REOPENED // 3, REOPENED) for step in range(steps)]
    for directory in directories:  # what changed just now is not remembered
        then = directory.stat().st_mtime_ns - _HOUR
        os.utime(directory, ns=(then, then))
    tables(root, range(steps), root.parent / "index")

    def again() -> None:
        tables(root, range(steps), root.parent / "index")

    fresh, known = best_of_each(partial(tables, root, range(steps)), again)
    note = f"{steps} steps of {REOPENED} files"
    return [
        Result("opening a dump again", 1e3 * known / steps, 0.6, "ms/step", at_most=True, note=note),
        Result("opening a dump again / for the first time", known / fresh, note="from the index, nothing listed"),
    ]


def scan(directories: Sequence[Path]) -> int:
    """The names in directories, bare."""
    count = 0
    for directory in directories:
        with os.scandir(os.fsencode(directory)) as entries:
            count += sum(1 for _ in entries)
    return count


def tables(root: Path, steps: Sequence[int], index: Path | None = None) -> list[TensorTable]:
    """The tables of steps, from a source that knows nothing yet."""
    store = DiskCache(index) if index is not None else None
    with closing(open_source(root, store)) as source:
        found = [source.tensors(0, step) for step in steps]
    if store is not None:
        store.close()
    return found


_MEMORY = """
import sys
from pathlib import Path
import tui_debugger.sources.mindspore.source
from tui_debugger.graph.messages import message_class
from tui_debugger.sources import open_source

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

message_class("ModelProto")
before = anonymous()
source = open_source(Path(sys.argv[1]))
kept = [source.tensors(0, step) for step in range(int(sys.argv[2]))]
for table in kept:
    table.find(0, 0, 0)  # makes the lookups
grown = anonymous() - before
print(grown / sum(map(len, kept)) if sys.argv[3] == "True" else grown)
"""


def memory(root: Path, steps: int, *, per_tensor: bool = True) -> float:
    """Anonymous memory of a process that has all tables of a dump, in bytes; 0 where only Linux would know."""
    if not Path("/proc/self/status").exists():
        return 0.0
    command = [sys.executable, "-c", _MEMORY, str(root), str(steps), str(per_tensor)]
    return max(0.0, float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def full_names(nodes: int) -> Iterator[tuple[str, str]]:
    """(operator type, full name) of the nodes of a deep network."""
    for number in range(nodes):
        kind = _TYPES[number % len(_TYPES)]
        scope = f"Default/network-Net/backbone-Backbone/blocks-CellList/{number // 64}-Block/attention-Attention"
        yield kind, f"{scope}/{kind}-op{number}"


def write_graph(root: Path, nodes: int, *, stacks: bool) -> Path:
    """A graph with its execution order: every node reads the one before and a parameter."""
    rank = root / "rank_0"
    (rank / "graphs").mkdir(parents=True)
    (rank / "execution_order").mkdir()
    model = message_class("ModelProto")()
    model.graph.name, model.graph.root_name = b"kernel_graph0", b"0"
    weights = [f"backbone.blocks.{number}.weight".encode() for number in range(nodes // 20 + 1)]
    for name in weights:
        _shaped(model.graph.parameters.add(name=name).type)
    for number, (kind, name) in enumerate(full_names(nodes)):
        node = model.graph.node.add(
            name=b"%d" % (number + 1),
            op_type=kind.encode(),
            scope=name.rpartition("/")[0].encode(),
            full_name=name.encode(),
            source_address=_stack(number) if stacks else b"",
        )
        _shaped(node.output_type)
        node.input.add(name=b"%d" % number if number else weights[0])
        node.input.add(name=weights[number % len(weights)])
    names = "\n".join(name for _, name in full_names(nodes))
    order = rank / "execution_order" / "ms_execution_order_graph_0.csv"
    order.write_text(f"NodeExecutionOrder-FullNameWithScope\n{names}\n")
    path = rank / "graphs" / "ms_output_trace_code_graph_0.pb"
    path.write_bytes(model.SerializeToString())
    return path


def write_calls(root: Path, calls: int) -> list[Path]:
    """What msprobe writes of a step of a deep network: statistics of modules and of what they call, both ways."""
    data: dict[str, object] = {}
    construct: dict[str, str | None] = {}
    stacks: dict[str, object] = {}

    def tensor(number: float, *shape: int) -> dict[str, object]:
        numbers = {"Max": number + 1.5, "Min": number - 1.5, "Mean": number, "Norm": 3 * number + 1}
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, **numbers, "requires_grad": True}

    lines = [
        f"File /home/user/model/file{depth}.py, line {100 + depth}, in forward, \n x = self(x)" for depth in range(8)
    ]
    for layer in range(calls // 4):
        path = f"layers.{layer // 8}.block{layer % 8}.fc"
        module, function = f"Module.{path}.Linear", f"Functional.linear.{layer}"
        weight = tensor(layer + 0.7, 64, 64)
        came, went = tensor(layer, 8, 64), tensor(layer + 1, 8, 64)
        data[f"{function}.forward"] = {"input_args": [came, weight], "input_kwargs": {}, "output": [went]}
        data[f"{module}.forward.0"] = {
            "input_args": [came], "input_kwargs": {}, "parameters": {"weight": weight}, "output": [went],
        }  # fmt: skip
        construct |= {f"{function}.forward": f"{module}.forward.0", f"{module}.forward.0": None}
        stacks[str(layer)] = [[f"{function}.forward", f"{module}.forward.0"], lines]
    for layer in reversed(range(calls // 4)):
        path = f"layers.{layer // 8}.block{layer % 8}.fc"
        module, function = f"Module.{path}.Linear", f"Functional.linear.{layer}"
        back, on = tensor(layer + 1.25, 8, 64), tensor(layer + 0.25, 8, 64)
        data[f"{module}.backward.0"] = {"input": [back], "output": [on]}
        data[f"{function}.backward"] = {"input": [back], "output": [on]}
        construct |= {f"{function}.backward": f"{module}.backward.0", f"{module}.backward.0": None}
    directory = root / "step0" / "rank0"
    directory.mkdir(parents=True)
    head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    held = {"dump": {**head, "data": data}, "construct": construct, "stack": stacks}
    for name, content in held.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return [directory / f"{name}.json" for name in held]


def write_step(root: Path, step: int, nodes: int, files: int) -> Path:
    """Empty files: what they are called is all that matters here."""
    directory = root / "rank_0" / "Net" / "0" / str(step)
    directory.mkdir(parents=True)
    names = [f"{kind}.{name.replace('/', '--')}" for kind, name in full_names(nodes)]
    for number in range(files):
        side, slot = _SPOTS[number // nodes % len(_SPOTS)]
        stamp = 1_700_000_000_000_000 + 37 * (step * files + number)
        name = f"{directory}/{names[number % nodes]}.0.0.{stamp}.{side}.{slot}.{_ENDING}"
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    return directory


def _shaped(kind: object) -> None:
    kind.data_type, kind.tensor_type.elem_type = 14, 11  # type: ignore[attr-defined] # a protobuf message
    for size in (32, 256):
        kind.tensor_type.shape.dim.add(size=size)  # type: ignore[attr-defined]


def _stack(number: int) -> bytes:
    lines = (
        f"# In file /home/user/project/model/file{depth}.py:{100 + (7 * number + depth) % 400}/        x = self(x)/\n"
        for depth in range(5)
    )
    return "".join(lines).encode()
