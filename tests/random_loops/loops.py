"""The shapes of training loops: each gives the functions and classes of a script whose ``main`` trains."""

from __future__ import annotations

from collections.abc import Callable

from tests.random_loops.plan import Plan

Names = dict[str, str]
Blocks = list[list[str]]


def indented(lines: list[str], by: int = 1) -> list[str]:
    return ["    " * by + line for line in lines]


def optimizer_of(plan: Plan, model: str = "model") -> str:
    return f"torch.optim.{plan.optimizer}({model}.parameters(), lr=1e-5)"


def _start(plan: Plan) -> list[str]:
    """Until the first batch is asked for."""
    lines = ["prepare()", "model = make_model()", f"model(torch.randn(2, {plan.width}))"]
    lines.append(f"optimizer = {optimizer_of(plan)}")
    if plan.schedule:
        lines.append("schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)")
    return lines


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
    if plan.schedule:
        lines.append("schedule.step()")
    return [*lines, 'watch.lap("other")']


def side_work(plan: Plan, names: Names) -> list[str]:
    """The lines of what is done once a step has ended."""
    lines = []
    for piece in plan.pieces:
        if piece.place != "step_end":
            continue
        do = [
            f'{names[piece.name]}(model, 0 if OPTIONS.without == "{piece.name}" else {piece.amount})',
            f'watch.lap("other", "{piece.name}")',
        ]
        lines += do if piece.every == 1 else [f"if watch.steps % {piece.every} == 0:", *indented(do)]
    return lines


def _evaluation(plan: Plan) -> list[str]:
    if not plan.evaluate_every:
        return []
    return [
        f"if watch.steps % {plan.evaluate_every} == {plan.evaluate_every} - 1:",
        "    with torch.no_grad():",
        "        for x, y in itertools.islice(validation, 10):",
        "            model(x)",
        '    watch.lap("eval")',
    ]


def _validation(plan: Plan) -> list[str]:
    rows = f"torch.utils.data.TensorDataset(torch.randn(640, {plan.width}), torch.randn(640, {plan.width}))"
    return [f"validation = DataLoader({rows}, batch_size=64)"] if plan.evaluate_every else []


def _whole_step(plan: Plan, names: Names, end: str) -> list[str]:
    """The body of a loop over batches: from the batch to the end of the step."""
    update = [
        *_update(plan),
        *side_work(plan, names),
        *_evaluation(plan),
        "if not watch.step():",
        f"    {end}",
    ]
    if plan.accumulate == 1:
        return ['watch.lap("data")', *_learn(plan), *update]
    condition = f"if number % {plan.accumulate} == {plan.accumulate - 1}:"
    return ['watch.lap("data")', *_learn(plan), condition, *indented(update)]


def flat(plan: Plan, names: Names) -> Blocks:
    """One function, one loop in another."""
    body = _whole_step(plan, names, "return watch.tell()")
    return [
        [
            "def main():",
            *indented([*_start(plan), "loader = make_loader()", *_validation(plan)]),
            "    watch = Laps(OPTIONS.seconds)",
            "    while True:",
            "        for number, (x, y) in enumerate(loader):",
            *indented(body, 3),
        ]
    ]


def functions(plan: Plan, names: Names) -> Blocks:
    """A function for each epoch, as in many tutorials."""
    schedule = ", schedule" if plan.schedule else ""
    body = _whole_step(plan, names, "return False")
    return [
        [
            f"def train_one_epoch(model, loader, optimizer, watch{schedule}):",
            "    model.train()",
            "    for number, (x, y) in enumerate(loader):",
            *indented(body, 2),
            "    return True",
        ],
        [
            "def main():",
            *indented([*_start(plan), "loader = make_loader()"]),
            "    watch = Laps(OPTIONS.seconds)",
            f"    while train_one_epoch(model, loader, optimizer, watch{schedule}):",
            "        pass",
            "    watch.tell()",
        ],
    ]


def trainer(plan: Plan, names: Names) -> Blocks:
    """A class with callbacks, as frameworks have it."""
    side = side_work(plan, names)
    step = [*_update(plan), "for callback in self.callbacks:", "    callback.after_step(model, watch)"]
    step += [*_evaluation(plan), "return watch.step()"]
    schedule = ["schedule = self.schedule"] if plan.schedule else []
    local = ["model, optimizer, watch = self.model, self.optimizer, self.watch", *schedule]
    local += ["validation = self.validation"] if plan.evaluate_every else []
    inside = ["model, watch = self.model, self.watch", *_learn(plan)]
    counted = (
        [] if plan.accumulate == 1 else [f"if number % {plan.accumulate} != {plan.accumulate - 1}:", "    return True"]
    )
    start = [
        line.replace("optimizer = ", "self.optimizer = ").replace("model = ", "self.model = ") for line in _start(plan)
    ]
    start = [
        line.replace("schedule = ", "self.schedule = ").replace("(optimizer,", "(self.optimizer,") for line in start
    ]
    start = [
        line.replace("model.param", "self.model.param").replace("model(torch", "self.model(torch") for line in start
    ]
    start += [f"self.{line}" for line in _validation(plan)]
    return [
        ["class SideWork:", "    def after_step(self, model, watch):", *indented(side or ["pass"], 2)],
        [
            "class Trainer:",
            "    def __init__(self):",
            *indented(start, 2),
            "        self.loader = make_loader()",
            "        self.callbacks = [SideWork()]",
            "        self.watch = Laps(OPTIONS.seconds)",
            "",
            "    def training_step(self, x, y):",
            *indented(inside, 2),
            "",
            "    def after_batch(self, number):",
            *indented([*counted, *local, *step], 2),
            "",
            "    def fit(self):",
            "        while True:",
            "            for number, (x, y) in enumerate(self.loader):",
            '                self.watch.lap("data")',
            "                self.training_step(x, y)",
            "                if not self.after_batch(number):",
            "                    return self.watch.tell()",
        ],
        ["def main():", "    Trainer().fit()"],
    ]


def endless(plan: Plan, names: Names) -> Blocks:
    """An iterator that never ends, and a loop that counts steps."""
    body = [*_learn(plan), *_update(plan), *side_work(plan, names), "if not watch.step():", "    break"]
    return [
        ["def forever(loader):", "    while True:", "        yield from loader"],
        [
            "def main():",
            *indented([*_start(plan), "batches = forever(make_loader())"]),
            "    watch = Laps(OPTIONS.seconds)",
            "    for step in range(1_000_000_000):",
            "        x, y = next(batches)",
            '        watch.lap("data")',
            *indented(body, 2),
            "    watch.tell()",
        ],
    ]


def closure(plan: Plan, names: Names) -> Blocks:
    """The optimizer calls the forward and backward pass."""
    schedule = ["schedule.step()"] if plan.schedule else []
    after = ['watch.lap("optimizer")', *schedule, *side_work(plan, names), 'watch.lap("other")']
    inner = ["optimizer.zero_grad()", *_learn(plan), "return loss"]
    return [
        [
            "def main():",
            *indented([*_start(plan), "loader = make_loader()"]),
            "    watch = Laps(OPTIONS.seconds)",
            "    while True:",
            "        for x, y in loader:",
            '            watch.lap("data")',
            "",
            "            def closure(x=x, y=y):",
            *indented(inner, 4),
            "",
            "            optimizer.step(closure)",
            *indented([*after, "if not watch.step():", "    return watch.tell()"], 3),
        ]
    ]


def by_hand(plan: Plan, names: Names) -> Blocks:
    """No DataLoader: a function makes the batches."""
    body = [*_learn(plan), *_update(plan), *side_work(plan, names), "if not watch.step():", "    break"]
    return [
        [
            "def main():",
            *indented(_start(plan)),
            f"    rows = torch.randn(5000, {plan.width})",
            "    watch = Laps(OPTIONS.seconds)",
            "    while True:",
            "        x, y = get_batch(rows)",
            '        watch.lap("data")',
            *indented(body, 2),
            "    watch.tell()",
        ]
    ]


def two_models(plan: Plan, names: Names) -> Blocks:
    """Two models with an optimizer each, trained in turn on one batch."""
    body = ['watch.lap("data")', *_learn(plan), *_update(plan)]
    body += [*_learn(plan, "critic"), *_update(plan, "critic", "of_critic")]
    body = [line for number, line in enumerate(body) if line != "schedule.step()" or number < len(body) // 2]
    more = [
        "critic = make_model()",
        f"critic(torch.randn(2, {plan.width}))",
        f"of_critic = {optimizer_of(plan, 'critic')}",
    ]
    return [
        [
            "def main():",
            *indented([*_start(plan), *more, "loader = make_loader()"]),
            "    watch = Laps(OPTIONS.seconds)",
            "    while True:",
            "        for x, y in loader:",
            *indented([*body, *side_work(plan, names), "if not watch.step():", "    return watch.tell()"], 3),
        ]
    ]


#: By name: from a plan and the names of its pieces' functions to the blocks of the script.
SHAPES: dict[str, Callable[[Plan, Names], Blocks]] = {
    "flat": flat,
    "functions": functions,
    "trainer": trainer,
    "endless": endless,
    "closure": closure,
    "by_hand": by_hand,
    "two_models": two_models,
}
