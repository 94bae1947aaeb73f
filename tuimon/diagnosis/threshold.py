"""A number that decides a verdict, with its source."""

from __future__ import annotations

from tuimon.session.stacks.samples import ENOUGH


class Threshold(float):
    """A float that knows what it limits and in which unit (``meaning``), and where it comes from (``source``).

    A source is a measurement in ``bench`` or ``tests/scenarios``, a public link, or our choice with what it trades.
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
    float(ENOUGH),
    "samples of a thread from which a share of them is used at all",
    "our choice: with 10 samples a share is known to within 31 points (95 %), enough to tell most from few",
)
#: Shares with the same meaning in all rules.
REPORTED = Threshold(
    0.10,
    "share of the step in one claim, from which a rule reports it",
    f"our choice between others': 5 % ({TENSORBOARD}) and 25 % ({TRACEML})",
)
#: Share of its time that the GPU may idle and still be the bottleneck: idling more is a finding of its own.
BUSY_IDLE = REPORTED
MOST = Threshold(0.5, "part of something from which it is most of it", "our choice: half, as most people would say")
NEARLY_ALL = Threshold(
    0.9, "part of something from which it is all of it", "our choice: shares of samples are hardly known better"
)
LARGE = Threshold(
    0.20,
    "part of something from which it is large",
    "our choice: a fifth, as much as the fix of a critical finding gains",
)
UNUSUAL = Threshold(
    1 / 3,
    "part from which it is unusual: of the time in the update or evaluation, or by which a clock is below its highest",
    "our choice; measured in tests/scenarios for the update: at most 0.16 in healthy runs (healthy_lbfgs) and 0.22 in"
    " others (gradient_norms), 0.74 in huge_embedding; cards for workstations reach clocks up to a quarter below",
)
SMALL = Threshold(0.05, "part of something below which it is small", "our choice: less than the fix of a warning gains")
TRACE = Threshold(
    0.01, "part of something below which it is none", "our choice: counters of GPUs come in whole percent"
)
