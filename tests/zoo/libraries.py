"""Trainings with the libraries that people train with, tiny and without downloads: transformers, accelerate, peft, ...

Each is a function that makes a model, lets somebody plant a fault in it, trains and returns its losses. ``PROGRAMS``
registers them by name, each with the module that a fault is planted in.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.zoo.trainings import Attach

os.environ["HF_HUB_OFFLINE"] = "1"
STEPS = 5
"""Optimizer steps of each."""
BAD = 3
"""The step in which a planted fault shows."""
WORDS, LENGTH, BATCH = 40, 8, 4

Plant = Callable[[nn.Module], object]
"""Gets the model before it is trained."""
Training = Callable[[Attach, Plant], list[float]]


@dataclass(frozen=True)
class Program:
    """A training with some libraries.

    Attributes:
        training: itself.
        libraries: what it imports.
        module: name of the module in which a fault is planted.
        calls: how often that is called in a step.
    """

    training: Training
    libraries: tuple[str, ...]
    module: str
    calls: int

    @property
    def installed(self) -> bool:
        """Tells whether the libraries are there."""
        return all(importlib.util.find_spec(each) is not None for each in self.libraries)


PROGRAMS: dict[str, Program] = {}


def program(*libraries: str, sick: str, calls: int = 1) -> Callable[[Training], Training]:
    """Registers one: see ``Program``."""

    def register(training: Training) -> Training:
        PROGRAMS[training.__name__] = Program(training, libraries, sick, calls)
        return training

    return register


def healthy(_: nn.Module) -> None:
    """Plants nothing."""


def planted(name: str, call: int) -> Plant:
    """Lets a module return NaN once: what it computes is fine, and then is divided, 0 by 0."""

    def plant(model: nn.Module) -> None:
        module = model.get_submodule(name)
        forward, calls = module.forward, iter(range(1 << 30))

        def spoilt(*args: Any, **kwargs: Any) -> Any:
            out = forward(*args, **kwargs)
            if not torch.is_grad_enabled() or next(calls) != call:
                return out
            zero = out.detach() - out.detach()
            return out + zero / zero

        module.forward = spoilt  # type: ignore[method-assign] # as people patch models

    return plant


def load_vision() -> None:
    """Makes torchvision importable, which lightning, timm and transformers import where it is installed.

    The one of PyPI is built for CUDA. Beside a PyTorch for CPUs it cannot load its operators, and its import fails
    because of two that it expects. Nothing here calls them.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        for each in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(each)
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def sentences(step: int, size: int = BATCH) -> torch.Tensor:
    """Sentences in which each word follows from the one before. 0 is no word of them: it pads."""
    start = torch.randint(0, WORDS - 1, (size, 1), generator=torch.Generator().manual_seed(step))
    return (start + 3 * torch.arange(LENGTH)) % (WORDS - 1) + 1


def images(step: int, size: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of four classes, which differ in how strong they are."""
    generator = torch.Generator().manual_seed(step)
    y = torch.randint(0, 4, (size,), generator=generator)
    return torch.randn(size, 3, 32, 32, generator=generator) * (1 + y[:, None, None, None]), y


def llama() -> Any:
    """A Llama with grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=LENGTH,
        )
    )


def loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    attach: Attach,
    loss_of: Callable[[int], torch.Tensor],
    scheduler: Any = None,
) -> list[float]:
    """The loop that people write."""
    handle = attach(model, optimizer)
    losses = []
    model.train()
    for step in range(STEPS):
        loss = loss_of(step)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    handle.detach()
    return losses


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sentences as a data set."""

    def __len__(self) -> int:
        return 10 * BATCH

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        ids = sentences(at, 1)[0]
        return {"input_ids": ids, "labels": ids}


@program("transformers", "accelerate", sick="model.layers.1.mlp", calls=2)
def trainer(attach: Attach, plant: Plant) -> list[float]:
    """transformers' Trainer: accumulation, evaluation, its callback attaches, with the optimizer that it hands out."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Attaches(TrainerCallback):  # type: ignore[misc] # its type is not known where it is not installed
        def on_train_begin(self, *_: Any, model: Any, optimizer: Any, **__: Any) -> None:
            self.handle = attach(model, optimizer)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.handle.detach()

    model = llama()
    plant(model)
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=2,
            max_steps=STEPS,
            warmup_steps=2,
            learning_rate=1e-3,
            eval_strategy="steps",
            eval_steps=2,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        found = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences(), callbacks=[Attaches()])
        found.train()
    return [each["loss"] for each in found.state.log_history if "loss" in each]


@program("transformers", sick="bert.encoder.layer.0.output.LayerNorm")
def bert_classifier(attach: Attach, plant: Plant) -> list[float]:
    """Padded sentences, a fused AdamW, warm-up."""
    from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=LENGTH,
            num_labels=3,
        )
    )
    plant(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def loss_of(step: int) -> torch.Tensor:
        ids = sentences(step)
        mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 2], [LENGTH - 3], [2]])
        return model(input_ids=ids * mask, attention_mask=mask.long(), labels=ids[:, 0] % 3).loss

    return loop(model, optimizer, attach, loss_of, get_linear_schedule_with_warmup(optimizer, 2, STEPS))


@program("transformers", sick="encoder.block.0.layer.1.DenseReluDense")
def t5(attach: Attach, plant: Plant) -> list[float]:
    """Encoder and decoder, relative positions in buckets."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=WORDS,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            relative_attention_num_buckets=8,
            decoder_start_token_id=0,
        )
    )
    plant(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return loop(model, optimizer, attach, lambda step: model(input_ids=sentences(step), labels=sentences(step)).loss)


@program("transformers", "accelerate", sick="transformer.h.1.attn.c_proj", calls=2)
def gpt2_with_accelerate(attach: Attach, plant: Plant) -> list[float]:
    """accelerate's loop: it steps every second time."""
    from accelerate import Accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=WORDS,
            n_positions=LENGTH,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    plant(model)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    handle = attach(model, optimizer)
    losses = []
    for step in range(2 * STEPS):
        with accelerator.accumulate(model):
            ids = sentences(step)
            loss = model(input_ids=ids, labels=ids).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    handle.detach()
    return losses


@program("transformers", "peft", sick="base_model.model.model.layers.0.self_attn.q_proj.lora_A.default")
def lora(attach: Attach, plant: Plant) -> list[float]:
    """Low-rank adapters of a frozen model, by peft."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(llama(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    plant(model)
    optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), lr=1e-3)
    return loop(model, optimizer, attach, lambda step: model(input_ids=sentences(step), labels=sentences(step)).loss)


def train_with_lightning(
    attach: Attach, plant: Plant, *, by_hand: bool = False, gather: int = 1, **options: Any
) -> list[float]:
    """A module of lightning, which attaches with what ``self.optimizers()`` gives.

    Args:
        attach, plant: as ever.
        by_hand: the module runs its optimizer.
        gather: batches of which the gradients are summed up for a step.
        options: of lightning's trainer.
    """
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc] # its type is not known where it is not installed
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(1800, 4)
            )
            self.automatic_optimization = not by_hand
            self.losses: list[float] = []

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def on_train_start(self) -> None:
            self.handle = attach(self, self.optimizers())

        def on_train_end(self) -> None:
            self.handle.detach()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            x, y = batch
            loss = functional.cross_entropy(self.net(x), y)
            self.losses.append(loss.item())
            if by_hand:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def validation_step(self, batch: Any, _: int) -> torch.Tensor:
            return functional.cross_entropy(self.net(batch[0]), batch[1])

    module = Module()
    plant(module)
    found = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=gather,
        **options,
    )
    data = torch.utils.data.TensorDataset(*images(0, gather * STEPS * BATCH))
    found.fit(module, *(torch.utils.data.DataLoader(data, batch_size=BATCH) for _ in range(2)))
    return module.losses


@program("lightning", sick="net.2")
def lightning_automatic(attach: Attach, plant: Plant) -> list[float]:
    """The trainer runs the training step inside the optimizer's, as a closure."""
    return train_with_lightning(attach, plant)


@program("lightning", sick="net.1")
def lightning_by_hand(attach: Attach, plant: Plant) -> list[float]:
    """The training step runs the optimizer."""
    return train_with_lightning(attach, plant, by_hand=True)


@program("lightning", sick="net.2", calls=2)
def lightning_gathering(attach: Attach, plant: Plant) -> list[float]:
    """Autocast, accumulation, clipping."""
    return train_with_lightning(attach, plant, gather=2, precision="bf16-mixed", gradient_clip_val=0.5)


def train_on_images(model: nn.Module, attach: Attach, optimizer: torch.optim.Optimizer) -> list[float]:
    """Classifies pictures."""

    def loss_of(step: int) -> torch.Tensor:
        x, y = images(step)
        return functional.cross_entropy(model(x), y)

    return loop(model, optimizer, attach, loss_of)


@program("timm", sick="blocks.1.norm2")
def vision_transformer(attach: Attach, plant: Plant) -> list[float]:
    """timm's, with an optimizer and a look-ahead of timm."""
    from timm.models.vision_transformer import VisionTransformer
    from timm.optim import create_optimizer_v2

    model = VisionTransformer(
        img_size=32, patch_size=8, num_classes=4, embed_dim=16, depth=2, num_heads=2, drop_path_rate=0.1
    )
    plant(model)
    return train_on_images(model, attach, create_optimizer_v2(model, opt="lookahead_adamw", lr=1e-3))


@program("timm", sick="layer2.0.bn1")
def resnet(attach: Attach, plant: Plant) -> list[float]:
    """timm's, with momentum."""
    from timm.models.resnet import BasicBlock, ResNet

    model = ResNet(BasicBlock, (1, 1, 1, 1), num_classes=4, stem_width=8, channels=(8, 16, 16, 16))
    plant(model)
    return train_on_images(model, attach, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
