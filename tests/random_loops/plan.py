"""What a random training script is made of, drawn from a seed."""

from dataclasses import dataclass, field, replace
from random import Random

from tests.random_loops.works import MODEL_WORKS, SIDE_WORKS, WORKS, amount_for

SHAPES = ("flat", "functions", "trainer", "endless", "closure", "by_hand", "two_models")
MODELS = ("mlp", "conv", "transformer", "recurrent")
OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop")
SETUPS = ("nothing", "tokenise", "slow_import", "download", "statistics", "look_at_data")
#: Where a piece of work may stand.
INPUT_PLACES = ("item", "transform", "collate", "sampler")
#: Of a script with nothing to complain of: pieces take this little of a millisecond, or there are none.
TINY_US = (5.0, 60.0)
PLANTED_US = (1_500.0, 60_000.0)
#: Of the loops, so many have work in their model, too.
_IN_MODEL = 0.3
#: A machine for tests has two cores: more workers than these only share them.
_WORKERS = (0, 0, 0, 1, 1, 2, 2, 4)


#: Models of healthy loops and their depths: with this width and batch a step of each takes 30 to 50 ms on one core, its
#: batch about one.
_HEALTHY_MODELS = {"mlp": 24, "transformer": 12, "recurrent": 4}
_HEALTHY_WIDTH, _HEALTHY_BATCH = 512, 64


@dataclass(frozen=True)
class Piece:
    """A piece of work: what, where, how much of it, and after how many steps again (1: every one)."""

    name: str
    place: str  # of INPUT_PLACES, "batch" (made by hand), "step_end" (beside the model) or "model"
    work: str
    amount: int
    every: int = 1


@dataclass(frozen=True)
class Plan:
    """One script."""

    seed: int
    shape: str
    model: str
    width: int
    depth: int
    batch: int
    optimizer: str
    threads: int
    workers: int
    persistent: bool
    stream: bool  # an IterableDataset
    epoch_batches: int
    accumulate: int
    clip: bool
    schedule: bool
    evaluate_every: int  # steps; 0: never
    setup: str
    setup_s: float
    pieces: tuple[Piece, ...] = field(default=())

    @property
    def name(self) -> str:
        """For tables and files."""
        return f"loop_{self.seed}"


def draw(seed: int) -> Plan:
    """The plan of this seed: the same on every machine."""
    random = Random(seed)
    shape = random.choice(SHAPES)
    by_hand = shape == "by_hand"
    workers = 0 if by_hand else random.choice(_WORKERS)
    batch = random.choice((8, 16, 32, 64))
    setup = random.choice(SETUPS if not by_hand else SETUPS[:4])
    return Plan(
        seed=seed,
        shape=shape,
        model=random.choice(MODELS),
        width=random.choice((64, 128, 256)),
        depth=random.choice((2, 3, 4, 6)),
        batch=batch,
        optimizer=random.choice(OPTIMIZERS),
        threads=random.choice((1, 1, 2)),
        workers=workers,
        persistent=random.random() < 0.5,
        stream=random.random() < 0.25,
        epoch_batches=random.choice((60, 200, 1000)),
        accumulate=random.choice((1, 1, 1, 2, 4)) if shape in ("flat", "functions", "trainer") else 1,
        clip=random.random() < 0.3,
        schedule=random.random() < 0.4,
        evaluate_every=random.choice((0, 0, 100, 400)) if shape in ("flat", "trainer") else 0,
        setup=setup,
        setup_s=0.0 if setup == "nothing" else round(20 * random.random() ** 3, 1),
        pieces=(*_pieces(random, by_hand, workers, batch), *_model_pieces(random)),
    )


def healthy(plan: Plan) -> Plan:
    """The same loop with nothing to complain of: no slow work, and a model that takes far longer than its batches.

    What is left beside the model (items, worker processes, evaluation, the optimizer) is of the usual size; the script
    measures it all the same.
    """
    model = plan.model if plan.model in _HEALTHY_MODELS else "mlp"
    return replace(
        plan,
        model=model,
        width=_HEALTHY_WIDTH,
        depth=_HEALTHY_MODELS[model],
        batch=_HEALTHY_BATCH,
        optimizer="SGD" if model == "mlp" else plan.optimizer,  # Adam's update would be a third of its step
        workers=min(plan.workers, 2),
        epoch_batches=max(plan.epoch_batches, 200),
        pieces=tuple(piece for piece in plan.pieces if piece.name == "tiny" and piece.work != "checkpoint"),
    )


def _pieces(random: Random, by_hand: bool, workers: int, batch: int) -> tuple[Piece, ...]:
    """Often one that matters, sometimes two, sometimes none; and always one too small to matter."""
    found: list[Piece] = []
    for number in range(random.choice((0, 0, 1, 1, 1, 2))):
        found.append(_piece(random, f"piece_{number}", by_hand, batch, PLANTED_US, workers))
    found.append(_piece(random, "tiny", by_hand, batch, TINY_US, 0))
    places = [piece.place for piece in found]
    return tuple(piece for number, piece in enumerate(found) if piece.place not in places[:number])


def _model_pieces(random: Random) -> tuple[Piece, ...]:
    """Drawn last: the rest of a loop of a seed is what it was before there were any."""
    if random.random() >= _IN_MODEL:
        return ()
    work = random.choice(list(MODEL_WORKS))
    return (Piece("in_model", "model", work, amount_for(MODEL_WORKS[work], _length_us(random, PLANTED_US))),)


def _length_us(random: Random, span_us: tuple[float, float]) -> float:
    low, high = span_us
    return low * (high / low) ** random.random()


def _piece(random: Random, name: str, by_hand: bool, batch: int, span_us: tuple[float, float], workers: int) -> Piece:
    wanted_us = _length_us(random, span_us)
    place = random.choice(("batch", "step_end") if by_hand else (*INPUT_PLACES, "step_end", "step_end", "step_end"))
    if place == "step_end":
        work = random.choice(list(SIDE_WORKS))
        every = random.choice((1, 1, 5, 20))
        return Piece(name, place, work, amount_for(SIDE_WORKS[work], wanted_us * every), every)
    work = random.choice(list(WORKS))
    times = batch if place in ("item", "transform") else 1
    return Piece(name, place, work, amount_for(WORKS[work], wanted_us * max(1, workers) / times))
