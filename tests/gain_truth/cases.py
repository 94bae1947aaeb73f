"""Training scripts whose fixes can be tried: random loops that need little of a core, so that times can be compared."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.random_loops.plan import INPUT_PLACES, Piece, Plan, draw
from tests.random_loops.works import SIDE_WORKS, WORKS

#: Of the models and of the pieces of work, so many wait: their times are the same on a busy machine.
_WAITING = 0.7
#: Of the loops that have no piece of work that matters, so many get one.
_FILLED = 0.8
_LONGEST_STEPS_OF_SIDE_WORK = 5
_BATCHES_OF_EVALUATION = 20


def case(seed: int) -> Plan:
    """The loop of this seed with a small model and no set-up, much of its work waiting, and mostly some work in it."""
    plan, random = draw(seed), Random(f"gain {seed}")
    plan = replace(plan, model="waiting" if random.random() < _WAITING else "mlp", width=64, threads=1)
    pieces = [_calmed(piece, random) for piece in plan.pieces]
    if not any(piece.name != "tiny" for piece in pieces) and random.random() < _FILLED and plan.shape != "by_hand":
        pieces.append(Piece("piece_0", random.choice(INPUT_PLACES[:2]), "remote", random.choice((2, 4, 8))))
    return replace(
        plan,
        setup="nothing",
        setup_s=0.0,
        pieces=tuple(pieces),
        evaluate_every=_BATCHES_OF_EVALUATION if plan.evaluate_every else 0,
    )


def _calmed(piece: Piece, random: Random) -> Piece:
    every = min(piece.every, _LONGEST_STEPS_OF_SIDE_WORK)
    amount = max(1, piece.amount * every // piece.every)
    if piece.name == "tiny" or random.random() >= _WAITING or piece.place == "model":
        return replace(piece, every=every, amount=amount)
    works, waiting = (SIDE_WORKS, "upload") if piece.place == "step_end" else (WORKS, "remote")
    length_us = amount * works[piece.work].unit_us
    return replace(piece, work=waiting, amount=max(1, round(length_us / works[waiting].unit_us)), every=every)
