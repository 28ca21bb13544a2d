"""Trainings as people write them, tiny: healthy ones, and ones that are sick in one known way.

Each is a function that attaches by one line and trains. ``HEALTHY`` and ``SICK`` register them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tui_debugger.torch as tdbg
from tui_debugger.live.client.judging import EXCUSED

Attach = Callable[..., tdbg.Handle]
"""``tdbg.attach`` with the address of a debugger: takes the model and its optimizers."""
Training = Callable[[Attach], None]
HEALTHY: dict[str, Training] = {}
SICK: dict[str, Sick] = {}
STEPS = 16
"""Optimizer steps of most of them."""
FEATURES, CLASSES, BATCH = 8, 4, 16


@dataclass(frozen=True)
class Sick:
    """A training, and what has to be said of it.

    Attributes:
        training: itself.
        condition: what holds first on ``nodes``, and at that step on no others.
        nodes: those.
        step: the step in which that is.
        why: how the first cause begins that Explain gives for each of them.
        origin: they are marked as where NaN or Inf began; others have them, too.
        alone: nothing else is ever found in the whole training.
    """

    training: Training
    condition: str
    nodes: tuple[str, ...]
    step: int
    why: str
    origin: bool
    alone: bool


def healthy(training: Training) -> Training:
    """Registers one in which there is nothing to find."""
    HEALTHY[training.__name__] = training
    return training


def sick(
    condition: str,
    *nodes: str,
    step: int,
    why: str = "",
    origin: bool = False,
    alone: bool = False,
) -> Callable[[Training], Training]:
    """Registers one in which there is: see ``Sick``."""

    def register(training: Training) -> Training:
        SICK[training.__name__] = Sick(training, condition, nodes, step, why, origin, alone)
        return training

    return register


def points(step: int, size: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of points and their classes: which of the first features is the largest."""
    x = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(step))
    return x, x[:, :CLASSES].argmax(1)


def perceptron(activation: Callable[[], nn.Module] = nn.ReLU, width: int = 16) -> nn.Sequential:
    """Three layers."""
    return nn.Sequential(
        nn.Linear(FEATURES, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, CLASSES)
    )


def classify(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    attach: Attach,
    *,
    steps: int = STEPS,
    schedule: Callable[[int], float] | None = None,
    batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]] = points,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
) -> None:
    """The ordinary loop."""
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule) if schedule is not None else None
    handle = attach(model, optimizer)
    for step in range(steps):
        x, y = batch(step)
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    handle.detach()


def warm_up(steps: int, total: int = STEPS) -> Callable[[int], float]:
    """From 0 up, then down to 0 again, as in fine-tunes of language models."""
    return lambda step: step / steps if step < steps else max(0.0, (total - step) / (total - steps))


# -- a language model -------------------------------------------------------------------------------


WIDTH, HEADS, WORDS, LENGTH = 16, 2, 40, 8


class Attention(nn.Module):
    """GPT-2's: one matrix for queries, keys and values, a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("bias", torch.ones(LENGTH, LENGTH).tril().bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, length, _ = x.shape
        parts = self.c_attn(x).split(WIDTH, dim=2)
        query, key, value = (part.view(size, length, HEADS, -1).transpose(1, 2) for part in parts)
        scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
        scores = scores.masked_fill(~self.bias[:length, :length], torch.finfo(scores.dtype).min)
        mixed = self.dropout(scores.softmax(-1)) @ value
        return self.c_proj(mixed.transpose(1, 2).reshape(size, length, WIDTH))


class Block(nn.Module):
    """Attention and a feed-forward layer around residual sums."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token and position embeddings, blocks, a head that shares the token embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(WORDS, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList([Block(), Block()])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.apply(self._initialise)
        self.lm_head.weight = self.wte.weight

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def words(step: int, size: int = 4) -> torch.Tensor:
    """Sentences in which each word follows from the one before."""
    start = torch.randint(0, WORDS, (size, 1), generator=torch.Generator().manual_seed(step))
    return (start + 3 * torch.arange(LENGTH)) % WORDS


def next_word(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """How badly each next word was told."""
    return functional.cross_entropy(out[:, :-1].reshape(-1, WORDS).float(), ids[:, 1:].reshape(-1))


def decayed(model: nn.Module, decay: float = 0.01) -> list[dict[str, Any]]:
    """Parameters in two groups: biases and normalisations are not decayed."""
    plain = [each for name, each in model.named_parameters() if each.ndim < 2 or name.endswith("bias")]
    others = [each for each in model.parameters() if all(each is not one for one in plain)]
    return [{"params": others, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


def train_language(
    model: nn.Module,
    attach: Attach,
    *,
    rate: float,
    warm: int,
    steps: int = STEPS,
    gather: int = 1,
    evaluate: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """What ``transformers.Trainer`` does: warm-up and decay, clipping, accumulation, evaluation in between."""
    optimizer = optimizer or torch.optim.AdamW(decayed(model), lr=rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up(warm, steps))
    handle = attach(model, optimizer)
    model.train()
    for step in range(steps):
        for part in range(gather):
            ids = words(gather * step + part)
            (next_word(model(ids), ids) / gather).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        model.zero_grad()
        if evaluate and step % evaluate == evaluate - 1:
            model.eval()
            with torch.no_grad():
                for part in range(2):
                    next_word(model(words(1000 + part)), words(1000 + part))
            model.train()
    handle.detach()


# -- healthy ---------------------------------------------------------------------------------------


@healthy
def sgd(attach: Attach) -> None:
    model = perceptron()
    classify(model, torch.optim.SGD(model.parameters(), lr=0.1), attach)


@healthy
def momentum_and_decay(attach: Attach) -> None:
    model = perceptron(nn.Tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    classify(model, optimizer, attach, schedule=lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS)))


@healthy
def adam(attach: Attach) -> None:
    model = perceptron(nn.Sigmoid)
    classify(model, torch.optim.Adam(model.parameters(), lr=1e-3), attach, steps=30)


@healthy
def fine_tune(attach: Attach) -> None:
    """AdamW at 2e-5, with a warm-up from 0: the first step changes nothing at all, the next ones hardly anything."""
    train_language(GPT(), attach, rate=2e-5, warm=4)


@healthy
def long_warm_up(attach: Attach) -> None:
    """So slow a warm-up that the first steps are lost in the rounding of the gains, which are 1."""
    model = GPT()
    optimizer = torch.optim.AdamW(decayed(model), lr=2e-5)
    train_language(model, attach, rate=2e-5, warm=1000, steps=6, optimizer=optimizer)


@healthy
def trainer(attach: Attach) -> None:
    """As transformers.Trainer: accumulation, clipping, warm-up, evaluation without gradients."""
    train_language(GPT(), attach, rate=5e-4, warm=3, gather=2, evaluate=4)


@healthy
def lstm(attach: Attach) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(WORDS, WIDTH, padding_idx=0)
            self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(2 * WIDTH, WORDS)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            out, _ = self.lstm(self.embedding(ids))
            return self.head(out)

    model = Tagger()
    classify(
        model,
        torch.optim.Adam(model.parameters(), lr=1e-2),
        attach,
        batch=lambda step: (words(step), words(step)),
        loss_of=next_word,
    )


class Experts(nn.Module):
    """Each row goes to one of several experts; ``dense``: one without rows runs on none, else it does not run."""

    def __init__(self, *, dense: bool, shut: int = -1) -> None:
        super().__init__()
        self.gate = nn.Linear(FEATURES, 5)
        self.experts = nn.ModuleList([nn.Linear(FEATURES, 8) for _ in range(5)])
        self.head = nn.Linear(8, CLASSES)
        self.dense = dense
        self.shut = shut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x)
        if self.shut >= 0:
            scores = scores - 1e4 * functional.one_hot(torch.tensor(self.shut), 5)
        weight, chosen = scores.softmax(-1).max(-1)
        out = torch.zeros(len(x), 8)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            if len(rows) or self.dense:
                out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
        return self.head(torch.relu(out))


def few(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """So few rows that some experts have none."""
    return points(step, 4)


@healthy
def switched_experts(attach: Attach) -> None:
    model = Experts(dense=False)
    classify(model, torch.optim.SGD(model.parameters(), lr=0.05), attach, batch=few, steps=24)


@healthy
def dense_experts(attach: Attach) -> None:
    """As in transformers' Mixtral: an expert without tokens runs on an empty batch, and its gradients are zeros."""
    model = Experts(dense=True)
    classify(model, torch.optim.SGD(model.parameters(), lr=0.05), attach, batch=few, steps=24)


@healthy
def experts_with_adam(attach: Attach) -> None:
    model = Experts(dense=False)
    classify(model, torch.optim.AdamW(model.parameters(), lr=1e-2), attach, batch=few)


@healthy
def autocast(attach: Attach) -> None:
    model = GPT()
    optimizer = torch.optim.AdamW(decayed(model), lr=1e-3)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        ids = words(step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_word(model(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    handle.detach()


class Half(nn.Module):
    """A linear layer that computes in float16, as autocast does on a GPU: what is too large becomes Inf."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.half(), self.weight.half())


def half_perceptron() -> nn.Sequential:
    """Parameters in float32, products in float16."""
    return nn.Sequential(Half(FEATURES, 16), nn.ReLU(), Half(16, 16), nn.ReLU(), Half(16, CLASSES))


def scaled(
    attach: Attach, scaler: torch.amp.GradScaler, *, fused: bool = False, steps: int = STEPS, factor: float = 1.0
) -> None:
    """Mixed precision with a GradScaler."""
    model = half_perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused)
    handle = attach(model, optimizer)
    for step in range(steps):
        x, y = points(step)
        loss = functional.cross_entropy(model(x).float(), y) * factor
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    handle.detach()


@healthy
def grad_scaler(attach: Attach) -> None:
    """The scale begins too high, so that the first steps are left out, as it does by default."""
    scaled(attach, torch.amp.GradScaler("cpu", init_scale=2.0**24))


@healthy
def grad_scaler_fused(attach: Attach) -> None:
    """The optimizer itself leaves the steps out."""
    scaled(attach, torch.amp.GradScaler("cpu", init_scale=2.0**24), fused=True)


@healthy
def accumulation(attach: Attach) -> None:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = attach(model, optimizer)
    for step in range(STEPS):
        for part in range(4):
            x, y = points(4 * step + part)
            (functional.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    handle.detach()


@healthy
def frozen_on_purpose(attach: Attach) -> None:
    """Only the head is trained; the optimizer got everything all the same."""
    model = perceptron()
    for parameter in model[:4].parameters():
        parameter.requires_grad_(False)
    classify(model, torch.optim.AdamW(model.parameters(), lr=1e-2), attach)


class Adapted(nn.Module):
    """A frozen matrix and a low-rank change of it, which begins at 0."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.requires_grad_(False)
        self.lora_A = nn.Linear(inputs, 2, bias=False)
        self.lora_B = nn.Linear(2, outputs, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2 * self.lora_B(self.lora_A(x))


@healthy
def low_rank_adapters(attach: Attach) -> None:
    """LoRA: one of its two matrices is 0 at first, so that the other one has no gradient in the first step."""
    model = nn.Sequential(Adapted(FEATURES, 16), nn.ReLU(), Adapted(16, CLASSES))
    trained = [each for each in model.parameters() if each.requires_grad]
    classify(model, torch.optim.AdamW(trained, lr=1e-3), attach, schedule=warm_up(4))


@healthy
def convolutions(attach: Attach) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )

    def images(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(step)
        y = torch.randint(0, CLASSES, (8,), generator=generator)
        return torch.randn(8, 1, 8, 8, generator=generator) * (1 + y[:, None, None, None]), y

    classify(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), attach, batch=images)


@healthy
def gan(attach: Attach) -> None:
    """Two networks that are trained in turn, the discriminator frozen while the generator learns."""
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, FEATURES), nn.Tanh())
    discriminator = nn.Sequential(nn.Linear(FEATURES, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    both = nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    makes = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    tells = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    handle = attach(both, [tells, makes])
    for step in range(STEPS):
        real = torch.tanh(points(step)[0])
        fake = generator(torch.randn(BATCH, 4))
        discriminator.requires_grad_(True)
        tells.zero_grad()
        loss = (
            functional.softplus(-discriminator(real)).mean() + functional.softplus(discriminator(fake.detach())).mean()
        )
        loss.backward()
        tells.step()
        discriminator.requires_grad_(False)
        makes.zero_grad()
        functional.softplus(-discriminator(fake)).mean().backward()
        makes.step()
    handle.detach()


# -- sick ------------------------------------------------------------------------------------------


class Applied(nn.Module):
    """A function as a module, so that it has a name."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Log(Applied):
    """log."""


class Normalise(Applied):
    """x / |x|."""


class Exp(Applied):
    """exp."""


def spoiled_at(bad: int, spoil: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[int], Any]:
    """Batches of which one is special."""

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = points(step)
        return (spoil(x) if step == bad else x), y

    return batch


NORMS = ("h.0.ln_1.weight", "h.0.ln_2.weight", "h.1.ln_1.weight", "h.1.ln_2.weight", "ln_f.weight")
GRADIENTS = tuple(f"Gradients/{layer}/weight" for layer in (0, 2, 4))
BAD = 5
"""The step at which something goes wrong in those in which it goes wrong at once."""


@sick("tensor_overflow", "1/Log", step=BAD, why="the logarithm of 0", origin=True)
def log_of_zero(attach: Attach) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8, bias=False), Log(lambda x: x.abs().log()), nn.Linear(8, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    classify(model, optimizer, attach, batch=spoiled_at(BAD, torch.zeros_like), steps=10)


@sick("tensor_overflow", "0/Normalise", step=BAD, origin=True)
def zero_by_zero(attach: Attach) -> None:
    model = nn.Sequential(Normalise(lambda x: x / x.norm(dim=1, keepdim=True)), perceptron())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def spoil(x: torch.Tensor) -> torch.Tensor:
        x[3] = 0
        return x

    classify(model, optimizer, attach, batch=spoiled_at(BAD, spoil), steps=10)


@sick("tensor_overflow", "1/Exp", step=BAD, why="an exponent that is too large", origin=True)
def exp_overflow(attach: Attach) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8), Exp(torch.exp), nn.Linear(8, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    classify(model, optimizer, attach, batch=spoiled_at(BAD, lambda x: 1000 * x), steps=10)


@sick("tensor_overflow", "0/Half", step=BAD, origin=True)
def half_overflow(attach: Attach) -> None:
    """A product beyond 65504, in float16."""
    model = half_perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    classify(
        model,
        optimizer,
        attach,
        batch=spoiled_at(BAD, lambda x: 2e4 * x),
        loss_of=lambda out, y: functional.cross_entropy(out.float(), y),
        steps=10,
    )


@sick("weight_change_too_large", "step.weight", "head.weight", step=0, why="the gradient is too large")
def exploding_gradients(attach: Attach) -> None:
    """A recurrence whose matrix makes everything larger."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Linear(FEATURES, FEATURES, bias=False)
            self.head = nn.Linear(FEATURES, CLASSES)
            nn.init.eye_(self.step.weight)
            self.step.weight.data *= 4

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                x = self.step(x)
            return self.head(x)

    model = Recurrent()
    classify(model, torch.optim.SGD(model.parameters(), lr=0.01), attach, steps=10)


@sick("gradient_vanishing", *(f"Gradients/{n}/weight" for n in range(0, 16, 2)), step=2, why="it came in small")
def vanishing_gradients(attach: Attach) -> None:
    """Twenty sigmoids one behind the other."""
    layers: list[nn.Module] = []
    for _ in range(20):
        layers += [nn.Linear(FEATURES, FEATURES), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))
    classify(model, torch.optim.SGD(model.parameters(), lr=0.1), attach, steps=10)


@sick("activation_range", "3/ReLU", step=0, why="the units are dead")
def dead_relu(attach: Attach) -> None:
    model = perceptron()
    model[2].bias.data -= 100
    classify(model, torch.optim.SGD(model.parameters(), lr=0.1), attach, steps=10)


@sick("activation_range", "3/Tanh", step=0, why="its argument is too large")
def saturated_tanh(attach: Attach) -> None:
    model = perceptron(nn.Tanh)
    model[2].weight.data *= 1e7
    classify(model, torch.optim.SGD(model.parameters(), lr=0.1), attach, steps=10)


@sick("weight_not_changed", "body.weight", step=2, why="no gradient reaches the weight", alone=True)
def detached(attach: Attach) -> None:
    """Frozen by mistake: no gradient gets behind the detach."""

    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(FEATURES, 16)
            self.head = nn.Linear(16, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.body(x)).detach())

    model = Detached()
    classify(model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0), attach)


@sick("weight_not_changed", "4.weight", step=2, why="no optimizer updates the weight", alone=True)
def forgotten_group(attach: Attach) -> None:
    """The optimizer was made before the last layer was replaced."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model[4] = nn.Linear(16, CLASSES)
    classify(model, optimizer, attach)


@sick("weight_not_changed", *NORMS, step=2, why="no optimizer updates the weight", alone=True)
def forgotten_norms(attach: Attach) -> None:
    """Only the group with weight decay was given to the optimizer: no LayerNorm is trained."""
    model = GPT()
    train_language(model, attach, rate=1e-3, warm=1, optimizer=torch.optim.AdamW(decayed(model)[:1], lr=1e-3))


@sick(
    "weight_not_changed",
    "0.weight",
    "2.weight",
    "4.weight",
    step=2,
    why="the learning rate is too low: the optimizer",
    alone=True,
)
def rate_of_zero(attach: Attach) -> None:
    model = perceptron()
    classify(model, torch.optim.AdamW(model.parameters(), lr=0.0), attach)


@sick("weight_not_changed", "4.weight", step=2, why="the learning rate is too low: the optimizer", alone=True)
def group_with_a_rate_of_zero(attach: Attach) -> None:
    model = perceptron()
    groups = [{"params": model[:4].parameters()}, {"params": model[4].parameters(), "lr": 0.0}]
    classify(model, torch.optim.SGD(groups, lr=0.1), attach)


@sick("weight_change_too_large", "0.weight", "2.weight", "4.weight", step=0, why="the learning rate is too high")
def rate_of_a_thousand(attach: Attach) -> None:
    model = perceptron(nn.Tanh)
    classify(model, torch.optim.SGD(model.parameters(), lr=1e3), attach, steps=10)


@sick("weight_change_too_large", "0.weight", "2.weight", "4.weight", step=0, why="the learning rate is too high")
def rate_of_a_thousand_with_adam(attach: Attach) -> None:
    model = perceptron()
    classify(model, torch.optim.Adam(model.parameters(), lr=1e3), attach, steps=10)


@sick("weight_not_changed", "0.weight", "2.weight", "4.weight", step=2, why="it is initialised with 0")
def zero_weights(attach: Attach) -> None:
    model = perceptron()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    classify(model, torch.optim.SGD(model.parameters(), lr=0.1), attach, steps=10)


@sick("tensor_overflow", "Gradients/4/HalfGrad", step=EXCUSED - 1, why="the loss scale is too large", origin=True)
def scale_too_large(attach: Attach) -> None:
    """The scale hardly comes down: every step is left out."""
    scaled(attach, torch.amp.GradScaler("cpu", init_scale=2.0**100, backoff_factor=0.9), steps=40)


@sick("tensor_overflow", "Gradients/4/HalfGrad", step=EXCUSED - 1, why="the loss scale is too large", origin=True)
def scale_too_large_fused(attach: Attach) -> None:
    scaled(attach, torch.amp.GradScaler("cpu", init_scale=2.0**100, backoff_factor=0.9), fused=True, steps=40)


@sick("gradient_vanishing", *GRADIENTS, step=2, why="it falls below the range of float16")
def scale_too_small(attach: Attach) -> None:
    """Gradients in float16 become 0."""
    scaled(attach, torch.amp.GradScaler("cpu", enabled=False), factor=1e-9)


@sick("tensor_overflow", "inputs.input", step=BAD, origin=True)
def nan_batch(attach: Attach) -> None:
    model = perceptron()

    def spoil(x: torch.Tensor) -> torch.Tensor:
        x[2, 3] = math.nan
        return x

    classify(model, torch.optim.Adam(model.parameters(), lr=1e-2), attach, batch=spoiled_at(BAD, spoil), steps=10)


@sick("weight_not_changed", *NORMS, step=2, why="the step is lost in the rounding of bfloat16", alone=True)
def lost_in_rounding(attach: Attach) -> None:
    """Weights in bfloat16 at 2e-5: what is 1 never moves."""
    model = GPT().bfloat16()
    classify(
        model,
        torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0),
        attach,
        batch=lambda step: (words(step), words(step)),
        loss_of=next_word,
        steps=10,
    )


@sick("weight_not_changed", "experts.4.weight", step=EXCUSED - 1, why="no gradient reaches the weight", alone=True)
def forgotten_expert(attach: Attach) -> None:
    """One expert never gets anything; others have nothing in some steps."""
    model = Experts(dense=False, shut=4)
    classify(model, torch.optim.SGD(model.parameters(), lr=0.05), attach, batch=few, steps=24)
