"""Calls of PyTorch for every kind of operator that is recomputed, with random values and sizes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as fn

from tests.diagnose.recompute.recording import Call

UNARY = (
    *("neg", "abs", "exp", "expm1", "exp2", "square", "sin", "cos", "tanh", "sinh", "cosh", "atan", "erf", "erfc"),
    *("sigmoid", "relu", "floor", "ceil", "round", "trunc", "sign", "isnan", "isfinite"),
)
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")
ACTIVATIONS = (
    *("relu6", "silu", "mish", "logsigmoid", "hardsigmoid", "hardswish", "softsign", "tanhshrink", "softplus"),
    *("leaky_relu", "elu", "selu", "celu", "hardtanh", "softshrink", "gelu"),
)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Cases:
    """Draws the calls.

    Args:
        seed: of the random numbers.
        dtype: of the tensors.
        scale: of their values.
        turned: matrices lie in memory by columns.
        size: about how long dimensions are.
    """

    def __init__(
        self, seed: int, dtype: torch.dtype, scale: float = 1.0, *, turned: bool = False, size: int = 6
    ) -> None:
        self._random = torch.Generator().manual_seed(seed)
        self._dtype, self._scale, self._turned, self._size = dtype, scale, turned, size

    def tensor(self, *shape: int, scale: float | None = None) -> torch.Tensor:
        if self._turned and len(shape) > 1:
            shape = (*shape[:-2], shape[-1], shape[-2])
        found = torch.randn(shape, generator=self._random) * (self._scale if scale is None else scale)
        found = found.to(self._dtype)
        return found.transpose(-1, -2) if self._turned and len(shape) > 1 else found

    def integers(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, below, shape, generator=self._random)

    def number(self, low: int = 1, high: int = 0) -> int:
        return int(torch.randint(low, (high or self._size) + 1, (), generator=self._random))

    def all(self) -> Iterator[Call]:
        """One call of everything."""
        for part in (self.elementwise, self.two, self.products, self.reductions, self.layout):
            yield from part()
        if self._dtype is not torch.float64:
            yield from self.norms_and_losses()

    def elementwise(self) -> Iterator[Call]:
        x = self.tensor(self.number(), self.number(), self.number())
        for name in UNARY:
            yield Call(f"Torch.{name}", getattr(torch, name), (x,))
        for name in POSITIVE:
            yield Call(f"Torch.{name}", getattr(torch, name), (x.abs() + 0.01,))
        for name in ACTIVATIONS:
            yield Call(f"Functional.{name}", getattr(fn, name), (x,))
        yield Call("Functional.gelu", fn.gelu, (x,), {"approximate": "tanh"})
        yield Call("Functional.softplus", fn.softplus, (x, 2.0, 1.0))
        yield Call("Functional.leaky_relu", fn.leaky_relu, (x, 0.2))
        yield Call("Functional.elu", fn.elu, (x, 0.7))
        yield Call("Functional.threshold", fn.threshold, (x, 0.1, -2.0))
        yield Call("Functional.prelu", fn.prelu, (x, self.tensor(x.shape[1])))
        even = self.tensor(3, 2 * self.number())
        yield Call("Functional.glu", fn.glu, (even,))
        yield Call("Torch.clamp", torch.clamp, (x, -0.5, 0.7))
        yield Call("Tensor.clamp", torch.clamp, (x,), {"min": 0.25})
        yield Call("Functional.relu", fn.relu, (x, False))
        yield Call("Functional.hardtanh", fn.hardtanh, (x, -0.3, 0.4, False))
        yield Call("Functional.dropout", fn.dropout, (x, 0.3, True, False))
        yield Call("Functional.dropout", fn.dropout, (x, 0.3, False))

    def two(self) -> Iterator[Call]:
        x, y = self.tensor(4, self.number(), 5), self.tensor(4, 1, 5)
        for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
            yield Call(f"Torch.{name}", getattr(torch, name), (x, y))
        for name in ("__add__", "__sub__", "__mul__", "__truediv__", "__radd__", "__rsub__", "__rmul__"):
            yield Call(f"Tensor.{name}", getattr(torch.Tensor, name), (x, 0.1))
        yield Call("Tensor.__rtruediv__", torch.Tensor.__rtruediv__, (x.abs() + 0.1, 0.3))
        yield Call("Torch.add", torch.add, (x, y), {"alpha": 0.3})
        yield Call("Torch.pow", torch.pow, (x, 2))
        yield Call("Tensor.__pow__", torch.Tensor.__pow__, (x.abs() + 0.1, 0.7))
        yield Call("Torch.pow", torch.pow, (x.abs() + 0.1, y))
        for name in COMPARISONS:
            yield Call(f"Torch.{name}", getattr(torch, name), (x, x.flip(0)))
            yield Call(f"Tensor.__{name}__", getattr(torch.Tensor, f"__{name}__"), (x, 0.1))
        yield Call("Torch.where", torch.where, (x > 0, x, y))
        yield Call("Tensor.where", torch.Tensor.where, (x, x > 0, y))
        yield Call("Tensor.masked_fill", torch.Tensor.masked_fill, (x, y > 0, float("-inf")))
        yield Call("Torch.addcmul", torch.addcmul, (x, y, y), {"value": 0.5})
        yield Call("Torch.addcdiv", torch.addcdiv, (x, y, y.abs() + 0.5), {"value": 0.5})
        yield Call("Torch.lerp", torch.lerp, (x, y.expand_as(x).contiguous(), 0.3))
        whole = self.integers(50, 4, 5)
        for name in ("add", "sub", "mul", "maximum"):
            yield Call(f"Torch.{name}", getattr(torch, name), (whole, 3 if name != "maximum" else whole.flip(0)))

    def products(self) -> Iterator[Call]:
        rows, inner, out = self.number(), self.number(1, 40), self.number()
        x, weight, bias = self.tensor(2, rows, inner), self.tensor(out, inner), self.tensor(out)
        yield Call("Functional.linear", fn.linear, (x, weight, bias))
        yield Call("Functional.linear", fn.linear, (x, weight))
        yield Call(
            "Module.a.b.Linear", lambda x: fn.linear(x, weight, bias), (x,), module={"weight": weight, "bias": bias}
        )
        yield Call("Torch.matmul", torch.matmul, (x, weight.T))
        yield Call("Tensor.__matmul__", torch.Tensor.__matmul__, (x, x.transpose(-1, -2)))
        yield Call("Torch.mm", torch.mm, (x[0], weight.T))
        yield Call("Torch.bmm", torch.bmm, (x, x.transpose(-1, -2)))
        yield Call("Torch.mv", torch.mv, (x[0], weight[0]))
        yield Call("Torch.dot", torch.dot, (weight[0], weight[-1]))
        yield Call("Torch.outer", torch.outer, (weight[0], bias))
        yield Call("Torch.addmm", torch.addmm, (bias, x[0], weight.T), {"alpha": 0.5, "beta": 2.0})
        yield Call("Torch.baddbmm", torch.baddbmm, (self.tensor(2, rows, rows), x, x.transpose(-1, -2)))
        yield Call("Torch.einsum", torch.einsum, ("bik,jk->bij", x, weight))
        groups = self.number(1, 2)
        maps, kernel = self.tensor(2, 2 * groups, 9, 8), self.tensor(3 * groups, 2, 3, 2)
        for stride, padding, dilation in ((1, 0, 1), (2, 1, 1), ((1, 2), (2, 1), (2, 1)), (1, "same", 1)):
            args = (maps, kernel, self.tensor(3 * groups), stride, padding, dilation, groups)
            yield Call("Functional.conv2d", fn.conv2d, args)
        yield Call("Functional.conv1d", fn.conv1d, (maps[:, :, 0], kernel[:, :, 0], None, 1, 1, 1, groups))
        cube = self.tensor(1, 2, 4, 5, 4)
        yield Call("Functional.conv3d", fn.conv3d, (cube, self.tensor(3, 2, 2, 2, 3)), {"padding": 1})
        yield from self.attentions()

    def attentions(self) -> Iterator[Call]:
        steps, width = self.number(2), 8
        q, k, v = (self.tensor(2, 4, steps, width) for _ in range(3))
        name, attend = "Functional.scaled_dot_product_attention", fn.scaled_dot_product_attention
        yield Call(name, attend, (q, k, v))
        yield Call(name, attend, (q, k, v), {"is_causal": True})
        yield Call(name, attend, (q, k, v, self.tensor(steps, steps)), {"scale": 0.2})
        yield Call(name, attend, (q, k, v, torch.tril(torch.ones(steps, steps, dtype=torch.bool))))
        yield Call(name, attend, (q, k[:, :2], v[:, :2]), {"enable_gqa": True})

    def reductions(self) -> Iterator[Call]:
        x = self.tensor(3, self.number(2), self.number(2))
        yield Call("Torch.sum", torch.sum, (x,))
        yield Call("Tensor.sum", torch.Tensor.sum, (x, (1, 2)))
        yield Call("Tensor.sum", torch.Tensor.sum, (x,), {"dim": 1, "keepdim": True})
        yield Call("Torch.mean", torch.mean, (x, -1))
        yield Call("Torch.prod", torch.prod, (x, 1))
        yield Call("Torch.cumsum", torch.cumsum, (x, 1))
        for name in ("max", "min"):
            yield Call(f"Torch.{name}", getattr(torch, name), (x,))
            yield Call(f"Torch.{name}", getattr(torch, name), (x, 1))
        yield Call("Torch.argmax", torch.argmax, (x, -1))
        yield Call("Torch.argmax", torch.argmax, (x.sign(),), {"dim": 1})
        yield Call("Torch.amax", torch.amax, (x, (0, 1)))
        yield Call("Torch.amin", torch.amin, (x, -1, True))
        yield Call("Torch.var", torch.var, (x, 1))
        yield Call("Torch.std", torch.std, (x,), {"dim": (0, 1), "correction": 0})
        yield Call("Torch.norm", torch.norm, (x,))
        yield Call("Tensor.norm", torch.Tensor.norm, (x, 2, -1))
        yield Call("Torch.softmax", torch.softmax, (x, -1))
        yield Call("Functional.softmax", fn.softmax, (x,), {"dim": 1})
        yield Call("Torch.log_softmax", torch.log_softmax, (x, 1))
        yield Call("Torch.logsumexp", torch.logsumexp, (x, 1))
        far = x + 30 * self._scale
        yield Call("Torch.var", torch.var, (far, 1))
        yield Call("Torch.softmax", torch.softmax, (far, -1))

    def norms_and_losses(self) -> Iterator[Call]:
        width = self.number(2, 12)
        x, gain, shift = self.tensor(4, 5, width), self.tensor(width), self.tensor(width)
        yield Call("Functional.layer_norm", fn.layer_norm, (x, (width,), gain, shift, 1e-5))
        yield Call("Functional.layer_norm", fn.layer_norm, (x + 10 * self._scale, (5, width)))
        yield Call("Functional.rms_norm", fn.rms_norm, (x, (width,), gain, 1e-6))
        maps = self.tensor(3, 4, 5, 2)
        four = [self.tensor(4) for _ in range(4)]
        yield Call("Functional.group_norm", fn.group_norm, (maps, 2, four[0], four[1]))
        args = (maps, four[2], four[3].abs() + 0.5, four[0], four[1])
        yield Call("Functional.batch_norm", fn.batch_norm, (*args, False, 0.1, 1e-5))
        yield Call("Functional.batch_norm", fn.batch_norm, (maps, None, None, four[0], four[1], True, 0.1, 1e-5))
        logits, target = self.tensor(6, 7), self.integers(7, 6)
        target[0] = -100
        yield Call("Functional.cross_entropy", fn.cross_entropy, (logits, target))
        weight = self.tensor(7).abs() + 0.1
        for more in ({"weight": weight}, {"label_smoothing": 0.1}, {"reduction": "sum"}, {"reduction": "none"}):
            yield Call("Functional.cross_entropy", fn.cross_entropy, (logits, target), more)
        yield Call("Functional.nll_loss", fn.nll_loss, (logits.log_softmax(1), target, weight))
        other = self.tensor(6, 7)
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss"):
            yield Call(f"Functional.{name}", getattr(fn, name), (logits, other))
        chance = other.sigmoid()
        yield Call("Functional.binary_cross_entropy", fn.binary_cross_entropy, (logits.sigmoid(), chance))
        logits_loss = fn.binary_cross_entropy_with_logits
        yield Call("Functional.binary_cross_entropy_with_logits", logits_loss, (logits, chance))

    def layout(self) -> Iterator[Call]:
        x, table = self.tensor(4, 6, 5), self.tensor(11, 3)
        index = self.integers(11, 2, 5)
        yield Call("Functional.embedding", fn.embedding, (index, table, None, None, 2.0, False, False))
        yield Call("Torch.gather", torch.gather, (x, 1, self.integers(6, 3, 4, 2)))
        yield Call("Torch.index_select", torch.index_select, (x, 2, self.integers(5, 3)))
        yield Call("Tensor.__getitem__", torch.Tensor.__getitem__, (x, (slice(1, None), 2, slice(0, 4, 2))))
        yield Call("Tensor.__getitem__", torch.Tensor.__getitem__, (x, 1))
        yield Call("Tensor.reshape", torch.Tensor.reshape, (x, 8, -1))
        yield Call("Tensor.view", torch.Tensor.view, (x.contiguous(), (24, 5)))
        yield Call("Torch.flatten", torch.flatten, (x, 1))
        yield Call("Tensor.permute", torch.Tensor.permute, (x, 2, 0, 1))
        yield Call("Tensor.transpose", torch.Tensor.transpose, (x, 0, -1))
        yield Call("Tensor.t", torch.Tensor.t, (table,))
        yield Call("Tensor.unsqueeze", torch.Tensor.unsqueeze, (x, 1))
        yield Call("Tensor.squeeze", torch.Tensor.squeeze, (x[:1],))
        yield Call("Torch.cat", torch.cat, ([x, x.flip(0)], 1))
        yield Call("Torch.stack", torch.stack, ([x, x.flip(0)],), {"dim": 2})
        yield Call("Torch.split", torch.split, (x, 4, 1))
        yield Call("Torch.split", torch.split, (x, [1, 2, 3], 1))
        yield Call("Torch.chunk", torch.chunk, (x, 3, 1))
        yield Call("Tensor.unbind", torch.Tensor.unbind, (x, 1))
        yield Call("Tensor.expand", torch.Tensor.expand, (x[:1], 3, -1, -1))
        yield Call("Tensor.repeat", torch.Tensor.repeat, (x, 2, 1, 3))
        yield Call("Tensor.contiguous", torch.Tensor.contiguous, (x,))
        yield Call("Tensor.to", torch.Tensor.to, (x, torch.float16))
        yield Call("Tensor.float", torch.Tensor.float, (x,))
        yield Call("Torch.tril", torch.tril, (x,))
        yield Call("Torch.triu", torch.triu, (x, 1))
        yield Call("Torch.flip", torch.flip, (x, (0, 2)))
        yield Call("Torch.roll", torch.roll, (x, 2, 1))
        yield Call("Torch.zeros_like", torch.zeros_like, (x,))
        yield Call("Functional.max_pool2d", fn.max_pool2d, (x[None], 2, 2))
