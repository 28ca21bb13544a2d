"""Why an operator makes NaN or Inf from finite inputs: what its inputs' statistics say about each usual reason.

Every rule answers from statistics alone, so it says what is certain (``3 of 1,024 inputs are 0: their logarithm is
-Inf``) and leaves open what only the elements themselves could tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tui_debugger.session.hazards.cases import Case, Check, are, overflow_cause
from tui_debugger.session.hazards.cause import Cause, Standing
from tui_debugger.session.hazards.domains import Domain, divide, exponential, power, reciprocal
from tui_debugger.session.hazards.magnitudes import addition, cast, matmul, product, square, total
from tui_debugger.stats.blocks import peak
from tui_debugger.text.phrases import bad_counts, finite_words, num, of_all

LIKELY, POSSIBLE, UNKNOWN, RULED_OUT = Standing


def causes(case: Case) -> tuple[Cause, ...]:
    """What speaks for and against the usual reasons of this operator; empty when no rule knows it."""
    check = _BY_NAME.get(case.name)
    if check is None and case.name.startswith(_PRODUCTS):
        check = matmul
    return tuple(check(case)) if check is not None else ()


def likely(case: Case) -> list[str]:
    """What its inputs speak for, a sentence each; empty when they explain nothing."""
    return [f"{cause.title}: {cause.evidence}" for cause in causes(case) if cause.standing is LIKELY]


# -- normalisations, losses, tables ----------------------------------------------------------------


def _normalise(case: Case) -> Iterator[Cause]:
    stats = case.stats(0)
    if stats is None or stats.variance is None:
        yield Cause("a variance of 0", "its input was not dumped", UNKNOWN)
        return
    spread = math.sqrt(stats.variance)
    if not spread:
        yield Cause(
            "a variance of 0", f"in:0 is {finite_words(stats)}, so nothing but epsilon stays below the line", LIKELY
        )
    elif case.out.bad and case.limits is not None and case.limits.largest < 1e5:
        size = peak(stats) or 0.0
        yield overflow_cause(case.limits, size * size, f"{num(size)} squared, on the way to the variance,", "square")
    else:
        yield Cause(
            "a group with a variance of 0",
            f"in:0 as a whole spreads by {num(spread)}; a constant row or channel in it would give 0/0 without epsilon",
            POSSIBLE,
        )


def _softmax(case: Case) -> Iterator[Cause]:
    stats = case.stats(0)
    if stats is None:
        yield Cause("a row that is masked as a whole", "its input was not dumped", UNKNOWN)
    elif stats.neg_inf:
        yield Cause(
            "a row that is masked as a whole",
            f"{of_all(stats.neg_inf, stats.count)} of in:0 {are(stats.neg_inf)} -Inf: a row of nothing else has no "
            "probabilities, only NaN",
            LIKELY,
        )
    elif not stats.bad:
        yield Cause(
            "logits that overflow",
            f"in:0 is {finite_words(stats)}, which the maximum that is subtracted first keeps harmless",
            RULED_OUT,
        )


def _entropy(case: Case) -> Iterator[Cause]:
    logits, labels = case.stats(0), case.stats(1)
    meta = next((row.meta for row in case.inputs if row.slot == 0), None)
    if labels is not None and labels.maximum is not None and meta is not None and meta.shape:
        classes = meta.shape[-1]
        wrong = labels.maximum >= classes or (labels.minimum or 0) < 0
        words = f"the labels in:1 are {finite_words(labels)}, the logits have {classes:,} classes"
        yield Cause("a label that is no class", words, LIKELY if wrong else RULED_OUT)
    if logits is not None and not logits.bad:
        yield Cause("extreme logits", f"in:0 is {finite_words(logits)}", POSSIBLE)


def _binary_entropy(case: Case) -> Iterator[Cause]:
    stats = case.stats(0)
    if stats is None or stats.minimum is None or stats.maximum is None:
        yield Cause("a probability of exactly 0 or 1", "the predictions, in:0, were not dumped", UNKNOWN)
        return
    outside = stats.minimum < 0 or stats.maximum > 1
    ends = stats.zero > 0 or stats.maximum == 1
    words = f"the predictions in:0 are {finite_words(stats)}, {of_all(stats.zero, stats.count)} {are(stats.zero)} 0"
    if outside:
        yield Cause("predictions that are no probabilities", words, LIKELY)
    yield Cause(
        "a probability of exactly 0 or 1",
        f"{words}; the loss takes the logarithm of p and of 1 - p",
        LIKELY if ends else RULED_OUT,
    )


def _lookup(case: Case) -> Iterator[Cause]:
    table, indices = case.inputs[0].meta if case.inputs else None, case.stats(1)
    if table is None or not table.shape or indices is None or indices.maximum is None:
        yield Cause("an index outside the table", "the table or the indices were not dumped", UNKNOWN)
        return
    wrong = indices.maximum >= table.shape[0] or (indices.minimum or 0) < 0
    words = f"the indices in:1 are {finite_words(indices)}, the table in:0 has {table.shape[0]:,} rows"
    yield Cause("an index outside the table", words, LIKELY if wrong else RULED_OUT)


def untold(case: Case) -> Cause:
    """What is left to say when no rule knows the operator and its inputs are finite."""
    tops = [f"in:{row.slot} {finite_words(row.stats)}" for row in case.inputs if row.stats is not None]
    return Cause(
        "the operator itself, or its kernel",
        f"its inputs are finite ({'; '.join(tops[:4])}), yet it made {bad_counts(case.out)}; no rule for the type "
        f"{case.type} says why",
        POSSIBLE,
    )


_RULES: Final[tuple[tuple[str, Check], ...]] = (
    ("log log2 log10 loge ln", Domain("the logarithm", zero="-Inf", negative="NaN")),
    ("log1p", Domain("log(1 + x)", low=-1.0, open_ends=True)),
    ("sqrt", Domain("the square root", negative="NaN")),
    ("rsqrt", Domain("1/√x", zero="Inf", negative="NaN")),
    ("sqrtgrad", Domain("1/(2·√x)", zero="Inf")),
    ("rsqrtgrad", Domain("the gradient of 1/√x", zero="Inf")),
    ("reciprocal inv reciprocalgrad invgrad", reciprocal),
    ("acos asin", Domain("the inverse of sine and cosine", low=-1.0, high=1.0)),
    ("acosh", Domain("the inverse of cosh", low=1.0)),
    ("atanh erfinv", Domain("this function", low=-1.0, high=1.0, open_ends=True)),
    ("div realdiv truediv divide floordiv truncatediv mod floormod fmod remainder", divide),
    ("exp expm1 exp2 sinh cosh", exponential),
    ("pow power", power),
    ("mul multiply", product),
    ("square l2loss", square),
    ("mm bmm linear dense addmm batchmatmul", matmul),
    ("reducesum sum sumd reducemean mean cumsum", total),
    ("add addn sub biasadd subtract addext", addition),
    ("cast to tocopy", cast),
    ("layernorm batchnorm batchnormgrad rmsnorm instancenorm groupnorm l2normalize", _normalise),
    ("softmax logsoftmax maskedsoftmax scaledmaskedsoftmax", _softmax),
    ("sparsesoftmaxcrossentropywithlogits crossentropyloss nllloss softmaxcrossentropywithlogits", _entropy),
    ("binarycrossentropy bceloss", _binary_entropy),
    ("gather embedding embeddinglookup", _lookup),
)
_PRODUCTS: Final = ("matmul", "conv")
"""Beginnings of the types of matrix products and convolutions, of which vendors have many, fused with what follows."""
_BY_NAME: Final[dict[str, Check]] = {name: check for names, check in _RULES for name in names.split()}
