"""The meaning of libraries' frames: they make data, evaluate, measure, give the next batch, or update parameters."""

from __future__ import annotations

import re

from tuimon.code_origin import frame_test, is_library_file

#: A debugger's or profiler's function, which Python calls at each call or line of a program: ``bdb.py``.
is_tracer = frame_test(
    (
        r"/(?:bdb|trace|profile)\.py$|/coverage/pytracer\.py$|/pydevd[\w/]*\.py$",
        r"_?(?:trace|(?:global|local)trace|trace_dispatch)\w*",
    )
)

# ---- where reinforcement learning gets its data

#: Steps or resets an environment: ``/…/site-packages/gymnasium/core.py``, ``step``.
is_environment = frame_test(
    (
        r"-packages/(?:gymnasium|gym|pettingzoo|dm_env|dm_control|brax|envpool|procgen|minigrid|ale_py)/"
        r"|/stable_baselines3/common/monitor\.py|-packages/(?:.*[/_])?env(?:s|ironments?)?(?:/|\.py$)",
        r"_?(?:step|reset)(?:_wait|_async|_and_maybe_reset)?",
    )
)
#: ``env.step(action)``, or a step whose result is three or more values: no optimizer, scheduler or logger gives these.
_STEPS_ENVIRONMENT = re.compile(
    r"\benvs?\w*\.step\(|^\s*(?:[\w.*\[\]]+\s*,\s*){2,}[\w.*\[\]]*\s*=\s*[\w.\[\]]+\.step\("
)
_COLLECTS = (
    r"/stable_baselines3/common/o(?:n|ff)_policy_algorithm\.py$|/torchrl/collectors/",
    "collect_rollouts|rollout|iterator|next",
)
_GENERATES = (r"/(?:transformers/generation|trl|vllm)/", "generate")
#: Makes data with a policy: ``…/on_policy_algorithm.py``, ``collect_rollouts``.
is_collector = frame_test(_COLLECTS)
#: The only sign in a shortened stack that data is made below this frame.
is_rollout_entry = frame_test(_COLLECTS, _GENERATES)
#: Calls what is hung into a library's loop, even where it makes data: ``…/common/callbacks.py``, ``on_step``.
is_callback = frame_test(r"-packages/(?:.*/)?callbacks?(?:/|\.py$)")
#: Generates with a language model: ``/…/transformers/generation/utils.py``, ``generate``.
is_generation = frame_test(_GENERATES)


def steps_environment(source: str) -> bool:
    """True if a user line calls an environment's ``step``: ``state, reward, done = world.step(action)``."""
    return _STEPS_ENVIRONMENT.search(source) is not None


# ---- where libraries evaluate

#: ``estimate_loss`` is nanoGPT's, and that of the many programs derived from it.
_EVALUATION = re.compile(
    r"(?:^|_)(?:eval|evaluate(?!_actions)|evaluation|evaluator|validate|validation)(?:_|$)|^estimate_loss$"
)


def evaluates_by_name(function: str) -> bool:
    """True if a function is named as one that measures a model: ``evaluate_policy``, ``_run_validation``."""
    return _EVALUATION.search(function) is not None


def is_evaluator(file: str, function: str) -> bool:
    """True if a library's function evaluates: ``/…/stable_baselines3/common/evaluation.py``, ``evaluate_policy``.

    Not every function with such a name evaluates: ``evaluate_actions`` is part of a training's forward pass.
    """
    return evaluates_by_name(function) and is_library_file(file)


# ---- other work of libraries

#: Computes metrics.
is_metric = frame_test(
    r"-packages/(?:torchmetrics/(?:(?:metric|collections)\.py|(?:functional/)?(?:classification|clustering|detection|nominal"
    r"|retrieval|text)/)|torcheval/metrics/|sklearn/metrics/|evaluate/|seqeval/|sacrebleu/|rouge_score/|jiwer/)"
)
#: A metric of torchmetrics that has gradients, so that one may train on it.
may_be_loss = frame_test(
    r"-packages/torchmetrics/(?:functional/)?(?:audio|image|pairwise|regression|segmentation|shape)/"
)
#: Logs figures: packages that only log, and Lightning's modules, which log within a training step.
is_logging = frame_test(
    r"-packages/(?:aim|clearml|comet_ml|mlflow|neptune|swanlab|tensorboard|tensorboardX|wandb)/",
    (r"-packages/(?:lightning/pytorch|pytorch_lightning)/core/module\.py", "log|log_dict"),
)
#: Sends messages to other processes, receives or pickles them: of Python, and of torch for tensors.
handles_messages = frame_test(r"multiprocessing/(?:connection|reductions?)\.py$")
#: Talks to other machines.
is_network = frame_test(
    r"(?:^|/)(?:ftplib|smtplib|socket|ssl|http/client|urllib/request)\.py$|-packages/(?:aiohttp|boto3|botocore|gcsfs|grpc"
    r"|httpcore|httpx|huggingface_hub|paramiko|pymongo|pymysql|psycopg2?|redis|requests|s3fs|s3transfer|urllib3)/"
)
#: An optimizer's code in an installed package, by its name: ``/…/keras/src/optimizers/adam.py``. Only torch's own
#: optimizers call our hooks; those of Keras, fastai, Apex and bitsandbytes do not.
is_optimizer_module = frame_test(r"-packages/(?!.*-packages/)(?:.*/)?(?:optim|optimizers?)(?:/|\.py$)")
