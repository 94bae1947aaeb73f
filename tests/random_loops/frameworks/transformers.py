"""transformers' Trainer."""

from __future__ import annotations

from tests.random_loops.frameworks.parts import (
    CHECKPOINT_EVERY,
    a_class,
    called_by_logger,
    held_out,
    logged_every,
    method,
    noted,
    start,
)
from tests.random_loops.loops import Blocks, Names
from tests.random_loops.plan import Plan

IMPORTS = (
    "from torch.utils.data import default_collate",
    "from transformers import Trainer, TrainerCallback, TrainingArguments",
)
_OPTIMIZERS = {"SGD": "sgd", "RMSprop": "rmsprop", "Adam": "adamw_torch", "AdamW": "adamw_torch"}


def blocks(plan: Plan, names: Names) -> Blocks:
    """Model, trainer, callback, main."""
    evaluation = [held_out(plan), *_score(plan, names)] if plan.evaluate_every else []
    return [*evaluation, _model(plan), _collator(plan), _trainer(plan, names), _callback(plan, names), _main(plan)]


def _model(plan: Plan) -> list[str]:
    return [
        "class Net(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.inner = make_model()",
        f"        self.inner(torch.randn(2, {plan.width}))",
        *method(
            "forward(self, x, labels)",
            "guess = self.inner(x)",
            'return {"loss": nn.functional.mse_loss(guess, labels), "logits": guess}',
        ),
    ]


def _collator(plan: Plan) -> list[str]:
    collates = any(piece.place == "collate" for piece in plan.pieces)
    return [
        "def named(samples):",
        f"    x, y = {'collate' if collates else 'default_collate'}(samples)",
        '    return {"x": x, "labels": y}',
    ]


def _trainer(plan: Plan, names: Names) -> list[str]:
    after = noted(plan, names, "override")
    step = ["loss = super().training_step(model, inputs, *more)", *after, "return loss"] if after else []
    return a_class("class OwnTrainer(Trainer):", method("training_step(self, model, inputs, *more)", *step))


def _score(plan: Plan, names: Names) -> Blocks:
    work = noted(plan, names, "evaluation", model="None")
    if not work:
        return []
    return [["def score(prediction):", *(f"    {line}" for line in work), '    return {"score": 0.0}']]


def _callback(plan: Plan, names: Names) -> list[str]:
    stop = "control.should_training_stop = not watch.step()"
    log = called_by_logger(plan, names)
    begin = noted(plan, names, "batch_start")
    before, after = noted(plan, names, "before_update"), noted(plan, names, "step_end")
    return a_class(
        "class SideWork(TrainerCallback):",
        method("on_step_begin(self, args, state, control, model=None, **_)", *begin),
        method("on_pre_optimizer_step(self, args, state, control, model=None, **_)", *before),
        method("on_step_end(self, args, state, control, model=None, **_)", *after, stop),
        method("on_log(self, args, state, control, logs=None, **_)", *log),
        method("on_evaluate(self, args, state, control, **_)", "watch.evaluated()"),
    )


def _main(plan: Plan) -> list[str]:
    logs = logged_every(plan)
    saves = "checkpoint" in plan.features
    options = {
        "max_steps": "1_000_000",
        "use_cpu": "True",
        "report_to": "[]",
        "per_device_train_batch_size": str(plan.batch),
        "gradient_accumulation_steps": str(plan.accumulate),
        "dataloader_num_workers": str(plan.workers),
        "dataloader_persistent_workers": str(bool(plan.workers) and plan.persistent),
        "optim": f'"{_OPTIMIZERS[plan.optimizer]}"',
        "lr_scheduler_type": '"cosine"' if plan.schedule else '"constant"',
        "max_grad_norm": "1.0" if plan.clip else "0.0",
        "logging_strategy": '"steps"' if logs or "log" in plan.features else '"no"',
        "logging_steps": str(logs or 10),
        "save_strategy": '"steps"' if saves else '"no"',
        "disable_tqdm": str("progress" not in plan.features),
    }
    if saves:
        options |= {"save_steps": str(CHECKPOINT_EVERY), "save_total_limit": "1"}
    if "bf16" in plan.features:
        options["bf16"] = "True"
    if plan.evaluate_every:
        options |= {"eval_strategy": '"steps"', "eval_steps": str(plan.evaluate_every)}
        options["per_device_eval_batch_size"] = "64"
    more = ["train_dataset=Rows()", "data_collator=named", "callbacks=[SideWork()]"]
    more += ["eval_dataset=HeldOut()"] if plan.evaluate_every else []
    more += ["compute_metrics=score"] if any(piece.place == "evaluation" for piece in plan.pieces) else []
    return [
        *start(plan, "net = Net()", "watch.follow(net)", "with tempfile.TemporaryDirectory() as folder:"),
        "        arguments = TrainingArguments(",
        "            folder,",
        *(f"            {name}={value}," for name, value in options.items()),
        "        )",
        f"        OwnTrainer(net, arguments, {', '.join(more)}).train()",
        "    watch.tell()",
    ]
