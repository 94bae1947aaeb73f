"""The floating-point operations of one operator, by the shapes of its inputs: two for each product of two numbers.

Matrix products, convolutions, recurrent layers and attention count, forward and backward; everything else is small in
comparison. The backward pass of attention counts as twice its forward pass, even if its kernel computes scores again.
The other formulas are those of ``torch.utils.flop_counter``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import msgspec

from tuimon.trace.events import RawArgs

_Shape = list[int]
#: More than any operator needs: a larger number is damaged.
_MOST = 2**60
#: Types by kineto's names; other names are of C++ types such as ``c10::BFloat16``.
_TYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "c10::Float8_e4m3fn": "float8",
    "c10::Float8_e5m2": "float8",
}


class Product(NamedTuple):
    """An operator that multiplies; ``flops`` is None if its shapes do not determine the number."""

    begin_ns: int
    end_ns: int
    track: int
    kind: str
    dtype: str
    flops: int | None


class _Inputs(NamedTuple):
    """The inputs of an operator: the sizes of tensors, ``[]`` for other inputs, and the other inputs as text."""

    sizes: list[list[int | list[int]]]
    texts: list[str]

    def shape(self, index: int) -> _Shape:
        """The shape of a tensor. Raises ValueError if the input is not a tensor."""
        sizes = [size for size in self.sizes[index] if isinstance(size, int)]
        if not sizes or len(sizes) < len(self.sizes[index]):
            raise ValueError("no tensor")
        return sizes

    def numbers(self, index: int) -> list[int]:
        """The numbers of a list such as ``[2, 2]``."""
        return msgspec.json.decode(self.texts[index], type=list[int])


def _matrices(first: int) -> Callable[[_Inputs], int]:
    """For inputs ``first`` and the next: two matrices, batches of both, or one for groups of the other's rows."""

    def flops(inputs: _Inputs) -> int:
        a, b = inputs.shape(first), inputs.shape(first + 1)
        batch = a[0] if len(a) == len(b) == 3 else 1
        return 2 * batch * a[-2] * a[-1] * b[-1]

    return flops


def _convolution(inputs: _Inputs) -> int:
    """``convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)``."""
    sizes, weight = inputs.shape(0), inputs.shape(1)
    places = sizes[2:]
    if inputs.texts[6] != "True":
        stride, pad, gap = (n * len(places) if len(n) == 1 else n for n in map(inputs.numbers, (3, 4, 5)))
        steps = zip(places, weight[2:], stride, pad, gap, strict=True)
        places = [(size + 2 * pad - gap * (width - 1) - 1) // stride + 1 for size, width, stride, pad, gap in steps]
    return 2 * sizes[0] * prod(weight) * prod(places)


def _convolution_backward(inputs: _Inputs) -> int:
    """``convolution_backward(grad_output, input, weight, ..., transposed, output_padding, groups, output_mask)``."""
    weight = inputs.shape(2)
    sizes = inputs.shape(1 if inputs.texts[7] == "True" else 0)
    gradients = inputs.texts[10].strip("[]").split(", ")[:2].count("True")  # of input and weight
    return gradients * 2 * sizes[0] * prod(weight) * prod(sizes[2:])


def _attention(first: int, times: int) -> Callable[[_Inputs], int]:
    """For query, key and value from input ``first`` on, ``[batch, heads, length, width]``; a mask saves nothing."""

    def flops(inputs: _Inputs) -> int:
        query, key, value = (inputs.shape(first + i) for i in range(3))
        return times * 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])

    return flops


def _cudnn_rnn(times: int) -> Callable[[_Inputs], int]:
    """``_cudnn_rnn(input, weights, ...)``: each matrix in the weights multiplies each element of the sequences."""

    def flops(inputs: _Inputs) -> int:
        matrices = [weight for weight in inputs.sizes[1] if isinstance(weight, list) and len(weight) == 2]
        if not matrices:
            raise ValueError("no weights")
        return times * 2 * prod(inputs.shape(0)[:-1]) * sum(map(prod, matrices))

    return flops


def _mkldnn_rnn(times: int) -> Callable[[_Inputs], int]:
    """``mkldnn_rnn_layer(input, weight_ih, weight_hh, ...)``: one layer in one direction."""

    def flops(inputs: _Inputs) -> int:
        return times * 2 * prod(inputs.shape(0)[:-1]) * sum(prod(inputs.shape(i)) for i in (1, 2))

    return flops


_FLOPS: dict[str, tuple[str, Callable[[_Inputs], int]]] = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"), ("product", _matrices(0))),
    **dict.fromkeys(("addmm", "baddbmm", "_addmm_activation"), ("product", _matrices(1))),
    **dict.fromkeys(("convolution", "_convolution"), ("convolution", _convolution)),
    "convolution_backward": ("convolution", _convolution_backward),
    "_cudnn_rnn": ("recurrent", _cudnn_rnn(1)),
    "_cudnn_rnn_backward": ("recurrent", _cudnn_rnn(2)),
    "mkldnn_rnn_layer": ("recurrent", _mkldnn_rnn(1)),
    "mkldnn_rnn_layer_backward": ("recurrent", _mkldnn_rnn(2)),
}
for _kernel in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention"):
    _FLOPS[f"_scaled_dot_product_{_kernel}"] = "attention", _attention(0, 1)
    _FLOPS[f"_scaled_dot_product_{_kernel}_backward"] = "attention", _attention(1, 2)


def product_of(name: object, args: RawArgs, begin_ns: int, end_ns: int, track: int) -> Product | None:
    """The operator, if it multiplies; else None."""
    found = _FLOPS.get(name.removeprefix("aten::")) if isinstance(name, str) else None
    if found is None:
        return None
    kind, formula = found
    dtype, flops = "", None
    try:
        types = msgspec.json.decode(args.types, type=list[str])
        inputs = _Inputs(
            msgspec.json.decode(args.sizes, type=list[list[int | list[int]]]),
            msgspec.json.decode(args.values, type=list[str]) if args.values else [],
        )
        dtype = _TYPES.get(types[0], types[0].removeprefix("c10::"))[:20]
        flops = formula(inputs)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError, IndexError, ZeroDivisionError):
        flops = None
    return Product(begin_ns, end_ns, track, kind, dtype, flops if flops is not None and 0 <= flops < _MOST else None)
