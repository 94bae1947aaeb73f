"""The meaning of libraries' frames: they make data, evaluate, measure, give the next batch, or update parameters."""

from __future__ import annotations

import re

from tuimon.code_origin import is_library_file, is_package_file, is_user_file

# ---- what Python calls at each call or line of a program

_TRACER_FILES = re.compile(r"/(?:bdb|trace|profile)\.py$|/coverage/pytracer\.py$|/pydevd[\w/]*\.py$")
_TRACER_FUNCTIONS = re.compile(r"_?(?:trace|(?:global|local)trace|trace_dispatch)\w*$")


def is_tracer(file: str, function: str) -> bool:
    """True if a frame is a debugger's or profiler's that Python calls at each call or line: ``bdb.py``."""
    return _TRACER_FUNCTIONS.match(function) is not None and _TRACER_FILES.search(file) is not None


# ---- where reinforcement learning gets its data

_ENVIRONMENT_FILE = re.compile(
    r"-packages/(?:gymnasium|gym|pettingzoo|dm_env|dm_control|brax|envpool|procgen|minigrid|ale_py)/"
    r"|/stable_baselines3/common/monitor\.py|-packages/(?:.*[/_])?env(?:s|ironments?)?(?:/|\.py$)"
)
_ENVIRONMENT_FUNCTIONS = re.compile(r"_?(?:step|reset)(?:_wait|_async|_and_maybe_reset)?$")
#: ``env.step(action)``, or a step whose result is three or more values: no optimizer, scheduler or logger gives these.
_STEPS_ENVIRONMENT = re.compile(
    r"\benvs?\w*\.step\(|^\s*(?:[\w.*\[\]]+\s*,\s*){2,}[\w.*\[\]]*\s*=\s*[\w.\[\]]+\.step\("
)
_GENERATION_FILE = re.compile(r"/(?:transformers/generation|trl|vllm)/")
_COLLECTOR_FILE = re.compile(r"/stable_baselines3/common/o(?:n|ff)_policy_algorithm\.py$|/torchrl/collectors/")
_COLLECTOR_FUNCTIONS = frozenset({"collect_rollouts", "rollout", "iterator", "next"})


def is_collector(file: str, function: str) -> bool:
    """True if a frame of a library makes data with a policy: ``…/on_policy_algorithm.py``, ``collect_rollouts``."""
    return function in _COLLECTOR_FUNCTIONS and _COLLECTOR_FILE.search(file) is not None


def is_rollout_entry(file: str, function: str) -> bool:
    """True if a library's frame is the only sign, in a shortened stack, that data is made below it."""
    return is_collector(file, function) or (function == "generate" and _GENERATION_FILE.search(file) is not None)


def is_environment(file: str, function: str) -> bool:
    """True if a frame steps or resets an environment: ``/…/site-packages/gymnasium/core.py``, ``step``."""
    return _ENVIRONMENT_FUNCTIONS.match(function) is not None and _ENVIRONMENT_FILE.search(file) is not None


def steps_environment(source: str) -> bool:
    """True if a line of the user's calls an environment's ``step``: ``state, reward, done = world.step(action)``."""
    return _STEPS_ENVIRONMENT.search(source) is not None


def is_generation(file: str, function: str) -> bool:
    """True if a frame generates with a language model: ``/…/transformers/generation/utils.py``, ``generate``."""
    return function == "generate" and (is_user_file(file) or _GENERATION_FILE.search(file) is not None)


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


# ---- where libraries compute metrics, and log them

_METRIC_FILE = re.compile(
    r"-packages/(?:torchmetrics/(?:(?:metric|collections)\.py|(?:functional/)?(?:classification|clustering|detection|nominal"
    r"|retrieval|text)/)|torcheval/metrics/|sklearn/metrics/|evaluate/|seqeval/|sacrebleu/|rouge_score/|jiwer/)"
)
#: Metrics of torchmetrics that have gradients, and so may be the loss as well.
_DIFFERENTIABLE = re.compile(
    r"-packages/torchmetrics/(?:functional/)?(?:audio|image|pairwise|regression|segmentation|shape)/"
)


def is_metric(file: str) -> bool:
    """True if a file of a library computes metrics: ``/…/torchmetrics/metric.py``."""
    return _METRIC_FILE.search(file) is not None


#: Files of packages that only log, and of Lightning's modules, which log within a training step.
_LOGGING_FILE = re.compile(
    r"-packages/(?:aim|clearml|comet_ml|mlflow|neptune|swanlab|tensorboard|tensorboardX|wandb)/"
    r"|-packages/(?:lightning/pytorch|pytorch_lightning)/(?=core/module\.py)"
)


def is_logging(file: str, function: str) -> bool:
    """True if a library's frame logs figures: ``/…/lightning/pytorch/core/module.py``, ``log_dict``."""
    found = _LOGGING_FILE.search(file)
    return found is not None and ("lightning" not in found[0] or function in ("log", "log_dict"))


def may_be_loss(file: str) -> bool:
    """True if a metric of this file has gradients, so that one may train on it: ``/…/torchmetrics/image/ssim.py``."""
    return _DIFFERENTIABLE.search(file) is not None


# ---- calls to other machines

_NETWORK = re.compile(
    r"(?:^|/)(?:ftplib|smtplib|socket|ssl|http/client|urllib/request)\.py$|-packages/(?:aiohttp|boto3|botocore|gcsfs|grpc"
    r"|httpcore|httpx|huggingface_hub|paramiko|pymongo|pymysql|psycopg2?|redis|requests|s3fs|s3transfer|urllib3)/"
)


def is_network(file: str) -> bool:
    """True if code of a file talks to other machines: ``/…/site-packages/urllib3/connection.py``."""
    return _NETWORK.search(file) is not None


# ---- loops that libraries own

_ITERATIONS = frozenset({"__next__", "__iter__"})


def is_iteration(function: str) -> bool:
    """True if a library's function of this name gives its loop the next batch, be it as a generator: ``__next__``."""
    return function in _ITERATIONS


# ---- libraries' own optimizers

_OPTIMIZER = re.compile(r"(?:^|/)(?:optim|optimizers?)(?:/|\.py$)")


def is_optimizer_module(file: str) -> bool:
    """True if a file of an installed package is an optimizer's by its name: ``/…/keras/src/optimizers/adam.py``.

    Only torch's own optimizers call our hooks; those of Keras, fastai, Apex and bitsandbytes do not.
    """
    return is_package_file(file) and _OPTIMIZER.search(file.rpartition("-packages/")[2]) is not None
