"""A number that decides a verdict, with its source."""

from __future__ import annotations


class Threshold(float):
    """A float with its meaning (the quantity that it limits, and the unit) and its source.

    A source is a measurement in ``bench`` or ``tests/scenarios``, a public link, or our choice with its trade-off.
    """

    __slots__ = ("meaning", "source")
    meaning: str
    source: str

    def __new__(cls, value: float, meaning: str, source: str) -> Threshold:
        """Make a float that compares and adds like ``value``."""
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
MIN_SAMPLES = Threshold(
    10.0,
    "least samples of a thread from which a share is computed",
    "our choice: with 10 samples a share is known to within 31 points (95 %), enough to tell most from few",
)
#: Shares with the same meaning in all rules.
REPORTED = Threshold(
    0.10,
    "least share of the step that a rule reports",
    f"our choice, between 5 % ({TENSORBOARD}) and 25 % ({TRACEML})",
)
#: Share of its time that the GPU may idle and still be the bottleneck: idling more is a finding of its own.
BUSY_IDLE = REPORTED
MOST = Threshold(0.5, "least part that counts as most", "our choice: half, the usual meaning")
NEARLY_ALL = Threshold(0.9, "least part that counts as all", "our choice: shares of samples are seldom more exact")
LARGE = Threshold(
    0.20,
    "least part that counts as large",
    "our choice: a fifth, as much as the fix of a critical finding gains",
)
UNUSUAL = Threshold(
    1 / 3,
    "least part that counts as unusual: time spent in the update or in evaluation, or how far a clock is below its"
    " maximum",
    "our choice; measured in tests/scenarios for the update: at most 0.16 in healthy runs (healthy_lbfgs) and 0.22 in"
    " others (gradient_norms), 0.74 in huge_embedding; workstation cards run up to a quarter below their maximum clock",
)
SMALL = Threshold(
    0.05, "part below which something counts as small", "our choice: less than the fix of a warning gains"
)
TINY = Threshold(
    0.01, "part below which something counts as absent", "our choice: counters of GPUs come in whole percent"
)
LARGER = Threshold(
    1.5,
    "times another figure from which a figure is clearly larger, such as a standstill than the longest step so far",
    "our choice: half as much again",
)
HOLD_S = Threshold(
    3.0,
    "seconds for which another first finding must hold before it is shown, and the first one as probable; and after the"
    " first step, for which a slow start may be the verdict",
    "our choice: three windows, and time to read a line; less would follow single windows",
)
