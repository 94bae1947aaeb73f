"""ignite's Engine."""

from __future__ import annotations

from tests.random_loops.frameworks.parts import (
    CHECKPOINT_EVERY,
    EVALUATED_BATCHES,
    a_class,
    called_by_logger,
    held_loader,
    held_out,
    logged_every,
    method,
    noted,
    start,
)
from tests.random_loops.loops import Blocks, Names, indented, optimizer_of
from tests.random_loops.plan import Plan

IMPORTS = (
    "from ignite.engine import Engine, Events",
    "from ignite.handlers import Checkpoint, DiskSaver",
    "from ignite.metrics import Metric",
)


def blocks(plan: Plan, names: Names) -> Blocks:
    """A metric, main with the engine's function and its handlers."""
    metric = _metric(plan, names)
    return [*([held_out(plan)] if plan.evaluate_every else []), *([metric] if metric else []), _main(plan, names)]


def _metric(plan: Plan, names: Names) -> list[str]:
    work = noted(plan, names, "override", model="self.model")
    if not work:
        return []
    return a_class(
        "class Spread(Metric):",
        method("__init__(self, model)", "self.model = model", "super().__init__(lambda loss: (loss, loss))"),
        method("reset(self)", "self.count = 0"),
        method("update(self, output)", *work, "self.count += 1"),
        method("compute(self)", "return self.count"),
    )


def _update(plan: Plan, names: Names) -> list[str]:
    """The engine's function."""
    scale = f" / {plan.accumulate}" if plan.accumulate > 1 else ""
    do = noted(plan, names, "before_update")
    do += ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"] if plan.clip else []
    do += ["optimizer.step()", "optimizer.zero_grad()"]
    do += ["schedule.step()"] if plan.schedule else []
    if plan.accumulate > 1:
        do = [f"if engine.state.iteration % {plan.accumulate} == 0:", *indented(do)]
    return [
        "def update(engine, batch):",
        "    model.train()",
        "    x, y = batch",
        f"    loss = nn.functional.mse_loss(model(x), y){scale}",
        "    loss.backward()",
        *indented(do),
        "    return loss.item()",
    ]


def _handlers(plan: Plan, names: Names) -> list[str]:
    """In the order in which they are called."""
    every = f"(every={plan.accumulate})" if plan.accumulate > 1 else ""
    lines: list[str] = []
    begin = noted(plan, names, "batch_start")
    if begin:
        lines += ["@trainer.on(Events.ITERATION_STARTED)", "def begin(engine):", *indented(begin), ""]
    after = noted(plan, names, "step_end")
    if after:
        lines += [f"@trainer.on(Events.ITERATION_COMPLETED{every})", "def side_work(engine):", *indented(after), ""]
    logs = logged_every(plan)
    if logs or "log" in plan.features:
        work = called_by_logger(plan, names) or ["losses.append(engine.state.output)", "del losses[:-100]"]
        lines += ["losses = []", f"@trainer.on(Events.ITERATION_COMPLETED(every={(logs or 10) * plan.accumulate}))"]
        lines += ["def log(engine):", *indented(work), ""]
    if plan.evaluate_every:
        lines += _evaluation(plan, names)
    if "checkpoint" in plan.features:
        lines.append('keep = Checkpoint({"model": model}, DiskSaver(folder, create_dir=True), n_saved=1)')
        steps = CHECKPOINT_EVERY * plan.accumulate
        lines.append(f"trainer.add_event_handler(Events.ITERATION_COMPLETED(every={steps}), keep)")
    if _metric(plan, names):
        lines.append('Spread(model).attach(trainer, "spread")')
    end = ["if not watch.step():", "    engine.terminate()"]
    return [*lines, "", "@trainer.on(Events.ITERATION_COMPLETED)", "def ending(engine):", *indented(end)]


def _evaluation(plan: Plan, names: Names) -> list[str]:
    judge = ["with torch.no_grad():", "    return nn.functional.mse_loss(model(batch[0]), batch[1]).item()"]
    run = [f"evaluator.run(validation, epoch_length={EVALUATED_BATCHES})", "watch.evaluated()"]
    score = noted(plan, names, "evaluation", model="None")
    lines = [f"validation = {held_loader()}", "", "def judge(engine, batch):", *indented(judge), ""]
    lines += ["evaluator = Engine(judge)", ""]
    if score:
        lines += ["@evaluator.on(Events.COMPLETED)", "def score(engine):", *indented(score), ""]
    lines.append(f"@trainer.on(Events.ITERATION_COMPLETED(every={plan.evaluate_every * plan.accumulate}))")
    return [*lines, "def evaluate(engine):", *indented(run), ""]


def _main(plan: Plan, names: Names) -> list[str]:
    schedule = "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)"
    first = ["model = make_model()", f"model(torch.randn(2, {plan.width}))", f"optimizer = {optimizer_of(plan)}"]
    first += [schedule] if plan.schedule else []
    first += ["watch.follow(model)", "folder = tempfile.mkdtemp()", ""]
    lines = [*first, *_update(plan, names), "", "trainer = Engine(update)", *_handlers(plan, names), ""]
    return [*start(plan, *lines), "    trainer.run(make_loader(), max_epochs=1_000_000)", "    watch.tell()"]
