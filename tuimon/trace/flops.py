"""Floating-point operations of the steps of a trace, if all of them can be counted."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tuimon.records import TracedFlops
from tuimon.trace.events import Events, Kind, Stretch
from tuimon.trace.gpu import Gpu
from tuimon.trace.products import Product

#: Parts of the names of kernels that multiply, of cuBLAS, CUTLASS, cuDNN, FlashAttention and torch.compile.
_MULTIPLY = ("gemm", "nvjet", "cutlass", "xmma", "scudnn", "winograd", "flash", "fmha", "sdpa", "triton_tem")


def flops_of(
    products: Iterable[Product], events: Events, span: Stretch, gpus: Sequence[Gpu]
) -> list[TracedFlops] | None:
    """By kind and type, most first; None where not all is known: no shapes, or kernels that multiply on their own.

    Those are of CUDA graphs, of torch.compile, or of other libraries.
    """
    outer = _outermost(product for product in products if span.begin_ns <= product.begin_ns < span.end_ns)
    sums: Counter[tuple[str, str]] = Counter()
    for own in outer.values():
        for product in own:
            if product.flops is None:
                return None
            sums[product.kind, product.dtype] += product.flops
    if not sums or any(_multiplies_alone(events, gpu, outer) for gpu in gpus):
        return None
    return [TracedFlops(kind, dtype, flops) for (kind, dtype), flops in sums.most_common() if flops]


def _outermost(products: Iterable[Product]) -> dict[int, list[Product]]:
    """Of each thread those that lie in no other: some operators are made of others that are counted."""
    found: dict[int, list[Product]] = defaultdict(list)
    for product in sorted(products, key=lambda each: (each.begin_ns, -each.end_ns)):
        own = found[product.track]
        if not own or product.begin_ns >= own[-1].end_ns:
            own.append(product)
    return found


def _multiplies_alone(events: Events, gpu: Gpu, outer: dict[int, list[Product]]) -> bool:
    """True if a kernel multiplies that none of the operators has launched."""
    begins = {track: [product.begin_ns for product in own] for track, own in outer.items()}
    for work in gpu.works:
        name = events.name_of(work).lower()
        if events.kind[work] != Kind.KERNEL or not any(part in name for part in _MULTIPLY):
            continue
        launch = gpu.launches.get(events.correlation[work])
        if launch is None:
            return True
        track, moment_ns = events.track[launch.call], events.begin_ns[launch.call]
        at = bisect_right(begins.get(track, []), moment_ns) - 1
        if at < 0 or moment_ns >= outer[track][at].end_ns:
            return True
    return False
