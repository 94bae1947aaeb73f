"""Advice where a library owns the loop: by what its users can set, not by its own functions."""

import pytest

from tests.diagnosis.cpu import AUGMENT, NO_GPU
from tests.session.records import by_rule, extend, frames, header, loop, one_process, rank, session_of, stacks, thread
from tuimon.diagnosis.rules.advice import LIBRARIES, LibraryOptions
from tuimon.records import Place

TRAINER, LIGHTNING, KERAS = "transformers/trainer.py", "lightning/pytorch/loops/fit_loop.py", "keras/src/trainer.py"
KERAS_LOOP = "keras/src/backend/torch/trainer.py"


def lines(library, own, function):
    """The frames of a loop in one file of a library, and of a function of the same library beside the training."""
    packages, main = "/v/lib/python3.11/site-packages", ("/home/me/fit.py", 31, "main", "trainer.train()", True)
    of_library = (f"{packages}/{library}", 200, "train"), (f"{packages}/{own}", 9, function)
    return AUGMENT, frames(main, *of_library, first=40)


def beside_training(stack, *places):
    """The finding about a stack that takes 30 % of each step beside the training."""
    windows = loop(8, {"data": 5, "forward": 30, "backward": 35, "other": 30})
    samples = stacks(8, ([40, 41, 9], 35), ([40, 41, 11], 35), (stack, 30))
    return by_rule(one_process(*places, windows, samples))["side_work"]


@pytest.mark.parametrize(
    ("library", "own", "function", "option"),
    [
        (TRAINER, "transformers/modeling_utils.py", "save_pretrained", "save_steps"),
        (TRAINER, "accelerate/accelerator.py", "_clip_grad_norm_dtensor_aware", "max_grad_norm"),
        (LIGHTNING, "lightning/pytorch/core/module.py", "clip_gradients", "gradient_clip_val"),
        (LIGHTNING, "lightning/pytorch/trainer/call.py", "_call_lightning_module_hook", "override fewer hooks"),
        (LIGHTNING, "lightning/fabric/plugins/io/torch_io.py", "save_checkpoint", "every_n_train_steps"),
        *(
            (file, file, function, option)
            for file, function, option in (
                ("skorch/net.py", "notify", "callbacks__NAME=None"),
                ("ignite/engine/engine.py", "_fire_event", "Events.ITERATION_COMPLETED(every=n)"),
                ("stable_baselines3/common/base_class.py", "_on_step", "EveryNTimesteps"),
                ("stable_baselines3/common/on_policy_algorithm.py", "dump_logs", "log_interval of learn()"),
            )
        ),
        (KERAS, "keras/src/callbacks/progbar.py", "update", "have keras call update() progbar.py:9 less often"),
    ],
)
def test_the_librarys_option_is_named_and_not_its_function(library, own, function, option):
    finding = beside_training([40, 41, 42], lines(library, own, function))
    assert option in finding.action
    assert f"run {function}()" not in finding.action


def test_what_a_rank_logs_has_the_line_of_its_training_step():
    """There torch's module for several ranks runs the whole step."""
    logs = frames(("/home/me/fit.py", 9, "training_step", "self.log_dict(figures)", True), first=45)
    lightning = lines(LIGHTNING, "lightning/pytorch/core/module.py", "log_dict")
    finding = beside_training([40, 41, 9, 45, 42], lightning, logs)
    assert finding.where == (Place("/home/me/fit.py", 9, "training_step", "self.log_dict(figures)"),)
    assert finding.action.startswith("log less often: raise log_every_n_steps of the Trainer")


def test_a_metric_that_is_computed_to_be_logged_is_computed_less_often_first():
    metric = frames(
        ("/home/me/fit.py", 9, "training_step", "self.log('auroc', self.auroc.compute())", True),
        ("/v/lib/python3.11/site-packages/torchmetrics/metric.py", 700, "wrapped_func"),
        first=45,
    )
    lightning = lines(LIGHTNING, "lightning/pytorch/core/module.py", "log")
    action = beside_training([40, 41, 9, 45, 46], lightning, metric).action
    assert action.startswith("make training_step() fit.py:9 cheaper (collect their inputs")
    assert action.endswith("or call self.log() in fewer steps")


def test_what_is_known_of_a_librarys_function_is_found_though_all_phases_have_the_line_that_calls_it():
    averages = frames(("/v/lib/python3.11/site-packages/torch/optim/swa_utils.py", 358, "update_parameters"), first=45)
    callback = "lightning/pytorch/callbacks/weight_averaging.py"
    finding = beside_training([40, 41, 42, 45], lines(LIGHTNING, callback, "on_train_batch_end"), averages)
    assert finding.headline.endswith("above all in copies or averages of weights, tensor by tensor")
    assert "multi_avg_fn=" in finding.action


@pytest.mark.parametrize(
    ("library", "option"),
    [
        (TRAINER, ": raise eval_steps in TrainingArguments"),
        (LIGHTNING, ": raise val_check_interval"),
        (KERAS_LOOP, ": raise validation_freq of model.fit()"),
        ("stable_baselines3/common/base_class.py", ": raise eval_freq of EvalCallback"),
        ("nice/loop.py", "part of the data"),
    ],
)
def test_how_often_a_library_evaluates_is_an_option(library, option):
    windows = loop(8, {"data": 5, "forward": 15, "backward": 20, "eval": 60})
    samples = stacks(8, ([40, 41, 9], 20), ([40, 41, 11], 20), ([40, 41, 42], 60))
    finding = by_rule(one_process(*lines(library, library, "evaluate"), windows, samples))["side_work"]
    assert finding.action.startswith("evaluate less often") and option in finding.action


def test_a_librarys_work_that_no_option_is_known_of_is_its_callbacks():
    transformers, keras = (next(each for each in LIBRARIES if name in each.loop) for name in ("transformers", "keras"))
    assert "callbacks" in transformers.less_of(Place("trainer.py", 3, "_run_epoch"))
    file = "/v/lib/python3.11/site-packages/nice/src/core.py"
    action = LibraryOptions().less_of(Place(file, 9, "convert_to_tensor"))  # which is no logging
    assert action == "nice itself calls convert_to_tensor() core.py:9 in each step: larger batches need it less often"
    assert "DataLoader" in keras.less_of(Place(file, 9, "convert_to_tensor"))
    assert "train_on_batch()" in keras.less_of(Place("callback_list.py", 3, "_async_dispatch"))


@pytest.mark.parametrize(
    ("library", "option"),
    [(TRAINER, "gradient_accumulation_steps"), (LIGHTNING, "accumulate_grad_batches"), (KERAS, "no_sync()")],
)
def test_a_trainer_that_exchanges_gradients_once_by_itself_has_an_option_for_how_often(library, option):
    session = session_of(header(), NO_GPU, lines(library, library, "step"))
    for n, pid in enumerate((100, 101)):
        extend(session, rank(n), loop(11, {"forward": 20, "backward": 80}, pid=pid), thread(11, 0.55, 0.0, pid=pid))
        session.add(stacks(11, ([40, 41, 9], 20), ([40, 41, 11], 80), pid=pid))
    finding = by_rule(session)["comm_bound"]
    assert option in finding.action
    assert ("no_sync()" in finding.action) == (option == "no_sync()")


def test_data_that_a_library_converts_is_to_come_as_it_takes_it():
    core = "keras/src/backend/torch/core.py"
    windows = loop(12, {"data": 40, "forward": 30, "backward": 30})
    fetch = frames(("/opt/tuimon/agent/hooks.py", 7, "tuimon_fetch"), first=45)
    samples = stacks(12, ([40, 41, 45, 42], 60), ([40, 41, 11], 40))
    session = one_process(NO_GPU, lines(KERAS_LOOP, core, "convert_to_tensor"), fetch, windows, samples)
    finding = by_rule(session)["input_bound"]
    assert any(fix.action.startswith("give model.fit() batches of tensors") for fix in finding.fixes)
    assert not any("vectorise" in fix.action for fix in finding.fixes)
