"""Operators that write, pass on and absorb infinities, by ``categories.plain_type``: **the** table of these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class ResultRule(Enum):
    """How an operator comes to its result."""

    MOVES = auto()
    """It puts elements in other places."""
    WEAKENS = auto()
    """It computes, and never makes an Inf of what is finite."""
    COMPUTES = auto()
    """It computes: an Inf may be its own work."""


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of an operator that can put out an Inf without having made it."""

    passed: tuple[int, ...] | None  # input slots whose elements it passes on; None: all of them
    written: tuple[int, ...] = ()  # input slots that hold the values to write
    work: ResultRule = ResultRule.MOVES  # what it does with the elements that it passes on


def _table(*rows: tuple[str, Operands]) -> dict[str, Operands]:
    return {name: operands for names, operands in rows for name in names.split()}


def kinds_of(names: str) -> frozenset[str]:
    return frozenset(names.split())


_RESHAPING: Final = """
    reshape view unsafeview viewas flatten unflatten squeeze unsqueeze expanddims transpose permute t movedim swapaxes
    swapdims contiguous clone identity depend load tensormove alias detach expand expandas broadcastto repeat tile tiled
    repeatinterleave flip roll transposeview reshapeview transposeext lift sort copy copys inplacecopy
"""
"""What puts every element somewhere."""
_PICKING: Final = """
    slice sliceext stridedslice narrow narrowview index indexselect selectview selectextview gather gatherd gatherv2
    gathernd chunk chunkview split splitv splitwithsizes splitwithsizescopy unbind unstack triu tril splittensor getitem
    splittensorview splitwithsize masked maskedselect take takealongdim diagonal diagonalview embedding unfold asstrided
"""
"""What puts some elements somewhere."""
_JOINING: Final = """
    concat cat concatd concatv2 stack stackext pack tensorscatterupdate scatterupdate slicescatter selectscatter
    diagonalscatter asstridedscatter scatterndupdate tensorscatterelements scatterelements scatternd indexcopy indexput
    indexputimpl indexputwithsort put maskedscatter inplaceindexcopy inplaceindexput inplaceput
"""
_DIFFERENCES: Final = "sub subext subtract subs subscalar isub"
_SUMS: Final = f"add addv2 addext addn adds addscalar iadd {_DIFFERENCES}"
_SUMS_WITH_PRODUCTS: Final = "baddbmm addbmm addmm addmv addr"
_INTEGERS: Final = "long int short byte bool"
_CASTS: Final = f"cast castext to tocopy typeas type float half double bfloat16 {_INTEGERS}"
_SCALINGS: Final = "mul muls multiply div realdiv divs divide truedivide imul"
_MASKING: Final = """
    setitem maskedfill maskedfilltensor maskedfillscalar
    inplacemaskedfill inplacemaskedfillscalar inplacemaskedfilltensor
"""
_CHOOSING: Final = "topk topkv2 topkext"
_WEAKENING: Final = f"""
    logsoftmax logsoftmaxv2 logsoftmaxext logsumexp logaddexp logaddexp2 logcumsumexp logsigmoid {_CHOOSING}
    max amax reducemax maximum argmaxwithvalue cummax cummaxhelper
    min amin reducemin minimum argminwithvalue cummin cumminhelper clamp clampmin clampmax clip clipbyvalue
    maxpool maxpool1d maxpool2d maxpool3d maxpoolwithargmax maxpoolwithargmaxv2 maxpoolwithmask maxpoolwithindices
    maxpool2dwithindices maxpool3dwithindices adaptivemaxpool1d adaptivemaxpool2d adaptivemaxpool3d
"""
SELECTS: Final = kinds_of("select selectv2 where selectext")
OPERATORS: Final = _table(
    (_MASKING, Operands((0,), (2,))),
    ("fill fillscalar filltensor", Operands((), (2,))),
    ("fillv2 fills full fulllike newfull inplacefillscalar inplacefilltensor", Operands((), (1,))),
    ("scalartensor scalartotensor liftfresh tensor", Operands((), (0,))),
    ("constantpad constantpad1d constantpad2d constantpad3d constantpadnd pad padv3", Operands((0,), (2,))),
    ("filldiagonal", Operands((0,), (1,))),
    ("indexfill indexfillscalar indexfilltensor inplaceindexfill", Operands((0,), (3,))),
    ("scatter scatterv2 scattervalue inplacescatter inplacescattersrc inplacescattervalue", Operands((0,), (3,))),
    (" ".join(SELECTS), Operands((1, 2), (1, 2))),
    (f"{_RESHAPING} {_PICKING}", Operands((0,))),
    (_JOINING, Operands(None)),
    (f"{_CASTS}", Operands((0,), work=ResultRule.COMPUTES)),
    (f"{_SUMS} {_SCALINGS} neg", Operands(None, work=ResultRule.COMPUTES)),
    (_SUMS_WITH_PRODUCTS, Operands((0,), work=ResultRule.COMPUTES)),
    (_WEAKENING, Operands(None, work=ResultRule.WEAKENS)),
    ("scatterreduce indexreduce", Operands((0, 3), work=ResultRule.WEAKENS)),
)
"""By plain type, MindSpore's names and PyTorch's: what writes values that it is given, and what passes elements on."""
ADDS: Final = kinds_of(_SUMS)
SUBTRACTS: Final = kinds_of(_DIFFERENCES)
SUMS_WITH_PRODUCTS: Final = kinds_of(_SUMS_WITH_PRODUCTS)
"""Operators that add a product of their other inputs to the first one, which may be a mask."""
CONVERTS: Final = kinds_of(_CASTS)
BOUNDED: Final = ADDS | CONVERTS
"""Operators with a result that is at most as large as the sum of the inputs."""
PRODUCTS: Final = kinds_of("mul muls multiply imul")
MOVES: Final = kinds_of(f"{_RESHAPING} {_PICKING} {_CASTS} embedding")
"""What makes no NaN of its own: it only moves elements, or converts them."""
PICKS: Final = kinds_of(_PICKING)
_OVERWRITING: Final = f"""
    {_MASKING} nantonum zero fill fillscalar filltensor inplacefillscalar inplacefilltensor copy copys inplacecopy
"""
OVERWRITES: Final = kinds_of(_OVERWRITING)
"""Operators that put other values in the place of some elements."""
_SHOWING: Final = """
    reshape view unsafeview viewas flatten unflatten squeeze unsqueeze expanddims transpose permute t movedim swapaxes
    swapdims alias detach expand expandas broadcastto slice sliceext stridedslice narrow selectview chunk split
    splitwithsizes unbind unstack diagonal unfold asstrided transposeview reshapeview
"""
VIEWS: Final = kinds_of(_SHOWING)
"""Operators that may show elements of a tensor without a copy."""
_TOTALS: Final = """
    neg abs square mul muls multiply imul mean reducemean sum reducesum cumsum std var
    mm matmul bmm mv dot linear dense smoothl1loss mseloss l1loss huberloss
"""
PASSES_ON: Final = kinds_of(f"{_RESHAPING} {_SUMS} {_TOTALS}") - OVERWRITES
"""Operators that are bad wherever an input is."""
MEASURES: Final = kinds_of("""
    smoothl1loss mseloss l1loss huberloss cdist kldiv binarycrossentropy binarycrossentropywithlogits
    bcewithlogitsloss sigmoidcrossentropywithlogits
""")
"""Operators that measure how far predictions are from labels: an Inf in either is a fault of the data."""
COPIES: Final = kinds_of("clone contiguous copy copys inplacecopy")
"""Operators that copy a tensor and keep its values."""
MAKES_NUMBERS: Final = kinds_of("zeros ones arange eye tri linspace")
"""Operators that make numbers of nothing."""
CHOOSES: Final = kinds_of(_CHOOSING)
"""Operators that take the greatest elements of many, and masked ones where there are too few others."""
NOTHING: Final = "nothing"
"""Stands for the operator types that absorb what nothing reads."""
FRESH: Final = kinds_of("liftfresh tensor")
"""Operators that make a tensor of numbers of the program, which may be data."""
POLES: Final = kinds_of("""
    log log2 log10 log1p logit xlogy atanh arctanh div realdiv divs divide truedivide reciprocal inv rsqrt pow
    power divnonan ctcloss
""")
"""Operators that put out an Inf of finite elements where their function has a pole."""
KEEPS_SCRATCH: Final = frozenset({"ctcloss"})
"""Operators that keep numbers for their own backward pass of which nothing can be said."""
WEIGHS: Final = re.compile(
    r".*softmax.*|.*attention.*|logsumexp(function)?|logaddexp2?|logcumsumexp|.*crossentropy.*|ctcloss.*"
)
"""Operators that give elements of -Inf no weight: what masks are made for.

Our client for PyTorch names several functions together by what weighs masks among them, as ``LogSoftmaxFunction``.
"""
QUERIES: Final = re.compile(r".*(dotproduct|flash|fus|multihead).*attention.*")
"""Attention that reads queries, keys and values before its masks; others read one input of data."""
ABSORBS: Final = re.compile(
    r"exp[12m]*|sigmoid|tanh|relu6?|hardtanh|clip.*|clamp.*|minimum|maximum|max|min|a?max|a?min|reducemax|reducemin"
    r"|argmax.*|argmin.*|topk.*|sort|argsort|equal|notequal|eq|ne|less|lessequal|lt|le|greater|greaterequal|gt|ge"
    r"|isfinite|isinf|isneginf|isnan|sign|multinomial|select|selectv2|selectext|where|.*maxpool.*|cumm(ax|in).*"
    r"|elu|selu|celu|softplus.*|hardsigmoid|erf|atan|arctan|reciprocal|rsqrt|searchsorted|bucketize|nllloss.*|"
    + "|".join(OVERWRITES)
)
"""Other operators that may well make an Inf finite that was written for them."""
READS_NO_VALUES: Final = kinds_of("shape tensorshape dynshape rank size print assert")
"""Operators that read the shape or the size of a tensor, and not its values."""
LIKE: Final = re.compile(r"(zeros|ones|full|empty|rand|randn|randint)like|new(zeros|ones|full|empty)")
"""Operators that read the shape and the element type of a tensor alone."""
REPEATS: Final = kinds_of("""
    expand expandas broadcastto repeat tile tiled repeatinterleave index indexselect gather gatherd gatherv2
    gathernd take takealongdim embedding unfold asstrided getitem copy copys inplacecopy put inplaceput
    inplaceindexput indexput indexputimpl indexputwithsort tensorscatterupdate slicescatter selectscatter
""")
"""Operators that can put out an element more often than they got it."""
JOINS: Final = SELECTS | ADDS | SUMS_WITH_PRODUCTS
"""Operators that lay a mask over something."""
SOFTENS: Final = re.compile(
    r"(?!.*(grad|backward|crossentropy)).*(softmax|attention).*|exp|logsumexp|logaddexp2?|argmax.*|topk.*"
)
"""Operators with an input to which programs add a mask, such as softmax."""
_EQUALS: Final = kinds_of("equal notequal eq ne isinf isneginf isposinf isnan isfinite")
COMPARES: Final = _EQUALS | kinds_of("lt le gt ge less lessequal greater greaterequal")
"""Operators that say of every element whether something holds: what is selected by that is another operator's work."""
LOGIC: Final = kinds_of("logicalnot logicaland logicalor logicalxor bitwisenot bitwiseand bitwiseor")
"""Operators that say so of what others said."""
LOGARITHMS: Final = kinds_of("log log2 log10")
"""Operators that make a mask of True and False."""
TELLS_NOTHING: Final = READS_NO_VALUES | _EQUALS | kinds_of("reducemax amax max argmaxwithvalue")
"""Operators that read masks as well as other data: the maximum is that of a softmax made of several operators."""
LEAVES_OUT: Final = kinds_of("nansum nanmean nanmedian nanquantile fmax fmin isclose allclose")
"""Operators that leave out elements that are NaN, beside those that select elements or write others over them."""
DECIDES: Final = re.compile(
    r"arg(max|min).*|topk.*|sort|argsort|searchsorted|bucketize|multinomial|sign|histc|bincount"
)
"""Operators with a result that may be finite although they read a NaN, which then decided something."""
INTEGER_WORK: Final = (
    SELECTS
    | ADDS
    | PRODUCTS
    | CONVERTS
    | kinds_of(f"{_RESHAPING} neg abs min minimum max maximum clamp clampmin clampmax clip floordiv")
)
"""What is done with integers before some of them are selected."""
