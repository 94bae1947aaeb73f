"""A number that decides a verdict, and where it comes from."""

from __future__ import annotations


class Threshold(float):
    """A float that knows what it limits and in which unit (``meaning``) and where it comes from (``source``).

    A source is a measurement in ``bench`` or ``tests/scenarios``, a public link, or our choice with what it trades.
    """

    __slots__ = ("meaning", "source")
    meaning: str
    source: str

    def __new__(cls, value: float, meaning: str, source: str) -> Threshold:
        """Behaves as ``value`` in every comparison and sum."""
        self = super().__new__(cls, value)
        self.meaning = meaning
        self.source = source
        return self


#: Public sources that several thresholds share.
TENSORBOARD = (
    "PyTorch's TensorBoard plugin:"
    " https://github.com/pytorch/kineto/blob/main/tb_plugin/torch_tb_profiler/profiler/data.py"
)
TRACEML = "TraceML's step-time diagnosis: https://github.com/traceopt-ai/traceml"
