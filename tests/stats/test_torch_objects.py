"""Objects in files of torch.save of classes that nobody here knows: settings, models that were saved whole."""

from __future__ import annotations

import enum
import io
import math
import pickle
import struct
import sys
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
from tests.stats.test_torch_file import (  # noqa: E402 - see above
    EVERY_FORMAT,
    FORMATS,
    is_read,
    pickled,
    replace_members,
    saved,
    spec,
)
from tui_debugger.errors import UnreadableTensorError  # noqa: E402
from tui_debugger.stats import restricted_pickle  # noqa: E402
from tui_debugger.stats.npy import open_array  # noqa: E402
from tui_debugger.stats.torch_file import path_of, read_tree  # noqa: E402


class Strategy(enum.Enum):
    """A setting, as trainers have many."""

    NO = "no"
    EPOCH = "epoch"


@dataclass
class Settings:
    """Settings of a training."""

    rate: float
    strategy: Strategy
    weights: Any = None


class Options(dict[str, Any]):
    """A dictionary whose keys are attributes, too."""


class Layers(list[Any]):
    """A list with a name."""

    name = "layers"


Output = namedtuple("Output", "logits loss")  # noqa: PYI024 - what libraries have


class Slots:
    """An object without a dictionary."""

    __slots__ = ("state", "weight")

    def __init__(self) -> None:
        self.weight, self.state = torch.arange(3.0), None


def decoded(data: Any, scale: Any) -> Packed:
    """Makes a tensor of others."""
    made = Packed()
    made.data, made.scale = data, scale
    return made


class Packed:
    """A tensor that is kept as others, and says itself how it is made again."""

    data: Any
    scale: Any

    def __reduce__(self) -> Any:
        return decoded, (self.data, self.scale)


class Net(torch.nn.Module):  # type: ignore[misc] - torch has no types here
    """A model."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, activation="gelu")
        self.norm = torch.nn.BatchNorm1d(3)
        self.beside = torch.full((2,), 5.0)


def places(path: Path) -> list[str]:
    return list(read_tree(str(path)).members)


@EVERY_FORMAT
def test_settings_beside_tensors(tmp_path: Path, how: str) -> None:
    arguments = Namespace(
        strategy=Strategy.EPOCH, at=datetime.now(timezone.utc), more=SimpleNamespace(kind=Settings, call=partial(int))
    )
    what = {"args": arguments, "settings": Settings(0.1, Strategy.NO), "w": torch.randn(3, 4)}
    path = saved(tmp_path, what, how)
    assert places(path) == ["/w"]
    is_read(path, what["w"], "w")


@EVERY_FORMAT
def test_tensors_in_objects_are_read(tmp_path: Path, how: str) -> None:
    tensor = torch.randn(2, 3)
    options = Options(w=tensor, rate=0.1)
    options.note = tensor + 1
    what = {
        "settings": Settings(0.1, Strategy.NO, tensor),
        "out": Output(tensor, torch.tensor(1.0)),
        "options": options,
        "layers": Layers([tensor, {"w": tensor}]),
        "rows": deque([tensor], 3),
        "each": defaultdict(list, {"a": [tensor]}),
        "slots": Slots(),
    }
    path = saved(tmp_path, what, how)
    assert places(path) == [
        "/settings/weights",
        *("/out/[0]", "/out/[1]"),
        *("/options/note", "/options/w"),
        *("/layers/[0]", "/layers/[1]/w"),
        *("/rows/[0]", "/each/a/[0]", "/slots/weight"),
    ]
    is_read(path, tensor, "settings", "weights")
    is_read(path, tensor + 1, "options", "note")
    is_read(path, tensor, "layers", 1, "w")
    is_read(path, torch.arange(3.0), "slots", "weight")


@pytest.mark.parametrize("how", [how for how in FORMATS if "legacy" not in how])  # those keep source code, too
def test_a_model_that_was_saved_whole_has_the_names_of_its_state(tmp_path: Path, how: str) -> None:
    net = Net()
    path = saved(tmp_path, net, how)
    found = {".".join(path_of(member)): member for member in places(path)}
    assert set(found) == {*net.state_dict(), "beside"}
    for name, tensor in net.state_dict().items():
        is_read(path, tensor, *path_of(found[name]))


def test_what_a_call_made_of_tensors_is_not_known(tmp_path: Path) -> None:
    packed = Packed()
    packed.data, packed.scale = torch.ones(4, dtype=torch.uint8), torch.ones(1)
    path = saved(tmp_path, {"high": torch.ones(3), "packed": packed})
    assert places(path) == ["/high", "/packed/made_of/[0]", "/packed/made_of/[1]"]
    is_read(path, torch.ones(3), "high")
    with pytest.raises(UnreadableTensorError, match=r"went into tests\.stats\..*decoded, which is not known"):
        open_array(spec(path, "packed", "made_of", 0))


def test_keys_that_are_no_text(tmp_path: Path) -> None:
    path = saved(tmp_path, {torch.float32: torch.zeros(1), Strategy.NO: torch.ones(1)})
    of_type, of_member = places(path)
    assert of_type == "/<torch.float32>"
    assert "Strategy" in of_member
    assert path_of(of_member) == (of_member[1:],)
    assert open_array(spec(path, "<torch.float32>")).tolist() == [0]


def test_two_tensors_at_one_place_are_both_there(tmp_path: Path) -> None:
    path = saved(tmp_path, {torch.float32: torch.zeros(1), "<torch.float32>": torch.ones(1)})
    assert places(path) == ["/<torch.float32>", "/<torch.float32> (1)"]
    is_read(path, torch.ones(1), "<torch.float32> (1)")


def test_attributes_and_items_of_one_name_are_both_there(tmp_path: Path) -> None:
    options = Options(w=torch.zeros(1))
    options.w = torch.ones(1)
    path = saved(tmp_path, [options])
    assert places(path) == ["/[0]/w", "/[0]/w (1)"]
    assert [open_array(spec(path, 0, name)).tolist() for name in ("w", "w (1)")] == [[1], [0]]


@pytest.mark.parametrize(
    "name",
    [
        *("os system", "posix system", "builtins eval", "__builtin__ eval", "subprocess Popen"),
        *("importlib import_module", "torch load", "torch._utils _rebuild_everything", "numpy load"),
        "numpy.testing._private.utils runstring",
    ],
)
@pytest.mark.parametrize("instruction", [b"c", b"\x93"])
def test_a_function_that_is_not_known_may_have_made_anything(tmp_path: Path, name: str, instruction: bytes) -> None:
    module, _, word = name.partition(" ")
    named = f"c{module}\n{word}\n".encode() if instruction == b"c" else b""
    parts: list[bytes | int | str] = [named] if named else [module, word, b"\x93"]
    path = saved(tmp_path, [])
    replace_members(path, {"data.pkl": pickled(*parts, b".")})
    assert places(path) == []  # nothing was made
    replace_members(path, {"data.pkl": pickled(*parts, b")R.")})
    with pytest.raises(UnreadableTensorError, match=r"was made by .*, which is not known"):
        open_array(spec(path))


@pytest.mark.parametrize(
    "content",
    [
        b"cx\ny\n" * 3 + b"b.",  # changes a class
        b"cx\ny\n)\x81(Ne(NNu.",  # a list, then a dictionary
        b"cx\ny\n)\x81Na(NNu.",
        b"cx\ny\nNR.",
        b"}(cx\ny\n)\x81]b" + b"]Nu.",
    ],
)
def test_damaged_objects_are_named(tmp_path: Path, content: bytes) -> None:
    path = saved(tmp_path, [])
    replace_members(path, {"data.pkl": pickled(content)})
    with pytest.raises(UnreadableTensorError):
        read_tree(str(path))


def test_an_object_in_itself_ends(tmp_path: Path) -> None:
    options = Options(w=torch.ones(1))
    options["me"], options.me = options, [options]
    path = saved(tmp_path, options)
    assert len(places(path)) < 5
    assert open_array(spec(path, *path_of(places(path)[0]))).tolist() == [1]


def test_many_names_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restricted_pickle, "MAX_OBJECTS", 1000)
    path = saved(tmp_path, [])
    replace_members(path, {"data.pkl": pickled(b"cx\ny\n" * 1001 + b".")})
    with pytest.raises(UnreadableTensorError, match="more than 1,000 objects"):
        read_tree(str(path))


def test_nothing_of_them_is_imported(tmp_path: Path) -> None:
    (tmp_path / "side_effect.py").write_text("raise SystemExit('imported')\n")
    path = saved(tmp_path, [])
    replace_members(path, {"data.pkl": pickled(b"cside_effect\nClass\n)\x81}b.")})
    sys.path.insert(0, str(tmp_path))
    try:
        assert read_tree(str(path)).tensors == []
    finally:
        sys.path.remove(str(tmp_path))
    assert "side_effect" not in sys.modules


def test_an_ordered_dictionary_of_a_class_of_its_own(tmp_path: Path) -> None:
    class Inner(OrderedDict[str, Any]):
        """As ``ModelOutput`` of a library is."""

    Inner.__module__, Inner.__qualname__ = "library.outputs", "Inner"
    module = type(sys)("library.outputs")
    module.Inner = Inner  # type: ignore[attr-defined] - made here
    sys.modules.update({"library": type(sys)("library"), "library.outputs": module})
    try:
        path = saved(tmp_path, Inner(w=torch.ones(2)))
    finally:
        del sys.modules["library"], sys.modules["library.outputs"]
    assert places(path) == ["/w"]
    is_read(path, torch.ones(2), "w")


@pytest.fixture
def fake_group() -> Iterator[None]:
    """Lets this process believe that it is the first one of two."""
    distributed = pytest.importorskip("torch.distributed")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    distributed.init_process_group("fake", rank=0, world_size=2, store=fake.FakeStore())
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("fake_group")
@pytest.mark.parametrize("bad", [False, True])
def test_the_local_part_of_a_dtensor_is_read(tmp_path: Path, bad: bool) -> None:
    """As FSDP2 writes ``model_world_size_2_rank_0.pt``."""
    distributed = pytest.importorskip("torch.distributed.tensor")
    mesh = torch.distributed.init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    whole = torch.arange(6.0).reshape(2, 3)
    whole[0, 1] = math.nan if bad else 1
    part = distributed.DTensor.from_local(whole[:1], mesh, [distributed.Shard(0)])
    path = saved(tmp_path, {"w": part, "p": torch.nn.Parameter(part), "range": range(3)})
    assert places(path) == ["/w", "/p"]
    is_read(path, whole[:1], "w")
    is_read(path, whole[:1], "p")


def test_a_storage_that_no_tensor_refers_to_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.ones(2)})
    replace_members(path, {"data/7": b"1234"})
    assert places(path) == ["/w", "/<storage 7>"]
    with pytest.raises(UnreadableTensorError, match="a storage that no tensor refers to: its 4 bytes"):
        open_array(spec(path, "<storage 7>"))


def test_bytes_behind_the_storages_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.ones(2)}, "legacy")
    with path.open("ab") as file:
        torch.save(torch.ones(1), file, _use_new_zipfile_serialization=False)  # torch.load never reads it
    is_read(path, torch.ones(2), "w")
    with pytest.raises(UnreadableTensorError, match="bytes behind all storages"):
        open_array(spec(path, "<end of the file>"))


def test_a_storage_without_a_type_is_a_doubt_unless_a_tensor_shows_it(tmp_path: Path) -> None:
    tensor = torch.ones(2)
    path = saved(tmp_path, {"storage": tensor.untyped_storage()})
    with pytest.raises(UnreadableTensorError, match="a storage without an element type"):
        open_array(spec(path, "storage"))
    octets = torch.ones(2, dtype=torch.uint8)
    assert places(saved(tmp_path, {"storage": octets.untyped_storage(), "w": octets})) == ["/w"]


def test_what_a_class_makes_of_bytes_is_not_known(tmp_path: Path) -> None:
    class Opaque:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def __getstate__(self) -> bytes:
            return self.content

    Opaque.__qualname__ = "Opaque"
    sys.modules[__name__].Opaque = Opaque  # type: ignore[attr-defined]  # pickle looks for it there
    path = saved(tmp_path, {"x": Opaque(struct.pack("<f", math.nan))})
    with pytest.raises(UnreadableTensorError, match="made of bytes, which are not read"):
        open_array(spec(path, "x"))
    assert places(saved(tmp_path, {"x": Opaque(b'{"text": 1}')})) == []


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ({"loss": math.nan}, ["/loss"]),
        ({"loss": math.inf}, ["/loss"]),
        ({"loss": 1.0}, []),
        ({"losses": [1.0, math.inf]}, ["/losses"]),
        ({"steps": [1.0, math.inf]}, []),
        ({"x": math.nan}, ["/x"]),
        ({"x": math.inf}, []),
        ({"best_loss": math.inf}, []),
        ({"args": {"loss": math.nan}}, []),
        ({"hparams": {"max_grad_norm": math.inf}}, []),
        ({"lr_schedulers": [{"best": math.nan}]}, []),
        ({"callbacks": {"EarlyStopping": {"best_score": torch.tensor(math.inf)}}}, []),
        ({"best_score": torch.tensor(math.inf)}, ["/best_score"]),
        ({"config": {"weights": torch.tensor([math.nan])}}, ["/config/weights"]),
        (
            {"callbacks": {"EarlyStopping": {"best_score": torch.tensor(math.nan)}}},
            ["/callbacks/EarlyStopping/best_score"],
        ),
        ({"noise_scheduler.sigma": torch.tensor(math.nan)}, ["/noise_scheduler.sigma"]),
        ({"noise_scheduler.sigma": math.nan}, ["/noise_scheduler.sigma"]),
        ({"scheduler.gamma": torch.tensor(math.inf)}, ["/scheduler.gamma"]),
        ({"model.config.scale": torch.tensor(math.inf)}, ["/model.config.scale"]),
        ({"config.temperature": np.array(math.nan)}, ["/config.temperature"]),
        ({"args.scale": torch.tensor(math.nan)}, ["/args.scale"]),
        ({"config.temperature": np.float32(math.nan)}, []),
        ({"args.max_loss": math.inf}, []),
        ({"lr_scheduler_state_dict": {"best": math.nan}}, []),
        ({"training_config": {"loss_limit": math.inf}}, []),
        ({"param_groups": [{"lr": torch.tensor(math.nan)}]}, ["/param_groups/[0]/lr"]),
        ({"param_groups": [{"lr": math.nan}]}, []),
        (math.nan, [""]),
        ({"log_history": [{"loss": 1.0}, {"loss": math.nan}, {"loss": 0.5}]}, ["/log_history/loss"]),
        ({"log_history": [{"grad_norm": math.nan}, {"grad_norm": math.inf}, {"grad_norm": 1.0}]}, []),
        ({"log_history": [{"grad_norm": 1.0}, {"grad_norm": math.inf}, {"loss": 1.0}]}, ["/log_history/grad_norm"]),
        ({"log_history": [{"grad_norm": {"layer": math.nan}}]}, ["/log_history/[0]/grad_norm/layer"]),
        ({"norms": [{"grad_norm": math.nan}, {"grad_norm": 1.0}]}, ["/norms/[0]/grad_norm"]),
    ],
)
def test_which_numbers_are_judged(tmp_path: Path, what: Any, found: list[str]) -> None:
    """NaN outside of settings, Inf where its name is that of a value; all others are counted apart.

    In a log the numbers of one name are one tensor. Norms of gradients are no finding where finite ones follow them.
    """
    tree = read_tree(str(saved(tmp_path, what)))
    assert list(tree.members) == found
    assert len(tree.apart) == (0 if found or what == {"loss": 1.0} else 1)


class NoiseScheduler(torch.nn.Module):  # type: ignore[misc] - torch has no types here
    """A part of a model that is called as settings are."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.register_buffer("sigma", torch.tensor(sigma))


@pytest.mark.parametrize("sigma", [1.0, math.nan, math.inf])
def test_what_a_module_has_is_no_setting(tmp_path: Path, sigma: float) -> None:
    model = torch.nn.ModuleDict({"scheduler": NoiseScheduler(sigma)})
    tree = read_tree(str(saved(tmp_path, {"config": model})))
    assert list(tree.members) == ["/config/scheduler/sigma"]
    assert not tree.apart


@EVERY_FORMAT
@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_empty_array_is_whole(tmp_path: Path, how: str, shape: tuple[int, ...], order: Literal["C", "F"]) -> None:
    path = saved(tmp_path, {"boxes": np.zeros(shape, np.float32, order)}, how)
    assert open_array(spec(path, "boxes")).shape == shape


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("function", [lambda x: torch.max(x, dim=0), lambda x: x.topk(2), torch.svd])
def test_the_results_of_a_function_of_torch_are_all_read(tmp_path: Path, function: Any, bad: bool) -> None:
    results = function(torch.rand(4, 4))
    if bad:
        results[0].fill_(math.nan)
    path = saved(tmp_path, {"found": results})
    assert places(path) == [f"/found/[{number}]" for number in range(len(results))]
    is_read(path, results[0], "found", 0)


def test_bytes_behind_the_archive_are_a_doubt(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.ones(3)}, "zip")
    content = path.read_bytes()
    path.write_bytes(content + bytes(4096))
    assert places(path) == ["/w"]
    path.write_bytes(content + struct.pack("<200f", *[math.nan] * 200))
    with pytest.raises(UnreadableTensorError, match="800 bytes that belong to none of its members"):
        read_tree(str(path))


@EVERY_FORMAT
@pytest.mark.parametrize("writer", [pickle.dump, torch.save])
def test_a_file_in_a_tensor_of_bytes_is_read(tmp_path: Path, how: str, writer: Any) -> None:
    scales = torch.tensor([1.0, math.nan])
    writer({"scale_fwd": scales, "recipe": "delayed"}, file := io.BytesIO())
    state = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    path = saved(tmp_path, {"attn._extra_state": state, "w": torch.ones(3)}, how)
    assert places(path) == ["/attn._extra_state", "/w", "/attn._extra_state/scale_fwd"]
    is_read(path, scales, "attn._extra_state", "scale_fwd")


@pytest.mark.parametrize("start", [b"PK\3\4", b"\x80\4", b"\x93NUMPY", b""])
def test_bytes_that_only_begin_as_a_file_are_a_tensor(tmp_path: Path, start: bytes) -> None:
    content = torch.frombuffer(bytearray(start + bytes(range(200))), dtype=torch.uint8)
    path = saved(tmp_path, {"picture": content})
    assert places(path) == ["/picture"]
    is_read(path, content, "picture")
