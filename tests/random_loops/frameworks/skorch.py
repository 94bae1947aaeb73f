"""skorch's NeuralNetRegressor."""

from __future__ import annotations

from tests.random_loops.frameworks.parts import a_class, held_out, method, noted, start
from tests.random_loops.loops import Blocks, Names, indented
from tests.random_loops.plan import Plan

IMPORTS = (
    "from skorch import NeuralNetRegressor",
    "from skorch.callbacks import Callback, Checkpoint, GradientNormClipping, LRScheduler",
    "from skorch.helper import predefined_split",
)


def blocks(plan: Plan, names: Names) -> Blocks:
    """Network, callbacks, main."""
    evaluation = [held_out(plan)] if plan.evaluate_every else []
    return [*evaluation, _network(plan, names), _callback(plan, names), _main(plan)]


def _network(plan: Plan, names: Names) -> list[str]:
    after = noted(plan, names, "override", model="self.module_")
    step = ["step = super().train_step(batch, **parameters)", *after, "return step"] if after else []
    return a_class("class Network(NeuralNetRegressor):", method("train_step(self, batch, **parameters)", *step))


def _callback(plan: Plan, names: Names) -> list[str]:
    begin = noted(plan, names, "batch_start", model="net.module_")
    begin = ["if training:", *indented(begin)] if begin else []
    before = noted(plan, names, "before_update", model="net.module_")
    after = noted(plan, names, "step_end", model="net.module_")
    after = ["if training:", *indented(after)] if after else []
    epoch = noted(plan, names, "evaluation", model="None")
    epoch = ["watch.evaluated()", *epoch] if plan.evaluate_every else []  # after it the epoch ends
    stop = ["if training and not watch.step():", "    raise KeyboardInterrupt"]
    return a_class(
        "class SideWork(Callback):",
        method("on_batch_begin(self, net, batch=None, training=False, **_)", *begin),
        method("on_grad_computed(self, net, named_parameters, **_)", *before),
        method("on_batch_end(self, net, batch=None, training=False, **_)", *after, *stop),
        method("on_epoch_end(self, net, **_)", *epoch),
    )


def _main(plan: Plan) -> list[str]:
    callbacks = ["SideWork()"]
    callbacks += ["GradientNormClipping(1.0)"] if plan.clip else []
    schedule = "torch.optim.lr_scheduler.CosineAnnealingLR"
    callbacks += [f'LRScheduler({schedule}, T_max=10_000, step_every="batch")'] if plan.schedule else []
    callbacks += ["Checkpoint(monitor=None, dirname=folder)"] if "checkpoint" in plan.features else []
    options = {
        "max_epochs": "1_000_000",
        "lr": "1e-5",
        "optimizer": f"torch.optim.{plan.optimizer}",
        "batch_size": str(plan.batch),
        "train_split": "predefined_split(HeldOut())" if plan.evaluate_every else "None",
        "callbacks": f"[{', '.join(callbacks)}]",
        "verbose": str(int("log" in plan.features)),
    }
    if not plan.stream:
        options["iterator_train__shuffle"] = "True"
    if any(piece.place == "collate" for piece in plan.pieces):
        options["iterator_train__collate_fn"] = "collate"
    if plan.workers:
        options["iterator_train__num_workers"] = str(plan.workers)
        options["iterator_train__persistent_workers"] = str(plan.persistent)
    return [
        *start(plan, "model = make_model()", f"model(torch.randn(2, {plan.width}))", "watch.follow(model)"),
        "    with tempfile.TemporaryDirectory() as folder:",
        "        net = Network(",
        "            model,",
        *(f"            {name}={value}," for name, value in options.items()),
        "        )",
        "        net.fit(Rows(), y=None)",
        "    watch.tell()",
    ]
