"""Writes the training script of a plan: ordinary code, as its author would have written it, with a stopwatch in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from textwrap import dedent

from tests.random_loops.plan import Piece, Plan
from tests.random_loops.works import MODEL_WORKS, SIDE_WORKS, WORKS, Work, a_name, function_of

_MODELS = {
    "mlp": "nn.Sequential(*[layer for _ in range({depth}) for layer in (nn.Linear({width}, {width}), nn.ReLU())])",
    "conv": "nn.Sequential(nn.Unflatten(1, (1, {width})), nn.Conv1d(1, 12, 5), nn.ReLU(),"
    " nn.Conv1d(12, 12, 5, stride={depth}), nn.ReLU(), nn.Flatten(), nn.LazyLinear({width}))",
    "transformer": "nn.Sequential(nn.Unflatten(1, (16, {width} // 16)),"
    " nn.TransformerEncoder(nn.TransformerEncoderLayer({width} // 16, 2, 64, batch_first=True), {depth},"
    " enable_nested_tensor=False), nn.Flatten())",
    "recurrent": "Recurrent({width}, {depth})",
    "waiting": "nn.Sequential(nn.Linear({width}, {width}), Waiting({depth}))",
}
#: Modules of models; one waits without a core, as a model on a device of its own does.
_MODULES = {
    "recurrent": """
        class Recurrent(nn.Module):
            def __init__(self, width, layers):
                super().__init__()
                self.cell = nn.GRU(16, 64, layers, batch_first=True)
                self.head = nn.Linear(64, width)

            def forward(self, x):
                return self.head(self.cell(x.unflatten(1, (-1, 16)))[0][:, -1])
        """,
    "waiting": """
        class Waiting(nn.Module):
            def __init__(self, depth):
                super().__init__()
                self.seconds = 1e-3 * depth * depth

            def forward(self, x):
                time.sleep(self.seconds)
                return x
        """,
}
_SLOW_IMPORT = "slow_library"


def filled(template: str, **parts: Sequence[str]) -> list[str]:
    """The lines of a template; a line ``$name`` stands for the lines of that part, indented as it is."""
    lines: list[str] = []
    for line in dedent(template).strip().splitlines():
        indent, _, name = line.rpartition("$")
        lines += (
            [f"{indent}{each}".rstrip() for each in parts[name]] if not indent.strip() and name in parts else [line]
        )
    return lines


def script_of(plan: Plan) -> str:
    """The text of the script."""
    names = names_of(plan)
    model = _MODELS[plan.model].format(width=plan.width, depth=plan.depth)
    inside = [piece for piece in plan.pieces if piece.place == "model"]
    tops = dict.fromkeys(line for piece in plan.pieces for line in _work(piece).setup)
    imports = {
        "import itertools",
        "import time",
        "import torch",
        *(line for line in tops if line.startswith("import ")),
    }
    blocks = [
        filled(
            f'''
            """Random loop {plan.seed}."""

            $imports
            from laps import Laps, options
            from torch import nn
            from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

            $tops
            ''',
            imports=sorted(imports),
            tops=[line for line in tops if line not in imports],
        ),
        *(function_of(names[p.name], _work(p), "model" if p.place == "step_end" else "x", p.name) for p in plan.pieces),
        *([filled(_MODULES[plan.model])] if plan.model in _MODULES else []),
        *_data(plan, names),
        *([_with_work(inside, names)] if inside else []),
        ["def make_model():", f"    return {f'WithWork({model})' if inside else model}"],
        filled("def prepare():\n    $lines", lines=_setup(plan)),
        *_SHAPES[plan.shape](plan, names),
        ['if __name__ == "__main__":', f"    torch.set_num_threads({plan.threads})", "    main()"],
    ]
    return "\n\n\n".join("\n".join(block) for block in blocks) + "\n"


def _work(piece: Piece) -> Work:
    """What a piece of work does."""
    if piece.place == "step_end":
        return SIDE_WORKS[piece.work]
    return (MODEL_WORKS if piece.place == "model" else WORKS)[piece.work]


def names_of(plan: Plan) -> dict[str, str]:
    """The names of the functions of its pieces of work."""
    random = Random(plan.seed)
    taken: set[str] = set()
    return {piece.name: a_name(random, taken) for piece in plan.pieces}


def slow_library(seconds: float) -> tuple[str, str]:
    """Name and text of a module that takes this long to import."""
    wait = f"end = time.perf_counter() + {seconds}\nwhile time.perf_counter() < end:\n    sum(range(1000))\n"
    return f"{_SLOW_IMPORT}.py", f"import time\n\n{wait}"


def _with_work(pieces: Sequence[Piece], names: dict[str, str]) -> list[str]:
    """A model that works by hand before it computes; its time is part of the forward pass, and measured by itself."""
    lines = []
    for piece in pieces:
        lines += ["begin = time.perf_counter()", f"x = {_call(piece, names)}"]
        lines.append(f'Laps.note_inside("{piece.name}", time.perf_counter() - begin)')
    return filled(
        """
        class WithWork(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                $lines
                return self.inner(x)
        """,
        lines=lines,
    )


def _setup(plan: Plan) -> list[str]:
    """What a script does before it trains."""
    s = plan.setup_s
    return filled(
        {
            "nothing": "pass",
            "tokenise": f"""
                end = time.perf_counter() + {s}
                vocabulary = {{}}
                while time.perf_counter() < end:
                    for word in "it was the best of times it was the worst of times".split():
                        vocabulary[word] = vocabulary.get(word, 0) + 1
                """,
            "slow_import": f"import {_SLOW_IMPORT}  # noqa: F401",
            "download": f"time.sleep({s})",
            "statistics": f"""
                total = torch.zeros(())
                end = time.perf_counter() + {s}
                for x, _ in itertools.islice(DataLoader(Rows(), batch_size=16), 100_000):
                    total += x.mean()
                    if time.perf_counter() > end:
                        break
                """,
            "look_at_data": f"""
                rows = Rows()
                end = time.perf_counter() + {s}
                seen = iter(rows) if isinstance(rows, IterableDataset) else (rows[i] for i in itertools.count())
                for _ in seen:
                    if time.perf_counter() > end:
                        break
                """,
        }[plan.setup]
    )


# -- what makes the batches: data set, transforms, collate function, sampler, loader


def _call(piece: Piece, names: dict[str, str], argument: str = "x") -> str:
    return f'{names[piece.name]}({argument}, 0 if OPTIONS.without == "{piece.name}" else {piece.amount})'


def _data(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """The data set, and what makes batches of it."""
    at = {place: [p for p in plan.pieces if p.place == place] for place in ("batch", "item", "transform", "collate")}
    if plan.shape == "by_hand":
        get_batch = f"""
            def get_batch(rows):
                x = rows[torch.randint(len(rows), ({plan.batch},))]
                $work
                return x, x.roll(1, 1)
            """
        return [["OPTIONS = options()"], filled(get_batch, work=[f"x = {_call(p, names)}" for p in at["batch"]])]
    transforms = ", ".join(f"lambda x: {_call(p, names)}" for p in at["transform"])
    blocks = [
        ["OPTIONS = options()", f"TRANSFORMS = [{transforms}]"],
        filled(
            f"""
            class Rows({"IterableDataset" if plan.stream else "Dataset"}):
                def __init__(self):
                    self.rows = torch.randn(1024, {plan.width})

                $access
                    x = self.rows[index % 1024]
                    $work
                    for transform in TRANSFORMS:
                        x = transform(x)
                    return x, x.roll(1, 0)
            """,
            access=filled((_STREAM if plan.stream else _MAP).format(length=plan.epoch_batches * plan.batch)),
            work=[f"x = {_call(p, names)}" for p in at["item"]],
        ),
    ]
    loader = [f"num_workers={plan.workers}"]
    loader += ["persistent_workers=True"] * bool(plan.workers and plan.persistent)
    for piece in at["collate"]:
        loader.append("collate_fn=collate")
        blocks.append(
            filled(f"""
                def collate(samples):
                    x = torch.stack([x for x, _ in samples])
                    x = {_call(piece, names)}
                    return x, torch.stack([y for _, y in samples])
                """)
        )
    sampler = next((piece for piece in plan.pieces if piece.place == "sampler" and not plan.stream), None)
    if sampler is None:
        loader += [f"batch_size={plan.batch}", *([] if plan.stream else ["shuffle=True"])]
    else:
        loader.append(f"batch_sampler=Batches({plan.epoch_batches})")
        blocks.append(
            filled(f"""
                class Batches(Sampler):
                    def __init__(self, count):
                        self.count = count

                    def __len__(self):
                        return self.count

                    def __iter__(self):
                        for _ in range(self.count):
                            order = torch.randint(1024, ({plan.batch},)).float()
                            order = {_call(sampler, names, "order")}
                            yield order.long().tolist()
                """)
        )
    return [*blocks, ["def make_loader():", f"    return DataLoader(Rows(), {', '.join(loader)})"]]


_STREAM = """
    def __iter__(self):
        for index in range({length}):
            yield self.one(index)

    def one(self, index):
    """
_MAP = """
    def __len__(self):
        return {length}

    def __getitem__(self, index):
    """


# -- the loop: a step is written once, and each shape puts it elsewhere


def _start(plan: Plan) -> list[str]:
    """Until the first batch is asked for."""
    lines = ["prepare()", "model = make_model()", f"model(torch.randn(2, {plan.width}))", _optimizer(plan)]
    if plan.schedule:
        lines.append("schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)")
    if plan.shape != "by_hand":
        lines.append("loader = make_loader()")
    if plan.evaluate_every:
        rows = f"torch.utils.data.TensorDataset(torch.randn(640, {plan.width}), torch.randn(640, {plan.width}))"
        lines.append(f"validation = DataLoader({rows}, batch_size=64)")
    return lines


def _optimizer(plan: Plan, name: str = "optimizer", model: str = "model") -> str:
    return f"{name} = torch.optim.{plan.optimizer}({model}.parameters(), lr=1e-5)"


def _learn(plan: Plan, model: str = "model") -> list[str]:
    """A forward and a backward pass."""
    scale = f" / {plan.accumulate}" if plan.accumulate > 1 else ""
    return [
        f"loss = nn.functional.mse_loss({model}(x), y){scale}",
        'watch.lap("forward")',
        "loss.backward()",
        'watch.lap("backward")',
    ]


def _update(plan: Plan, model: str = "model", optimizer: str = "optimizer") -> list[str]:
    """One step of the optimizer and what belongs to it."""
    lines = []
    if plan.clip:
        lines += [f"nn.utils.clip_grad_norm_({model}.parameters(), 1.0)", 'watch.lap("other")']
    lines += [f"{optimizer}.step()", 'watch.lap("optimizer")', f"{optimizer}.zero_grad()"]
    return [*lines, *_scheduled(plan), 'watch.lap("other")']


def _scheduled(plan: Plan) -> list[str]:
    return ["schedule.step()"] if plan.schedule else []


def _side_work(plan: Plan, names: dict[str, str]) -> list[str]:
    """The lines of what is done once a step has ended."""
    lines = []
    for piece in plan.pieces:
        if piece.place == "step_end":
            do = [_call(piece, names, "model"), f'watch.lap("other", "{piece.name}")']
            lines += do if piece.every == 1 else filled(f"if watch.steps % {piece.every} == 0:\n    $do", do=do)
    return lines


def _evaluation(plan: Plan) -> list[str]:
    if not plan.evaluate_every:
        return []
    return filled(f"""
        if watch.steps % {plan.evaluate_every} == {plan.evaluate_every} - 1:
            with torch.no_grad():
                for x, y in itertools.islice(validation, 10):
                    model(x)
            watch.lap("eval")
        """)


def _whole_step(plan: Plan, names: dict[str, str], end: str = "return watch.report()") -> list[str]:
    """From the batch, whose number is known, to the end of the step."""
    ending = ["if not watch.step():", f"    {end}"]
    update = [*_update(plan), *_side_work(plan, names), *_evaluation(plan), *ending]
    if plan.accumulate > 1:
        update = filled(f"if number % {plan.accumulate} == {plan.accumulate - 1}:\n    $update", update=update)
    return ['watch.lap("data")', *_learn(plan), *update]


def _main(start: list[str], turn: str, body: list[str]) -> list[list[str]]:
    """One function whose loop repeats a turn, in which ``$body`` stands for these lines."""
    main = """
        def main():
            $start
            watch = Laps(OPTIONS.seconds)
            while True:
                $turn
        """
    return [filled(main, start=start, turn=filled(turn, body=body))]


_OVER_LOADER = "for number, (x, y) in enumerate(loader):\n    $body"


def _flat(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """One loop in another."""
    return _main(_start(plan), _OVER_LOADER, _whole_step(plan, names))


def _by_hand(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """No DataLoader: a function makes the batches."""
    rows = f"rows = torch.randn(5000, {plan.width})"
    return _main([*_start(plan), rows], "x, y = get_batch(rows)\n$body", _whole_step(plan, names))


def _endless(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """An iterator that never ends."""
    forever = filled("""
        def forever(loader):
            while True:
                yield from loader
        """)
    start = [*_start(plan), "batches = forever(loader)"]
    return [forever, *_main(start, "x, y = next(batches)\n$body", _whole_step(plan, names))]


def _closure(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """The optimizer calls the forward and backward pass."""
    body = filled(
        """
        watch.lap("data")

        def closure(x=x, y=y):
            optimizer.zero_grad()
            $learn
            return loss

        optimizer.step(closure)
        watch.lap("optimizer")
        $after
        watch.lap("other")
        if not watch.step():
            return watch.report()
        """,
        learn=_learn(plan),
        after=[*_scheduled(plan), *_side_work(plan, names)],
    )
    return _main(_start(plan), _OVER_LOADER, body)


def _two_models(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """Two models with an optimizer each, trained in turn on one batch."""
    critic = ["critic = make_model()", f"critic(torch.randn(2, {plan.width}))"]
    second = [line for line in _update(plan, "critic", "of_critic") if line != "schedule.step()"]
    body = ['watch.lap("data")', *_learn(plan), *_update(plan), *_learn(plan, "critic"), *second]
    body += [*_side_work(plan, names), "if not watch.step():", "    return watch.report()"]
    return _main([*_start(plan), *critic, _optimizer(plan, "of_critic", "critic")], _OVER_LOADER, body)


def _functions(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """A function for each epoch, as in many tutorials."""
    given = "model, loader, optimizer, watch" + (", schedule" if plan.schedule else "")
    epoch = f"""
        def train_one_epoch({given}):
            model.train()
            for number, (x, y) in enumerate(loader):
                $body
            return True
        """
    main = f"""
        def main():
            $start
            watch = Laps(OPTIONS.seconds)
            while train_one_epoch({given}):
                pass
            watch.report()
        """
    return [filled(epoch, body=_whole_step(plan, names, "return False")), filled(main, start=_start(plan))]


def _trainer(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """A class with callbacks, as frameworks have it."""
    own = ["loader", "model", "optimizer", *["schedule"] * plan.schedule, *["validation"] * bool(plan.evaluate_every)]
    side_work = """
        class SideWork:
            def after_step(self, model, watch):
                $work
        """
    trainer = """
        class Trainer:
            def __init__(self):
                $start
                $kept
                self.callbacks = [SideWork()]
                self.watch = Laps(OPTIONS.seconds)

            def training_step(self, x, y):
                model, watch = self.model, self.watch
                $learn

            def after_batch(self, number):
                $early
                $local
                watch = self.watch
                $update
                for callback in self.callbacks:
                    callback.after_step(model, watch)
                $evaluation
                return watch.step()

            def fit(self):
                while True:
                    for number, (x, y) in enumerate(self.loader):
                        self.watch.lap("data")
                        self.training_step(x, y)
                        if not self.after_batch(number):
                            return self.watch.report()
        """
    early = f"if number % {plan.accumulate} != {plan.accumulate - 1}:\n    return True"
    return [
        filled(side_work, work=_side_work(plan, names) or ["pass"]),
        filled(
            trainer,
            start=_start(plan),
            kept=[f"self.{name} = {name}" for name in own],
            learn=_learn(plan),
            early=filled(early) if plan.accumulate > 1 else [],
            local=[f"{name} = self.{name}" for name in own[1:]],
            update=_update(plan),
            evaluation=_evaluation(plan),
        ),
        ["def main():", "    Trainer().fit()"],
    ]


#: By name: from a plan and the names of its pieces' functions to the blocks of the script.
_SHAPES: dict[str, Callable[[Plan, dict[str, str]], list[list[str]]]] = {
    "flat": _flat,
    "functions": _functions,
    "trainer": _trainer,
    "endless": _endless,
    "closure": _closure,
    "by_hand": _by_hand,
    "two_models": _two_models,
}
