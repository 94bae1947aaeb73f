"""How far a run has come, and its samples and tokens a second, as its loaders, its program and its output say."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.records import Printed
from tuimon.session.rows import EpochRow, LoaderRow, StepSummary
from tuimon.session.session import Session, SessionView
from tuimon.session.step_sizes import Rates


class Left(NamedTuple):
    """An estimate by the pace of the last 30 s."""

    seconds: float
    of: Literal["run", "epoch"]


class RunProgress(Struct, frozen=True, gc=False):
    """The progress of one process; None where it is unknown."""

    samples_per_s: float | None = None
    tokens_per_s: float | None = None  # without padding, where a mask shows it
    padding_ratio: float | None = None  # 0..1 of the positions in batches of text
    step: int | None = None  # with ``steps``, those that its Trainer makes in all
    steps: int | None = None
    epoch: EpochRow | None = None  # of its training loader, if it has one
    epochs: int | None = None  # that its Trainer makes in all
    left: Left | None = None
    printed: Printed | None = None


class _Loader(NamedTuple):
    """A training loader, and how many batches the loop takes from it in a second."""

    row: LoaderRow
    per_s: float | None


def run_progress(session: Session, pid: int) -> RunProgress:
    """Over the last 30 s, or over the run once that has ended."""
    run = session.shown()
    steps, process, told = run.steps(pid), session.process(pid), session.step_sizes(pid)
    loaders = _training_loaders(run, pid, steps)
    rates = _rates(
        loaders, told.rates(steps.per_second if steps is not None else None, whole_run=session.exit is not None)
    )
    planned = process.planned_steps if process is not None else None
    done = steps.total if steps is not None and planned is not None and steps.total <= planned else None
    epochs = process.planned_epochs if process is not None else None
    epoch = _epoch(session, loaders)
    left = None
    if session.exit is None and done is not None and planned is not None and steps is not None and steps.per_second:
        left = Left((planned - done) / steps.per_second, "run")
    elif session.exit is None and epoch is not None:
        left = _left(epoch, epochs, loaders[0].per_s)
    return RunProgress(
        samples_per_s=rates.samples,
        tokens_per_s=rates.tokens,
        padding_ratio=_padding_ratio(loaders),
        step=done,
        steps=planned if done is not None else None,
        epoch=epoch,
        epochs=epochs if epoch is not None and epoch.done is not None and epoch.done <= (epochs or 0) else None,
        left=left,
        printed=session.printed,
    )


def _training_loaders(run: SessionView, pid: int, steps: StepSummary | None) -> list[_Loader]:
    """Batches of a step are counted over the whole run: the pace of the loader alone leaves out evaluation."""
    per_s = steps.per_second / steps.total if steps is not None and steps.per_second and steps.total else None
    rows = [row for row in run.loader_figures(pid) if row.latest.role == "train" and row.fetches]
    return [_Loader(row, None if per_s is None else row.fetches * per_s) for row in rows]


def _epoch(session: Session, loaders: list[_Loader]) -> EpochRow | None:
    """The epoch of the only training loader; None of several. Nobody counted epochs before tuimon came."""
    epoch = loaders[0].row.epoch if len(loaders) == 1 else None
    if epoch is not None and (epoch.given or 0) > (epoch.length or 0):  # its data set has grown
        epoch = epoch._replace(length=None)
    if epoch is None or session.header is None or session.header.mode == "run":
        return epoch
    return epoch._replace(done=None)


def _left(epoch: EpochRow, epochs: int | None, batches_per_s: float | None) -> Left | None:
    if epoch.given is None or epoch.length is None or not batches_per_s:
        return None
    if epochs is not None and epoch.done is not None and epoch.done < epochs:
        return Left(((epochs - epoch.done) * epoch.length - epoch.given) / batches_per_s, "run")
    return Left((epoch.length - epoch.given) / batches_per_s, "epoch")


def _rates(loaders: list[_Loader], told: Rates) -> Rates:
    """As the program tells them, else of all batches that training loaders give; None where some are unknown."""
    samples: list[float | None] = []
    tokens: list[float | None] = []
    for row, per_s in loaders:
        batches, text = row.batches, None
        size = row.facts.batch_size or (batches.mean_samples if batches is not None else None)
        if batches is not None and batches.tokens is not None:
            text = (batches.tokens - (batches.padding or 0)) / batches.count
        samples.append(None if not size or per_s is None else size * per_s)
        tokens.append(None if text is None or per_s is None else text * per_s)
    return Rates(
        _sum(samples) if told.samples is None else told.samples, _sum(tokens) if told.tokens is None else told.tokens
    )


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def _padding_ratio(loaders: list[_Loader]) -> float | None:
    batches = loaders[0].row.batches if len(loaders) == 1 else None
    if batches is None or not batches.tokens or batches.padding is None:
        return None
    return batches.padding / batches.tokens
