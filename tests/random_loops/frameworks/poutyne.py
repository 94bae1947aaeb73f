"""poutyne's Model."""

from __future__ import annotations

from tests.random_loops.frameworks.parts import a_class, held_loader, held_out, method, noted, start
from tests.random_loops.loops import Blocks, Names, optimizer_of
from tests.random_loops.plan import Plan

IMPORTS = ("from poutyne import Callback, ClipNorm, ModelCheckpoint, Model",)


def blocks(plan: Plan, names: Names) -> Blocks:
    """Callback, main."""
    evaluation = [held_out(plan)] if plan.evaluate_every else []
    return [*evaluation, ["class Ended(Exception):", "    pass"], _callback(plan, names), _main(plan)]


def _callback(plan: Plan, names: Names) -> list[str]:
    begin = noted(plan, names, "batch_start", model="self.model.network")
    before = noted(plan, names, "before_update", model="self.model.network")
    after = noted(plan, names, "step_end", model="self.model.network")
    score = noted(plan, names, "evaluation", model="None")
    return a_class(
        "class SideWork(Callback):",
        method("on_train_batch_begin(self, batch_number, logs)", *begin),
        method("on_backward_end(self, batch_number)", *before),
        method("on_train_batch_end(self, batch_number, logs)", *after, "if not watch.step():", "    raise Ended"),
        method("on_valid_end(self, logs)", *score, "watch.evaluated()"),
    )


def _main(plan: Plan) -> list[str]:
    callbacks = ["SideWork()"]
    callbacks += ["ClipNorm(network.parameters(), 1.0)"] if plan.clip else []
    callbacks += ['ModelCheckpoint(f"{folder}/weights.ckpt")'] if "checkpoint" in plan.features else []
    length = f"steps_per_epoch={plan.epoch_batches}, " if plan.stream else ""
    options = [f"{length}epochs=1_000_000, verbose={'log' in plan.features}, callbacks=[{', '.join(callbacks)}]"]
    loaders = ["make_loader()", *([held_loader()] if plan.evaluate_every else [])]
    first = ["network = make_model()", f"network(torch.randn(2, {plan.width}))", "watch.follow(network)"]
    first.append(f'model = Model(network, {optimizer_of(plan, "network")}, "mse")')
    return [
        *start(plan, *first, "with tempfile.TemporaryDirectory() as folder:"),
        "        try:",
        f"            model.fit_generator({', '.join([*loaders, *options])})",
        "        except Ended:",
        "            pass",
        "    watch.tell()",
    ]
