"""Tiny checkpoints as several programs write them: what the weights of one model are called, and how they are cut."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.sources.arrays import write_arrays, write_safetensors

Array = npt.NDArray[Any]
Weights = dict[str, Array]
Ranks = dict[str, Weights]
"""What the file of each rank holds, by its name."""
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
MOST = {FP8: 448.0, np.dtype(ml_dtypes.float8_e5m2): 57344.0, np.dtype(np.int8): 127.0}
HEIGHT, WIDE = 256, 192
LAYERS, WIDTH, HEADS, GROUPS, HEAD, INNER, WORDS, EXPERTS = 3, 16, 4, 2, 4, 24, 20, 3


def write_checkpoint(directory: Path, values: Mapping[str, object] | Sequence[Weights]) -> None:
    """Writes weights into one file; those of tensor-parallel ranks, or of files with names, into one each."""
    if not isinstance(values, Mapping):
        values = dict(zip((f"model_tp_rank_{rank}" for rank in range(len(values))), values, strict=True))
    if not all(isinstance(each, dict) for each in values.values()):
        write_arrays(directory, values, "safetensors")
        return
    for name, own in values.items():
        path = directory / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(own, dict)
        write_safetensors(path, own)


def random(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng([seed, *shape]).normal(size=shape) * 0.02).astype(np.float32)


# -- models ----------------------------------------------------------------------------------------


def trained(of: Weights) -> Weights:
    """The scales of its norms are not all one."""
    return {
        name: value + random(*value.shape, seed=7 + number) if "norm" in name else value
        for number, (name, value) in enumerate(of.items())
    }


def hugging_face() -> Weights:
    made = {"model.embed_tokens.weight": random(WORDS, WIDTH), "model.norm.weight": np.ones(WIDTH, np.float32)}
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD, WIDTH),
        "self_attn.k_proj": (GROUPS * HEAD, WIDTH),
        "self_attn.v_proj": (GROUPS * HEAD, WIDTH),
        "self_attn.o_proj": (WIDTH, HEADS * HEAD),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
    }
    for layer in range(LAYERS):
        scope = f"model.layers.{layer}."
        for number, (name, shape) in enumerate(shapes.items()):
            made[f"{scope}{name}.weight"] = random(*shape, seed=100 * layer + number + 1)
            if name[-6] in "qkv" and "attn" in name:
                made[f"{scope}{name}.bias"] = random(shape[0], seed=100 * layer + number + 50)
        made[f"{scope}input_layernorm.weight"] = np.ones(WIDTH, np.float32)
        made[f"{scope}post_attention_layernorm.weight"] = np.ones(WIDTH, np.float32)
    return made


def mixtral() -> Weights:
    """Experts are weights of their own: w1 is the gate, w3 goes up, w2 down."""
    dense = trained(hugging_face())
    made = {name: value for name, value in dense.items() if ".mlp." not in name}
    shapes = {"w1": (INNER, WIDTH), "w2": (WIDTH, INNER), "w3": (INNER, WIDTH)}
    for layer in range(LAYERS):
        scope = f"model.layers.{layer}.block_sparse_moe."
        made[f"{scope}gate.weight"] = random(4, WIDTH, seed=77 + layer)
        for expert in range(4):
            for number, (name, shape) in enumerate(shapes.items()):
                made[f"{scope}experts.{expert}.{name}.weight"] = random(*shape, seed=90 * layer + 5 * expert + number)
    return made


def experts() -> Weights:
    shapes = {"gate_proj": (INNER, WIDTH), "up_proj": (INNER, WIDTH), "down_proj": (WIDTH, INNER)}
    return {
        f"layers.{layer}.experts.{expert}.{name}.weight": random(*shape, seed=50 * layer + 5 * expert + number)
        for layer in range(2)
        for expert in range(EXPERTS)
        for number, (name, shape) in enumerate(shapes.items())
    }


def gpt2() -> Weights:
    """Matrices as Conv1D has them, with an output a column."""
    made = {"wte.weight": random(WORDS, WIDTH), "wpe.weight": random(12, WIDTH, seed=3)}
    shapes = {"attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH), "mlp.c_fc": (WIDTH, 4 * WIDTH)}
    shapes["mlp.c_proj"] = (4 * WIDTH, WIDTH)
    for layer in range(LAYERS):
        for number, (name, shape) in enumerate(shapes.items()):
            made[f"h.{layer}.{name}.weight"] = random(*shape, seed=100 * layer + number + 11)
            made[f"h.{layer}.{name}.bias"] = random(shape[1], seed=100 * layer + number + 31)
        for number, name in enumerate(("ln_1", "ln_2")):
            made[f"h.{layer}.{name}.weight"] = 1 + random(WIDTH, seed=10 * layer + number + 400)
            made[f"h.{layer}.{name}.bias"] = random(WIDTH, seed=10 * layer + number + 500)
    return made


def wide() -> Weights:
    """Weights that are large enough for blocks of 128 x 128 elements."""
    made: Weights = {"norm.weight": np.ones(WIDE, ml_dtypes.bfloat16)}
    for layer in range(2):
        for number, name in enumerate("qkvo"):
            values = np.random.default_rng([layer, number]).normal(size=(HEIGHT, WIDE)) * 0.02
            made[f"layers.{layer}.self_attn.{name}_proj.weight"] = values.astype(ml_dtypes.bfloat16)
    return made


# -- programs --------------------------------------------------------------------------------------


def vllm(of: Weights) -> Weights:
    """q, k and v one after the other, gate and up as well; all else as it is."""
    made = {}
    for name, value in of.items():
        if ".q_proj." in name:
            parts = [of[name.replace("q_proj", f"{each}_proj")] for each in "qkv"]
            made[name.replace("q_proj", "qkv_proj")] = np.concatenate(parts)
        elif ".gate_proj." in name:
            parts = [value, of[name.replace("gate", "up")]]
            made[name.replace("gate_proj", "gate_up_proj")] = np.concatenate(parts)
        elif not any(each in name for each in (".k_proj", ".v_proj", ".up_proj")):
            made[name] = value
    return made


def megatron(of: Weights) -> Weights:
    """q, k and v group by group of heads, a padded vocabulary, other names."""

    def by_group(parts: list[Array]) -> Array:
        split = [each.reshape(GROUPS, len(each) // GROUPS, *each.shape[1:]) for each in parts]
        together = np.concatenate(split, 1)
        return together.reshape(-1, *together.shape[2:])

    padding = np.zeros((12, WIDTH), np.float32)
    made = {
        "embedding.word_embeddings.weight": np.concatenate([of["model.embed_tokens.weight"], padding]),
        "decoder.final_layernorm.weight": of["model.norm.weight"],
    }
    for layer in sorted({int(each[1]) for name in of if (each := re.search(r"layers\.(\d+)", name))}):
        old, new = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        for kind in ("weight", "bias"):
            parts = [of[f"{old}self_attn.{each}_proj.{kind}"] for each in "qkv"]
            made[f"{new}self_attention.linear_qkv.{kind}"] = by_group(parts)
        gated = [of[f"{old}mlp.{each}_proj.weight"] for each in ("gate", "up")]
        made[f"{new}mlp.linear_fc1.weight"] = np.concatenate(gated)
        made[f"{new}self_attention.linear_proj.weight"] = of[f"{old}self_attn.o_proj.weight"]
        made[f"{new}mlp.linear_fc2.weight"] = of[f"{old}mlp.down_proj.weight"]
        made[f"{new}self_attention.linear_qkv.layer_norm_weight"] = of[f"{old}input_layernorm.weight"]
        made[f"{new}mlp.linear_fc1.layer_norm_weight"] = of[f"{old}post_attention_layernorm.weight"]
    return made


def stacked(of: Weights) -> Weights:
    made = {}
    for layer in range(2):
        each = [f"layers.{layer}.experts.{expert}." for expert in range(EXPERTS)]
        first = [np.concatenate([of[f"{at}gate_proj.weight"], of[f"{at}up_proj.weight"]]) for at in each]
        made[f"layers.{layer}.experts.w13_weight"] = np.stack(first)
        made[f"layers.{layer}.experts.w2_weight"] = np.stack([of[f"{at}down_proj.weight"] for at in each])
    return made


def transposed(of: Weights) -> Weights:
    return {name: np.swapaxes(each, -1, -2).copy() if each.ndim > 1 else each for name, each in of.items()}


def half(of: Weights) -> Weights:
    return {name: each.astype(ml_dtypes.bfloat16) for name, each in of.items()}


def in_stacks(of: Weights) -> Weights:
    """The layers of each weight in one array, as a loop over layers has them."""
    own = {name: value for name, value in of.items() if ".layers." not in name}
    layers: dict[str, list[Array]] = defaultdict(list)
    for name, value in of.items():
        if ".layers." in name:
            layers[re.sub(r"layers\.\d+", "layers", name)].append(value)
    return own | {name: np.stack(values) for name, values in layers.items()}


def renamed(of: Weights) -> Weights:
    """As Meta names the weights of Llama, but for the scope of its layers."""
    names = {"model.layers": "blocks", "self_attn": "attention", "mlp": "feed_forward", "model.embed_tokens": "tok"}
    names |= {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo", "model.norm": "norm"}
    names |= {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "post_attention_layernorm": "ffn_norm"}
    names |= {"input_layernorm": "attention_norm"}
    made = {}
    for name, value in of.items():
        for old, new in names.items():
            name = name.replace(old, new)  # noqa: PLW2901 - one word after the other
        made[name] = value
    return made


def without_experts(of: Weights) -> Weights:
    return {name: value for name, value in of.items() if ".experts." not in name}


def of_expert(of: Weights, layer: int, expert: int) -> list[Array]:
    return [of[f"model.layers.{layer}.block_sparse_moe.experts.{expert}.w{number}.weight"] for number in (1, 2, 3)]


def vllm_experts(of: Weights) -> Weights:
    """w1 above w3, in a stack of all experts."""
    made = without_experts(of)
    for layer in range(LAYERS):
        each = [of_expert(of, layer, expert) for expert in range(4)]
        scope = f"model.layers.{layer}.block_sparse_moe.experts."
        made[f"{scope}w13_weight"] = np.stack([np.concatenate([gate, up]) for gate, _, up in each])
        made[f"{scope}w2_weight"] = np.stack([down for _, down, _ in each])
    return made


def gpt_oss(of: Weights) -> Weights:
    """Columns of gate and up in turns, in a stack of all experts."""
    made = without_experts(of)
    for layer in range(LAYERS):
        each = [of_expert(of, layer, expert) for expert in range(4)]
        scope = f"model.layers.{layer}.block_sparse_moe.experts."
        made[f"{scope}gate_up_proj"] = np.stack(
            [np.stack([gate, up], 1).reshape(-1, WIDTH).T for gate, _, up in each]
        ).copy()
        made[f"{scope}down_proj"] = np.stack([down.T for _, down, _ in each]).copy()
    return made


def megatron_experts(of: Weights) -> Weights:
    """Local experts; the attention group by group."""
    made = {name: value for name, value in megatron(hugging_face() | of).items() if ".linear_fc" not in name}
    for layer in range(LAYERS):
        scope = f"decoder.layers.{layer}."
        made[f"{scope}mlp.router.weight"] = of[f"model.layers.{layer}.block_sparse_moe.gate.weight"]
        made[f"{scope}pre_mlp_layernorm.weight"] = of[f"model.layers.{layer}.post_attention_layernorm.weight"]
        for expert in range(4):
            gate, down, up = of_expert(of, layer, expert)
            made[f"{scope}mlp.experts.local_experts.{expert}.linear_fc1.weight"] = np.concatenate([gate, up])
            made[f"{scope}mlp.experts.local_experts.{expert}.linear_fc2.weight"] = down
    return made


def grouped_experts(of: Weights) -> Weights:
    """As Transformer Engine names the experts of a grouped linear layer."""
    pattern = re.compile(r"local_experts\.(\d+)\.(linear_fc\d)\.weight")
    return {pattern.sub(r"\2.weight\1", name): value for name, value in megatron_experts(of).items()}


def expert_parallel(of: Weights) -> Ranks:
    """Each of two ranks has two experts, and counts them from zero."""
    made: Ranks = {f"mp_rank_00_000_00{rank}/model": {} for rank in range(2)}
    for name, value in megatron_experts(of).items():
        expert = re.search(r"local_experts\.(\d)", name)
        for rank, own in enumerate(made.values()):
            if expert is None:
                own[name] = value
            elif int(expert[1]) // 2 == rank:
                own[name.replace(expert[0], f"local_experts.{int(expert[1]) % 2}")] = value
    return made


def as_linear(of: Weights) -> Weights:
    """Matrices of GPT-2 with an output a row."""
    return {f"transformer.{name}": value.T.copy() if ".c_" in name else value for name, value in of.items()}


def split_attention(of: Weights) -> Weights:
    """The same, with q, k and v apart."""
    made = {}
    for name, value in of.items():
        turned = value.T.copy() if ".c_" in name else value
        if ".c_attn." in name:
            for each, part in zip("qkv", np.split(turned, 3), strict=True):
                made[f"decoder.{name.replace('c_attn', f'{each}_proj')}"] = part
        else:
            made[f"decoder.{name}"] = turned
    return made


# -- ranks -----------------------------------------------------------------------------------------


def tensor_parallel(of: Weights, ranks: int = 2, convert: Callable[[Weights], Weights] = vllm) -> list[Weights]:
    """Each rank has its heads of q, k and v, its part of gate and up, and columns of the rows behind them."""
    made: list[Weights] = [{} for _ in range(ranks)]
    for rank, own in enumerate(made):
        for name, value in of.items():
            axis = 1 if any(each in name for each in ("o_proj.w", "down_proj.w")) else 0
            parts = np.split(value, ranks, axis) if "_proj" in name else [value] * ranks
            own[name] = parts[rank]
    return [convert(each) for each in made]


def megatron_parallel(of: Weights, ranks: int = 2) -> Ranks:
    """Tensor-parallel ranks of Megatron: groups of heads, parts of gate and of up, words."""
    made: Ranks = {f"mp_rank_{rank:02}/model": {} for rank in range(ranks)}
    for name, value in megatron(of).items():
        for rank, own in enumerate(made.values()):
            if "linear_fc1.weight" in name:
                own[name] = np.concatenate([np.split(part, ranks)[rank] for part in np.split(value, 2)])
            elif any(each in name for each in ("linear_qkv.weight", "linear_qkv.bias", "word_embeddings")):
                own[name] = np.split(value, ranks)[rank]
            elif any(each in name for each in ("linear_proj.weight", "linear_fc2.weight")):
                own[name] = np.split(value, ranks, 1)[rank]
            else:
                own[name] = value
    return made


def stages(of: Weights, *, from_zero: bool) -> Ranks:
    """Two stages of a pipeline of Megatron; the second one may count its layers from zero."""
    return {f"mp_rank_00_00{number}/model": own for number, own in enumerate(in_stages(megatron(of), from_zero))}


def parallel_stages(of: Weights, *, from_zero: bool) -> Ranks:
    """The same, with two tensor-parallel ranks each."""
    return {
        f"mp_rank_0{rank}_00{number}/model": own
        for rank, whole in enumerate(megatron_parallel(of).values())
        for number, own in enumerate(in_stages(whole, from_zero))
    }


def in_stages(of: Weights, from_zero: bool) -> tuple[Weights, Weights]:
    """The first layer, and the others with the norm behind them."""
    made: tuple[Weights, Weights] = {}, {}
    for name, value in of.items():
        layer = re.search(r"layers\.(\d)", name)
        second = int(layer[1]) > 0 if layer else "final" in name
        if layer and second and from_zero:
            name = name.replace(layer[0], f"layers.{int(layer[1]) - 1}")  # noqa: PLW2901 - of the same weight
        made[second][name] = value
    return made


# -- fp8 -------------------------------------------------------------------------------------------


def kept(
    of: Weights, block: tuple[int, int], end: str = "_scale", dtype: np.dtype[Any] = FP8, shape: tuple[int, ...] = ()
) -> Weights:
    """Returns weights as elements and scales: one for each block."""
    made = {}
    for name, whole in of.items():
        if whole.ndim < 2:
            made[name] = whole
            continue
        wide = whole.astype(np.float32)
        counts = -(-HEIGHT // block[0]), -(-WIDE // block[1])
        scales = np.empty(counts, np.float32)
        values = np.empty(wide.shape, dtype)
        for at in np.ndindex(counts):
            part = tuple(slice(n * size, (n + 1) * size) for n, size in zip(at, block, strict=True))
            scales[at] = np.abs(wide[part]).max() / MOST[dtype]
            scaled = wide[part] / scales[at]
            values[part] = (np.rint(scaled) if dtype.kind == "i" else scaled).astype(dtype)
        made[name] = values
        made[f"{name}{end}"] = scales.reshape(shape) if shape else scales
    return made


def fused(of: Weights) -> Weights:
    """q, k and v of a layer in one weight, and their scales as well."""
    made = {}
    for name, value in of.items():
        if ".q_proj." in name:
            made[name.replace("q_proj", "qkv_proj")] = np.concatenate(
                [of[name.replace("q_proj", f"{each}_proj")] for each in "qkv"]
            )
        elif not any(each in name for each in (".k_proj", ".v_proj")):
            made[name] = value
    return made


def scale_of_each_part(of: Weights) -> Weights:
    """q, k and v in one weight of fp8, with one scale for each of the three."""
    parts = kept(of, (HEIGHT, WIDE), shape=())
    return {name: value.reshape(-1) if name.endswith("scale") else value for name, value in fused(parts).items()}


# -- updates ---------------------------------------------------------------------------------------


def updates(of: Weights) -> dict[str, tuple[Array, Array]]:
    """The two matrices of a low-rank update of q and v of each layer."""
    names = [name for name in of if re.search(r"[qv]_proj\.weight", name)]
    return {
        name: (random(3, of[name].shape[1], seed=number + 900), random(len(of[name]), 3, seed=number + 950) * 20)
        for number, name in enumerate(names)
    }


def merged(of: Weights, times: Mapping[str, float] | None = None) -> Weights:
    """The weights with their updates in them, twice unless another number of times is said."""
    own = updates(of)
    return {
        name: value + np.float32((times or {}).get(name, 2.0)) * (own[name][1] @ own[name][0]) if name in own else value
        for name, value in of.items()
    }


def with_adapter(of: Weights) -> Weights:
    """As PEFT wraps a model."""
    own, made = updates(of), {}
    for name, value in of.items():
        scope = f"base_model.model.{name.removesuffix('.weight')}"
        if name not in own:
            made[f"base_model.model.{name}"] = value
            continue
        made[f"{scope}.base_layer.weight"] = value
        made[f"{scope}.lora_A.default.weight"], made[f"{scope}.lora_B.default.weight"] = own[name]
    return made
