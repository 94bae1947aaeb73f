"""Progress in words, for title, headless lines and reports: what is not known is left out."""

from __future__ import annotations

from typing import Any

from tuimon.session.progress import Left, RunProgress
from tuimon.views.format import count, duration, flops, number, percent, plain, rate

#: From this share on, padding is named beside the rate of tokens.
_PADDING = 0.01


def position_text(progress: RunProgress) -> str:
    """``step 450 of 1 000``, ``epoch 3 of 10, batch 450 of 1 000``; as the output puts it, if it shows a place."""
    if progress.printed is not None and progress.printed.place:
        return plain(progress.printed.place)
    if progress.step is not None:
        return f"step {count(progress.step)} of {count(progress.steps)}"
    return ", ".join(filter(None, _epoch_parts(progress)))


def _epoch_parts(progress: RunProgress) -> list[str]:
    epoch, of = progress.epoch, f" of {count(progress.epochs)}" if progress.epochs is not None else ""
    if epoch is None:
        return []
    if epoch.given is None:
        return [f"{count(epoch.done)}{of} epoch{'' if epoch.done == 1 and not of else 's'} done"] if epoch.done else []
    batch = f"batch {count(epoch.given)}" + (f" of {count(epoch.length)}" if epoch.length is not None else "")
    return [f"epoch {count(epoch.done + 1)}{of}" if epoch.done is not None else "", batch]


def left_text(progress: RunProgress) -> str:
    """``~3m12s left``, by the pace of the last 30 s; nothing beside a place from the output, which has its own."""
    has_own = progress.printed is not None and progress.printed.place
    return "" if progress.left is None or has_own else _left(progress.left)


def _left(left: Left) -> str:
    return f"~{duration(left.seconds)} left" + (" in this epoch" if left.of == "epoch" else "")


def rate_texts(progress: RunProgress) -> list[str]:
    """``477 samples/s``, ``61.2k tokens/s``."""
    samples, tokens = progress.samples_per_s, progress.tokens_per_s
    return [
        *([rate(samples, "samples")] if samples is not None else []),
        *([f"{_thousands(tokens)} tokens/s"] if tokens is not None else []),
    ]


def flops_text(progress: RunProgress) -> str:
    """``38 % MFU``; without the GPU's peak ``1.25 TFLOPS``; nothing before a trace."""
    if progress.mfu_ratio is not None:
        return f"{percent(progress.mfu_ratio)} MFU"
    return f"{flops(progress.flops_per_s)}S" if progress.flops_per_s is not None else ""


def loss_text(progress: RunProgress) -> str:
    """``loss 0.31``, as printed."""
    return f"loss {plain(progress.printed.loss)}" if progress.printed is not None and progress.printed.loss else ""


def padding_text(progress: RunProgress) -> str:
    """``18 % padding``, of the positions in batches of text."""
    ratio = progress.padding_ratio
    return f"{percent(ratio)} padding" if ratio is not None and ratio >= _PADDING else ""


def _thousands(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 9.995 * size:
            return f"{number(value / size)}{unit}"
    return number(value)


def progress_json(progress: RunProgress) -> dict[str, Any]:
    """The known fields, for ``report --format json``, and the same in words."""
    epoch, left, printed = progress.epoch, progress.left, progress.printed
    known = {
        "samples_per_second": progress.samples_per_s,
        "tokens_per_second": progress.tokens_per_s,
        "ranks": progress.ranks if progress.ranks > 1 else None,
        "padding": progress.padding_ratio,
        "flops_per_second": progress.flops_per_s,
        "mfu": progress.mfu_ratio,
        "step": progress.step,
        "steps": progress.steps,
        "epochs_done": epoch.done if epoch is not None else None,
        "epochs": progress.epochs,
        "batch": epoch.given if epoch is not None else None,
        "batches": epoch.length if epoch is not None else None,
        "left_s": left.seconds if left is not None else None,
        "left_of": left.of if left is not None else None,
        "loss": printed.loss if printed is not None and printed.loss else None,
    }
    rates = rate_texts(progress)
    padding = padding_text(progress)
    if padding and progress.tokens_per_s is not None:
        rates[-1] += f" ({padding})"
    if rates and progress.ranks > 1:
        rates[-1] += f" on {count(progress.ranks)} ranks"
    parts = [position_text(progress), left_text(progress), *rates, flops_text(progress), loss_text(progress)]
    text = ", ".join(filter(None, parts))
    whole = {name: round(value, 4) if isinstance(value, float) else value for name, value in known.items()}
    return {**{name: value for name, value in whole.items() if value is not None}, **({"text": text} if text else {})}
