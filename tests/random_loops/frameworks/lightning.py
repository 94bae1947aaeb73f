"""Lightning's Trainer."""

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
    "import lightning",
    "from lightning.pytorch.callbacks import ModelCheckpoint",
    "from lightning.pytorch.loggers import CSVLogger",
    "from lightning.pytorch.loggers.logger import Logger",
)


def blocks(plan: Plan, names: Names) -> Blocks:
    """Module, callbacks, main."""
    logger = [_logger(plan, names)] if logged_every(plan) else []
    evaluation = [held_out(plan)] if plan.evaluate_every else []
    return [*evaluation, _module(plan, names), _callback(plan, names), _ending(), *logger, _main(plan)]


def _module(plan: Plan, names: Names) -> list[str]:
    by_hand = "two_optimizers" in plan.features
    critic = ["self.critic = make_model()", f"self.critic(torch.randn(2, {plan.width}))"]
    critic = ["self.automatic_optimization = False", *critic] if by_hand else []
    return [
        "class Net(lightning.LightningModule):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.inner = make_model()",
        f"        self.inner(torch.randn(2, {plan.width}))",
        *indented(critic, 2),
        *method("forward(self, x)", "return self.inner(x)"),
        *method("training_step(self, batch, number)", *(_two_steps(plan) if by_hand else _step(plan))),
        *method("configure_optimizers(self)", *(_two_optimizers(plan) if by_hand else _optimizer(plan))),
        *method("on_train_batch_end(self, outputs, batch, number)", *_of_model(noted(plan, names, "override"))),
        *(_evaluation(plan, names) if plan.evaluate_every else []),
    ]


def _of_model(lines: list[str]) -> list[str]:
    return ["model = self.inner", *lines] if lines else []


def _step(plan: Plan) -> list[str]:
    log = ['self.log("loss", loss)'] if "log" in plan.features or logged_every(plan) else []
    return ["x, y = batch", "loss = nn.functional.mse_loss(self(x), y)", *log, "return loss"]


def _two_steps(plan: Plan) -> list[str]:
    clip = ["    self.clip_gradients(optimizer, gradient_clip_val=1.0)"] if plan.clip else []
    log = ['    self.log("loss", loss)'] if "log" in plan.features or logged_every(plan) else []
    return [
        "x, y = batch",
        "for model, optimizer in zip((self.inner, self.critic), self.optimizers(), strict=True):",
        "    loss = nn.functional.mse_loss(model(x), y)",
        "    self.manual_backward(loss)",
        *clip,
        "    optimizer.step()",
        "    optimizer.zero_grad()",
        *log,
    ]


def _optimizer(plan: Plan) -> list[str]:
    make = [f"optimizer = {optimizer_of(plan, 'self')}"]
    if not plan.schedule:
        return [*make, "return optimizer"]
    schedule = "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)"
    return [*make, schedule, 'return [optimizer], [{"scheduler": schedule, "interval": "step"}]']


def _two_optimizers(plan: Plan) -> list[str]:
    return [f"return {optimizer_of(plan, 'self.inner')}, {optimizer_of(plan, 'self.critic')}"]


def _evaluation(plan: Plan, names: Names) -> list[str]:
    step = ["x, y = batch", 'self.log("held_out", nn.functional.mse_loss(self(x), y))']
    end = noted(plan, names, "evaluation", model="None")
    return [
        *method("validation_step(self, batch, number)", *step),
        *method("on_validation_epoch_end(self)", *end),
    ]


def _callback(plan: Plan, names: Names) -> list[str]:
    after = noted(plan, names, "step_end")
    if after and plan.accumulate > 1:
        after = [f"if number % {plan.accumulate} == {plan.accumulate - 1}:", *indented(after)]
    return a_class(
        "class SideWork(lightning.Callback):",
        method("on_train_batch_start(self, trainer, model, batch, number)", *noted(plan, names, "batch_start")),
        method("on_before_optimizer_step(self, trainer, model, optimizer)", *noted(plan, names, "before_update")),
        method("on_train_batch_end(self, trainer, model, outputs, batch, number)", *after),
        method("on_validation_end(self, trainer, model)", "watch.evaluated()"),
    )


def _ending() -> list[str]:
    end = "trainer.should_stop = not watch.step()"
    return a_class("class Ending(lightning.Callback):", method("on_train_batch_end(self, trainer, model, *_)", end))


def _logger(plan: Plan, names: Names) -> list[str]:
    return [
        "class Journal(Logger):",
        '    name, version = "journal", 0',
        *method("log_hyperparams(self, params)", "pass"),
        *method("log_metrics(self, metrics, step=None)", *called_by_logger(plan, names)),
    ]


def _main(plan: Plan) -> list[str]:
    logger = "Journal()" if logged_every(plan) else "CSVLogger(folder)" if "log" in plan.features else "False"
    saves = "checkpoint" in plan.features
    keep = f", ModelCheckpoint(folder, every_n_train_steps={CHECKPOINT_EVERY})" if saves else ""
    options = {
        "accelerator": '"cpu"',
        "max_epochs": "-1",
        "callbacks": f"[SideWork(){keep}, Ending()]",
        "logger": logger,
        "log_every_n_steps": str(logged_every(plan) or 50),
        "enable_checkpointing": str(saves),
        "enable_progress_bar": str("progress" in plan.features),
        "accumulate_grad_batches": str(plan.accumulate),
    }
    if plan.clip and "two_optimizers" not in plan.features:
        options["gradient_clip_val"] = "1.0"
    if "bf16" in plan.features:
        options["precision"] = '"bf16-mixed"'
    if plan.evaluate_every:
        options["val_check_interval"] = str(min(plan.evaluate_every * plan.accumulate, plan.epoch_batches))
        options["limit_val_batches"] = str(EVALUATED_BATCHES)
    follow = ["watch.follow(net.inner)"] + ["watch.follow(net.critic)"] * ("two_optimizers" in plan.features)
    loaders = ["net", "make_loader()", *([held_loader()] if plan.evaluate_every else [])]
    return [
        *start(plan, "net = Net()", *follow, "with tempfile.TemporaryDirectory() as folder:"),
        "        trainer = lightning.Trainer(",
        *(f"            {name}={value}," for name, value in options.items()),
        "        )",
        f"        trainer.fit({', '.join(loaders)})",
        "    watch.tell()",
    ]
