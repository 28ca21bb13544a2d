"""Makes random objects as programs save them with torch.save, with or without one NaN somewhere in them."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import functools
import io
import math
import pickle
import random
import re
import uuid
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import torch

NAN = float("nan")


class Kept:
    """An object whose state is whatever it was made with."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __getstate__(self) -> Any:
        return self.kept

    def __setstate__(self, kept: Any) -> None:
        self.kept = kept


class Plain:
    """An object with attributes."""

    def __init__(self, kept: Any) -> None:
        self.first, self.second = kept, [kept]


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("kept", "more")

    def __init__(self, kept: Any) -> None:
        self.kept, self.more = kept, 1


class Called:
    """An object that a function of the program makes."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __reduce__(self) -> Any:
        return Called, (self.kept,)


class Named(dict[str, Any]):
    """A dictionary of a class of its own."""


class Listed(list[Any]):
    """A list of a class of its own, with an attribute."""


@dataclass
class Output(collections.OrderedDict[str, Any]):
    """As ``ModelOutput`` of a library is: a dictionary, with its items as attributes, made of them."""

    logits: Any = None
    hidden: Any = None

    def __post_init__(self) -> None:
        for name in ("logits", "hidden"):
            self[name] = getattr(self, name)

    def __reduce__(self) -> Any:
        return Output, (self.logits, self.hidden), *super().__reduce__()[2:]


Pair = collections.namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - what libraries have


class Phase(enum.Enum):
    """A setting."""

    TRAIN = "train"


class Tagged(torch.Tensor):  # type: ignore[misc, unused-ignore]  # torch may have no types
    """A tensor of a class of its own."""


class Net(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # torch may have no types
    """A module with a tensor beside its parameters."""

    def __init__(self, beside: Any) -> None:
        super().__init__()
        self.layer, self.beside = torch.nn.Linear(2, 2), beside
        self.again = [self.layer.weight]


def with_attribute(owner: Any, kept: Any) -> Any:
    """Returns an object with one more attribute."""
    owner.main_grad = kept
    return owner


def objects(*items: Any) -> Any:
    """Returns an array of objects."""
    array = np.empty(len(items), object)
    for number, item in enumerate(items):
        array[number] = item
    return array


def optimizer(value: float) -> torch.optim.Optimizer:
    """Returns an optimizer with a state."""
    parameter = torch.nn.Parameter(torch.ones(2))
    made = torch.optim.Adam([parameter])
    parameter.grad = torch.full((2,), value)
    made.step()
    return made


def file_of(what: Any, *, new: bool = True) -> io.BytesIO:
    """Returns what torch.save writes, in memory."""
    file = io.BytesIO()
    torch.save(what, file, _use_new_zipfile_serialization=new)
    return file


LEAVES: dict[str, Callable[[float], Any]] = {
    "tensor": lambda value: torch.tensor([1.0, value]),
    "number of torch": torch.tensor,
    "half": lambda value: torch.tensor([value, 1.0]).bfloat16(),
    "view": lambda value: torch.tensor([[1.0, 2.0], [3.0, value]]).T[1:],
    "complex": lambda value: torch.tensor([complex(1, value)]),
    "parameter": lambda value: torch.nn.Parameter(torch.tensor([value])),
    "attribute of a parameter": lambda value: with_attribute(
        torch.nn.Parameter(torch.ones(2)), torch.full((3,), value)
    ),
    "attribute of a tensor": lambda value: with_attribute(torch.ones(2), torch.full((3,), value)),
    "attribute of a dictionary": lambda value: with_attribute(collections.OrderedDict(a=1), torch.tensor([value])),
    "attribute of a list": lambda value: with_attribute(Listed([1]), torch.tensor([value])),
    "subclass": lambda value: torch.tensor([value]).as_subclass(Tagged),
    "storage": lambda value: torch.tensor([1.0, value]).storage(),  # type: ignore[no-untyped-call]  # as torch has it
    "sparse": lambda value: torch.tensor([[0.0, 1.0], [value, 0.0]]).to_sparse(),
    "module": lambda value: Net(torch.tensor([value])),
    "packed sequence": lambda value: torch.nn.utils.rnn.pack_sequence([torch.tensor([1.0, value]), torch.ones(1)]),
    "optimizer": optimizer,
    "array": lambda value: np.array([1.0, value], np.float32),
    "array with strides": lambda value: np.array([[1.0, value], [2.0, 3.0]])[:, ::-1],
    "array of columns": lambda value: np.asfortranarray([[1.0, value], [2.0, 3.0]]),
    "array with the highest byte first": lambda value: np.array([1.0, value], ">f4"),
    "array of halves": lambda value: np.array([1.0, value], ml_dtypes.bfloat16),
    "array without dimensions": np.array,
    "structured array": lambda value: np.array([(1, value)], [("a", "i4"), ("b", "f4")]),
    "nested structured array": lambda value: np.array([((1.0, [2.0, value]),)], [("a", [("b", "f4"), ("c", "f8", 2)])]),
    "array of objects": lambda value: objects(None, torch.tensor([value]), "text"),
    "array of numbers as objects": lambda value: objects(1, value),
    "dates": lambda value: np.array(["2026-01-01", "NaT" if math.isnan(value) else "2026-01-02"], "M8[s]"),
    "number of numpy": np.float32,
    "number": float,
    "complex number": lambda value: complex(value, 1),
    "numbers": lambda value: [1.0, 2, value],
    "file in memory": lambda value: file_of({"scale": torch.tensor([[1.0, value]]).T}),
    "bytes of a file": lambda value: file_of([torch.tensor([value]).bfloat16()], new=False).getvalue(),
    "bytes of a pickle": lambda value: pickle.dumps({"x": torch.tensor([value])}),
    "decimal": lambda value: decimal.Decimal(str(value)),
}
"""What holds a number."""
SETTINGS: tuple[Callable[[], Any], ...] = (
    lambda: range(3),
    lambda: slice(1, 5, 2),
    lambda: re.compile("layers.*"),
    lambda: torch.float16,
    lambda: torch.Size([2, 3]),
    lambda: torch.device("cpu"),
    lambda: Phase.TRAIN,
    lambda: dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    lambda: dt.timedelta(3),
    lambda: Path("run"),
    lambda: uuid.UUID(int=5),
    lambda: decimal.Decimal("0.1"),
    lambda: Namespace(lr=0.1, max_grad_norm=float("inf"), device=torch.device("cpu")),
    lambda: SimpleNamespace(kind=Plain),
    lambda: functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    lambda: torch.nn.functional.relu,
    lambda: np.random.default_rng(1),
    lambda: np.random.RandomState(1).get_state(),
    lambda: random.Random(1).getstate(),  # noqa: S311 - no secret
    torch.get_rng_state,
    torch.Generator,
    lambda: {
        "scheduler": {"best": float("inf"), "last_epoch": 3},
        "early_stopping": {"best_score": torch.tensor(float("inf"))},
    },
    lambda: {"best_loss": float("inf"), "loss": 0.5, "epoch": 3},
    lambda: {"config": {"limit": float("nan")}, "param_groups": [{"lr": float("inf"), "params": [0, 1]}]},
    lambda: collections.Counter("abc"),
    lambda: {1, 2, 3},
    lambda: frozenset({(1, 2)}),
    lambda: "text",
    lambda: b"bytes",
    lambda: None,
    lambda: np.array(["a", "b"]),
    lambda: np.dtype([("a", "f4")]),
    lambda: torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD([torch.ones(1)], lr=0.1), float),
    lambda: torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.GELU()),
    lambda: torch.nn.LSTM(2, 2),
)
"""What healthy checkpoints have beside their tensors."""
AROUND: tuple[Callable[[Any], Any], ...] = (
    lambda kept: {"a": kept, "b": 1},
    lambda kept: {3: kept, None: 2},
    lambda kept: {(1, "x"): {"y": kept}},
    lambda kept: [1, kept, "text"],
    lambda kept: (kept,),
    lambda kept: (kept, 1, 2, 3),
    lambda kept: collections.OrderedDict(a=kept),
    lambda kept: collections.defaultdict(list, a=[kept]),
    lambda kept: collections.deque([kept], 3),
    lambda kept: collections.ChainMap({"a": kept}),
    lambda kept: with_attribute(collections.OrderedDict(), kept),
    lambda kept: with_attribute(torch.nn.Parameter(torch.ones(1)), kept),
    lambda kept: Pair(kept, 1),
    lambda kept: Namespace(values=kept),
    lambda kept: SimpleNamespace(values=kept),
    lambda kept: functools.partial(print, kept, end=""),
    lambda kept: slice(0, kept),
    lambda kept: objects(None, kept),
    lambda kept: Named(a=kept),
    lambda kept: Listed([kept]),
    lambda kept: Output(kept, torch.ones(1)),
    Kept,
    lambda kept: Kept((None, kept)),
    lambda kept: Kept(({"a": 1}, {"b": kept})),
    lambda kept: Kept([kept]),
    Plain,
    Slotted,
    Called,
    Net,
)
"""What objects are put into."""


def tree(chance: random.Random, value: float) -> tuple[Any, str]:
    """Returns an object with one leaf that holds a value, and which kind of leaf that is."""
    kind = chance.choice(list(LEAVES))
    inner = LEAVES[kind](value)
    for _ in range(chance.randrange(4)):
        inner = chance.choice(AROUND)(inner)
    whole: dict[Any, Any] = {f"entry {number}": chance.choice(SETTINGS)() for number in range(chance.randrange(5))}
    for number in range(chance.randrange(3)):
        other = LEAVES[chance.choice(list(LEAVES))](0.5)
        for _ in range(chance.randrange(3)):
            other = chance.choice(AROUND)(other)
        whole[f"other {number}"] = other
    items = [*whole.items(), ("x", inner)]
    chance.shuffle(items)
    return dict(items), kind
