"""What a random script on a framework is made of, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.random_loops.frameworks.catalogue import FRAMEWORKS, Framework
from tests.random_loops.plan import HOMES, INPUT_PLACES, PLANTED_US, TINY_US, Piece, Plan, draw, length_us
from tests.random_loops.works import MODEL_WORKS, SIDE_WORKS, WORKS, amount_for

#: A framework's own work between two batches, about a millisecond, is little beside these models.
_WIDTHS, _BATCHES = (256, 512), (32, 64)
#: An evaluation's piece of work takes what it would in so many steps at most.
_STEPS_OF_EVALUATION = 50
#: A logger is not given the model.
_WITHOUT_MODEL = ("metrics", "log_file", "upload")
_EVALUATED_EPOCH = 60


def draw_on(name: str, seed: int) -> Plan:
    """The plan of this seed on this framework, or on any of them: the same on every machine."""
    random = Random(f"framework {seed}")
    drawn = random.choice(sorted(FRAMEWORKS))
    name = drawn if name == "any" else name
    framework, base = FRAMEWORKS[name], draw(seed)
    plan = replace(
        base,
        shape=name,
        loop=random.choice(framework.loops),
        width=random.choice(_WIDTHS),
        batch=random.choice(_BATCHES),
        workers=random.choice((0, 0, 0, 1, 2, 3)),
        accumulate=random.choice((1, 1, 2, 4)) if framework.accumulates else 1,
        evaluate_every=random.choice((0, 0, _EVALUATED_EPOCH, 100, 200)),
        setup_s=base.setup_s / 2,
        features=frozenset(feature for feature in framework.features if random.random() < 0.35),
    )
    if "two_optimizers" in plan.features:  # its author steps them by hand, and accumulates nothing
        plan = replace(plan, accumulate=1)
    return _evaluated(_uncrowded(replace(plan, pieces=_pieces(random, plan, framework))), framework)


def _uncrowded(plan: Plan) -> Plan:
    """With no more busy threads than two cores bear: else they wait for each other, which is no part of the truth."""
    computes = any(
        piece.place in INPUT_PLACES and piece.name != "tiny" and piece.work != "remote" for piece in plan.pieces
    )
    workers = min(plan.workers, 2) if computes else plan.workers
    return replace(plan, workers=workers, threads=1 if workers else plan.threads)


def _evaluated(plan: Plan, framework: Framework) -> Plan:
    """With an evaluation where work stands in one; after each epoch where a framework knows no other way."""
    if any(piece.place == "evaluation" for piece in plan.pieces):
        plan = replace(plan, evaluate_every=plan.evaluate_every or 100)
    if plan.evaluate_every and framework.evaluates_epochs:
        return replace(plan, epoch_batches=_EVALUATED_EPOCH, evaluate_every=_EVALUATED_EPOCH)
    if plan.evaluate_every and plan.loop == "functions":  # which has none
        return replace(plan, loop="flat")
    return plan


def _pieces(random: Random, plan: Plan, framework: Framework) -> tuple[Piece, ...]:
    """Mostly one that matters, sometimes two or none, and always one too small to matter; one at a place."""
    places = [*framework.input_places, *framework.side_places, "model"]
    if plan.stream and "sampler" in places:
        places.remove("sampler")
    count = random.choice((0, 1, 1, 1, 1, 2))
    chosen = random.sample(places, count + 1)
    found = [_piece(random, f"piece_{n}", place, PLANTED_US, plan) for n, place in enumerate(chosen[:count])]
    return (*found, _piece(random, "tiny", chosen[count], TINY_US, plan))


def _piece(random: Random, name: str, place: str, span_us: tuple[float, float], plan: Plan) -> Piece:
    wanted_us, home, every = length_us(random, span_us), random.choice(HOMES), random.choice((1, 1, 5, 20))
    if place == "model":
        work = random.choice(list(MODEL_WORKS))
        return Piece(name, place, work, amount_for(MODEL_WORKS[work], wanted_us), home=home)
    if place in INPUT_PLACES:
        work = random.choice(list(WORKS))
        times = plan.batch if place in ("item", "transform") else 1
        amount = amount_for(WORKS[work], wanted_us * max(1, plan.workers) / times)
        return Piece(name, place, work, amount, home=home)
    work = random.choice(_WITHOUT_MODEL if place in ("logger", "evaluation") else list(SIDE_WORKS))
    if place == "evaluation":  # once in each
        steps = min(plan.evaluate_every or 100, _STEPS_OF_EVALUATION)
        return Piece(name, place, work, amount_for(SIDE_WORKS[work], wanted_us * steps), home=home)
    return Piece(name, place, work, amount_for(SIDE_WORKS[work], wanted_us * every), every, home)
