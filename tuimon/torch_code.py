"""What a stack frame means: named questions about the code of torch, of Python, of the user and of our own hooks.

A frame is its ``file`` and its bare ``function`` name (``step``, not ``Adam.step``). torch is recognised by the end of
its paths, so that an installed torch, a checkout and one built in place are alike:
``/venv/lib/python3.11/site-packages/torch/optim/adam.py`` and ``/src/pytorch/torch/optim/adam.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

# ---- whose code it is

#: Our hooks around the loading of one batch, in a DataLoader worker or in the trainer itself, and around its collating.
LOAD_HOOK = "tuimon_load"
COLLATE_HOOK = "tuimon_collate"

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: By torch.compile: named by the hash of its text, in a folder by the beginning of that, wherever its cache is.
_GENERATED = re.compile(r"/torchinductor_|/(\w\w)/c\1\w{40,}\.py$")
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/"
    r"|/lib(?:64)?/(?:python|pypy)\d[\d.]*t?/"  # the standard library of whatever interpreter
    r"|/python\d+\.zip/"
    # torch built in place: only what a user's own folder named "torch" is unlikely to hold, unlike torch/distributed/
    r"|/torch/(?:nn/modules|optim|utils/data|autograd)/|/torch/(?:_tensor|serialization|nn/functional|utils/checkpoint)\.py$"
)
_OPTIMIZER = re.compile(r"(?:^|/)(?:optim|optimizers?)(?:/|\.py$)")
#: The folder that an environment's packages and commands lie below.
_ENVIRONMENT = re.compile(r"(.*)/lib(?:64)?/(?:python\d[\d.]*t?/)?(?:site|dist)-packages/")
_PACKAGE = re.compile(r"-packages/([^/]+?)(?:\.py)?(?:/|$)")
#: At a prompt of IPython or Python, or below ``%%time``.
_TYPED_IN = ("<ipython-input-", "<python-input-", "<stdin>", "<timed exec>", "<timed eval>")


def is_agent_file(file: str) -> bool:
    """Whether a file is one of our hooks in the training: ``/…/site-packages/tuimon/agent/hooks.py``.

    Logs written before 0.2 name their folder ``target``.
    """
    return "tuimon/agent/" in file or "tuimon/target/" in file


def is_user_file(file: str) -> bool:
    """Whether a file is outside the standard library, installed packages and tuimon: ``/home/me/train.py``."""
    if not file or file.startswith("<"):
        return file.startswith(_TYPED_IN)
    if file.startswith(_OWN_FOLDER) or is_agent_file(file):
        return False
    return _LIBRARY.search(file) is None and _GENERATED.search(file) is None


def is_package_file(file: str) -> bool:
    """Whether a file belongs to an installed package, torch included: ``/…/dist-packages/PIL/Image.py``."""
    return "-packages/" in file


def package_of(file: str) -> str | None:
    """The installed package that a file belongs to: of ``/…/dist-packages/PIL/Image.py`` it is ``PIL``."""
    found = _PACKAGE.search(file)
    return found[1] if found is not None else None


def is_installed_script(file: str, files: Iterable[str]) -> bool:
    """Whether a file is a command of the environment that one of these files is a package's of: ``/venv/bin/nice``.

    That is beside the folder of the packages: ``/venv/lib/python3.11/site-packages``, ``/home/me/.local/lib/...``.
    """
    folder = os.path.dirname(file)
    roots = {found[1] for each in files if (found := _ENVIRONMENT.match(each)) is not None}
    return any(folder == f"{root}/bin" for root in roots)


def is_library_file(file: str) -> bool:
    """Whether a file belongs to an installed package other than torch, and is no hook of ours."""
    return is_package_file(file) and not is_torch(file) and not is_agent_file(file)


def innermost_package(files: Sequence[str]) -> int:
    """Which frame of a stack, given their files from the root on, is the innermost of an installed package.

    The last one if none is: of ``train.py``, ``/…/site-packages/PIL/Image.py``, ``threading.py`` it is 1.
    """
    return next((i for i in range(len(files) - 1, -1, -1) if is_package_file(files[i])), len(files) - 1)


def innermost_work(files: Sequence[str]) -> int:
    """Which frame of a stack without the user's code stands for it: the innermost of a package other than torch.

    A program that is a package itself calls ``loss.backward()`` there. Without one it is the innermost of any package.
    """
    last = len(files) - 1
    return next((i for i in range(last, -1, -1) if is_others_package(files[i])), innermost_package(files))


def is_optimizer_module(file: str) -> bool:
    """Whether a file of an installed package is an optimizer's by its name: ``/…/keras/src/optimizers/adam.py``.

    Optimizers that are not torch's own call no hook, as those of Keras, fastai, Apex and bitsandbytes.
    """
    return is_package_file(file) and _OPTIMIZER.search(file.rpartition("-packages/")[2]) is not None


def is_import_system(file: str) -> bool:
    """Whether a file is Python's import system: ``<frozen importlib._bootstrap>``."""
    return file.startswith("<frozen importlib")


# ---- boundaries of the training loop, in torch or in our hooks

#: ``_get_iterator`` and ``_reset`` start an epoch's workers.
_FETCH_FUNCTIONS = frozenset({"__next__", "_next_data", "_get_iterator", "_reset"})
_FETCH_HOOKS = frozenset({"tuimon_fetch", "tuimon_iter"})
_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/_tensor.py")
_BACKWARD_FUNCTIONS = frozenset({"backward", "grad", "_engine_run_backward"})
#: ``wrapper`` is what torch puts around every optimizer's ``step`` (``Optimizer.profile_hook_step``), and a scheduler
#: around that of its own.
_STEP_FUNCTIONS = frozenset({"step", "wrapper"})
#: In ``torch/optim/``, with a ``step`` of their own that updates no parameter.
_SCHEDULER_FILES = ("lr_scheduler.py", "swa_utils.py")
_CLOSURE_CALLERS = frozenset({"step", "obj_func", "_directional_evaluate", "_strong_wolfe"})
#: What ``optimizer.py`` calls are hooks.
_NO_CLOSURE_FILES = (*_SCHEDULER_FILES, "torch/optim/optimizer.py")


def may_be_boundary(file: str) -> bool:
    """Whether a file can hold one of these boundaries, or an import, at all: false for ``/home/me/train.py``."""
    return "torch/" in file or is_agent_file(file) or is_import_system(file)


def is_fetch(file: str, function: str) -> bool:
    """Whether a frame gets the next batch from a DataLoader: ``torch/utils/data/dataloader.py``, ``__next__``."""
    if file.endswith("torch/utils/data/dataloader.py"):
        return function in _FETCH_FUNCTIONS
    return function in _FETCH_HOOKS and is_agent_file(file)


def is_backward_entry(file: str, function: str) -> bool:
    """Whether a frame enters or runs the backward pass: ``torch/autograd/__init__.py``, ``backward``."""
    if function in _BACKWARD_FUNCTIONS:
        return file.endswith(_BACKWARD_FILES)
    return function == "tuimon_backward" and is_agent_file(file)


def is_gradient_call(file: str, function: str) -> bool:
    """Whether a frame returns gradients and accumulates none: ``torch/autograd/__init__.py``, ``grad``."""
    return function == "grad" and file.endswith("torch/autograd/__init__.py")


def is_optimizer_step(file: str, function: str) -> bool:
    """Whether a frame updates parameters: ``torch/optim/adam.py``, ``step``; not a scheduler's ``step``."""
    if function in _STEP_FUNCTIONS:
        return is_torch_optimizer(file) and (function == "wrapper" or not file.endswith(_SCHEDULER_FILES))
    return function == "tuimon_scaler_step" and is_agent_file(file)


def is_torch_optimizer(file: str) -> bool:
    """Whether a file is of torch's optimizers: ``/…/torch/optim/adam.py``."""
    return "torch/optim/" in file


def may_call_closure(file: str, function: str) -> bool:
    """Whether a frame is where one of torch's optimizers calls its closure: ``torch/optim/lbfgs.py``, ``obj_func``."""
    return function in _CLOSURE_CALLERS and is_torch_optimizer(file) and not file.endswith(_NO_CLOSURE_FILES)


def is_module_body(file: str, function: str) -> bool:
    """Whether a frame of a library runs while that is imported: ``torch/optim/adadelta.py``, ``<module>``.

    A shortened stack may hold it, or the import of torch that our hook waits for, without Python's import system. What
    torch.compile has generated waits in its body for the kernels to be compiled, which is no import.
    """
    if function == "<module>":
        return _GENERATED.search(file) is None
    return function == "exec_module" and is_agent_file(file)


# ---- where reinforcement learning gets its data

_ENVIRONMENT_FILE = re.compile(
    r"-packages/(?:gymnasium|gym|pettingzoo|dm_env|dm_control|brax|envpool|procgen|minigrid|ale_py)/"
    r"|/stable_baselines3/common/monitor\.py|-packages/(?:.*[/_])?env(?:s|ironments?)?(?:/|\.py$)"
)
_ENVIRONMENT_FUNCTIONS = re.compile(r"_?(?:step|reset)(?:_wait|_async|_and_maybe_reset)?$")
#: ``env.step(action)``, or a step whose result is three values and more: no optimizer, scheduler or logger gives these.
_STEPS_ENVIRONMENT = re.compile(
    r"\benvs?\w*\.step\(|^\s*(?:[\w.*\[\]]+\s*,\s*){2,}[\w.*\[\]]*\s*=\s*[\w.\[\]]+\.step\("
)
_GENERATION_FILE = re.compile(r"/(?:transformers/generation|trl|vllm)/")


_COLLECTOR_FILE = re.compile(r"/stable_baselines3/common/o(?:n|ff)_policy_algorithm\.py$|/torchrl/collectors/")
_COLLECTOR_FUNCTIONS = frozenset({"collect_rollouts", "rollout", "iterator", "next"})


def is_collector(file: str, function: str) -> bool:
    """Whether a frame of a library makes data with a policy: ``…/on_policy_algorithm.py``, ``collect_rollouts``."""
    return function in _COLLECTOR_FUNCTIONS and _COLLECTOR_FILE.search(file) is not None


def is_rollout_entry(file: str, function: str) -> bool:
    """Whether a frame of a library is all that shows, in a shortened stack, that data is made below it."""
    return is_collector(file, function) or (function == "generate" and _GENERATION_FILE.search(file) is not None)


def is_environment(file: str, function: str) -> bool:
    """Whether a frame steps or resets an environment: ``/…/site-packages/gymnasium/core.py``, ``step``."""
    return _ENVIRONMENT_FUNCTIONS.match(function) is not None and _ENVIRONMENT_FILE.search(file) is not None


def steps_environment(source: str) -> bool:
    """Whether a line of the user's calls an environment's ``step``: ``state, reward, done = world.step(action)``."""
    return _STEPS_ENVIRONMENT.search(source) is not None


def collects_garbage(source: str) -> bool:
    """Whether a line calls Python's garbage collector: ``gc.collect()``."""
    return "gc.collect(" in source


def collates(file: str, function: str, source: str) -> bool:
    """Whether a frame has a batch made of items: torch's fetcher at the line that does, or what is named so."""
    return calls_collate(source) if is_fetcher(file) else "collate" in function


def is_fetcher(file: str) -> bool:
    """Whether a file is torch's that fetches items for a DataLoader, in its workers or in the training process."""
    return file.endswith("torch/utils/data/_utils/fetch.py")


def calls_collate(source: str) -> bool:
    """Whether a line makes a batch: ``return self.collate_fn(data)``."""
    return "collate_fn(" in source


def is_generation(file: str, function: str) -> bool:
    """Whether a frame generates with a language model: ``/…/transformers/generation/utils.py``, ``generate``."""
    return function == "generate" and (is_user_file(file) or _GENERATION_FILE.search(file) is not None)


def makes_data(file: str, function: str) -> bool:
    """Whether a frame makes training data: an environment's, a collector's, or one that generates."""
    return is_environment(file, function) or is_collector(file, function) or is_generation(file, function)


# ---- where libraries evaluate

_EVALUATION = re.compile(r"(?:^|_)(?:eval|evaluate|evaluation|evaluator|validate|validation)(?:_|$)")


def evaluates_by_name(function: str) -> bool:
    """Whether a function is named as one that measures a model: ``evaluate_policy``, ``_run_validation``."""
    return _EVALUATION.search(function) is not None


def is_evaluator(file: str, function: str) -> bool:
    """Whether a function of a library is: ``/…/stable_baselines3/common/evaluation.py``, ``evaluate_policy``.

    Not all that are named so are evaluation: ``evaluate_actions`` is part of a training's forward pass.
    """
    return evaluates_by_name(function) and is_library_file(file)


# ---- modules

_MODULE_FILE = "torch/nn/modules/module.py"
_CALL_WRAPPER = "_wrapped_call_impl"
_MODULE_CALLS = frozenset({"_call_impl", _CALL_WRAPPER})


def is_module_run(file: str, function: str) -> bool:
    """Whether a frame runs a module or a function of ``nn.functional``: ``torch/nn/modules/linear.py``, ``forward``.

    Constructing a module, initialising it or clipping its gradients is no run of it.
    """
    if "torch/nn/" not in file:
        return False
    return function == "forward" or function in _MODULE_CALLS or file.endswith("torch/nn/functional.py")


def is_module_call(file: str, function: str) -> bool:
    """Whether a frame only leads from a module's call to its ``forward``: ``module.py``, ``_call_impl``."""
    return function in _MODULE_CALLS and file.endswith(_MODULE_FILE)


def is_loss_module(file: str) -> bool:
    """Whether a file holds torch's losses, which take what a model returns: ``torch/nn/modules/loss.py``."""
    return file.endswith("torch/nn/modules/loss.py")


def copies_nothing(file: str, function: str) -> bool:
    """Whether a frame runs what copies nothing between host and GPU: a layer, the autograd engine, an optimizer."""
    if "torch/nn/modules/" in file and function.endswith("_forward"):  # convolutions, embedding bags, attention
        return True
    return is_module_run(file, function) or is_backward_entry(file, function) or "torch/optim/" in file


def is_call_wrapper(file: str, function: str) -> bool:
    """Whether a frame is the outer of the two that torch 2 puts around each ``forward``: ``_wrapped_call_impl``.

    A shortened stack leaves it out and keeps the inner one, ``_call_impl``, which shows that a module runs.
    """
    return function == _CALL_WRAPPER and file.endswith(_MODULE_FILE)


# ---- DataLoader

_IDLE_LOOP_FILES = ("torch/utils/data/_utils/worker.py", "torch/utils/data/_utils/pin_memory.py")
_IDLE_LOOPS = frozenset({"_worker_loop", "_pin_memory_loop", "do_one_step"})
_LOADER_FILE = re.compile(r"torch/utils/data/(?:dataloader|_utils/\w+)\.py$")


def is_worker_loop(file: str, function: str) -> bool:
    """Whether a frame is the root of what a DataLoader worker does itself: ``_utils/worker.py``, ``_worker_loop``.

    A forked worker carries the trainer's frames outside it. Loaders made after torch's have the same function in a
    ``worker.py`` of their own (``torchdata/stateful_dataloader/worker.py``).
    """
    return function == "_worker_loop" and file.endswith("worker.py")


def is_loader_idle_loop(file: str, function: str) -> bool:
    """Whether a frame is a worker's or the pin-memory thread's loop, idle when it waits: ``_pin_memory_loop``."""
    return function in _IDLE_LOOPS and file.endswith(_IDLE_LOOP_FILES)


def loads_data(file: str, function: str) -> bool:
    """Whether a frame is of torch's data loading, or our hook in it: what it calls makes the batch."""
    return "torch/utils/data/" in file or (function in (LOAD_HOOK, COLLATE_HOOK) and is_agent_file(file))


def is_loader_code(file: str) -> bool:
    """Whether a file is the machinery of torch's DataLoader: ``torch/utils/data/_utils/fetch.py``."""
    return _LOADER_FILE.search(file) is not None


# ---- what torch does there

_SYNC_FILES = ("torch/cuda/__init__.py", "torch/cuda/streams.py", "torch/cuda/graphs.py")
_SYNC_FUNCTIONS = frozenset({"synchronize", "wait", "query"})
#: Methods of a tensor that need its values on the CPU.
_VALUE_METHODS = frozenset({"__repr__", "__format__", "__str__", "tolist", "unique", "__contains__", "__array__"})
_COLLECTIVE_FILE = re.compile(r"torch/distributed/(?!optim|fsdp/_|checkpoint)\w+\.py$")
_COLLECTIVES = re.compile(
    r"(?:all_reduce\w*|monitored_barrier|barrier|broadcast\w*|all_gather\w*|all_to_all\w*|reduce_scatter\w*|reduce"
    r"|gather\w*|scatter\w*|wait|wait_tensor|recv\w*|send\w*|irecv|isend|batch_isend_irecv|wrapper)$"
)
#: Where torch's own wrappers wait in C: DistributedDataParallel's buffers, which come from rank 0 before each forward
#: pass, and fully_shard's parameters and gradients.
_WRAPPED_COLLECTIVE_FILE = re.compile(
    r"torch/nn/parallel/distributed\.py$|torch/distributed/(?:utils|fsdp/_fully_shard/_fsdp_(?:collectives|param_group))\.py$"
)
_WRAPPED_COLLECTIVES = re.compile(
    r"(?:_sync_(?:module_|params_and_)?\w*buffers|_(?:distributed|default)_broadcast_coalesced|_broadcast_coalesced"
    r"|foreach_(?:all_gather|reduce)|foreach_all_gather_copy_out|finalize_backward|_?wait_\w+|_wait_all_gather\w*)$"
)
_COMPILER_FILE = re.compile(r"torch/_(?:dynamo|inductor|functorch)/|/triton/|torch/fx/")
_TORCH_FILE = re.compile(r"(?:^|/)torch/(?!utils/data/)")


def is_gpu_sync(file: str, function: str) -> bool:
    """Whether a frame waits for the GPU or for a tensor's values: ``torch/cuda/streams.py``, ``synchronize``."""
    if function in _SYNC_FUNCTIONS and file.endswith(_SYNC_FILES):
        return True
    return file.endswith("torch/_tensor_str.py") or (function in _VALUE_METHODS and file.endswith("torch/_tensor.py"))


def is_grad_scaler(file: str) -> bool:
    """Whether a file is ``GradScaler``'s, whose ``step`` reads a flag from the GPU: ``torch/amp/grad_scaler.py``."""
    return file.endswith("torch/amp/grad_scaler.py")


def is_distributed(file: str) -> bool:
    """Whether a file belongs to ``torch.distributed``: ``torch/distributed/distributed_c10d.py``."""
    return "torch/distributed/" in file


def is_collective(file: str, function: str) -> bool:
    """Whether a frame exchanges data with other ranks: ``torch/distributed/distributed_c10d.py``, ``all_reduce``."""
    if _COLLECTIVES.match(function) is not None and _COLLECTIVE_FILE.search(file) is not None:
        return True
    return _WRAPPED_COLLECTIVES.match(function) is not None and _WRAPPED_COLLECTIVE_FILE.search(file) is not None


def is_compiler(file: str) -> bool:
    """Whether a file belongs to torch.compile or to triton: ``torch/_inductor/codecache.py``."""
    return _COMPILER_FILE.search(file) is not None


def waits_for_compiler(file: str) -> bool:
    """Whether a frame of this file that waits does so for code that is compiled: ``torch/_inductor/cpp_builder.py``.

    Not so ``torch/_dynamo/eval_frame.py``, through which each call of compiled code goes.
    """
    return is_compiler(file) and not file.endswith("_dynamo/eval_frame.py")


def is_checkpoint_io(file: str) -> bool:
    """Whether a file saves or loads tensors: ``torch/serialization.py``."""
    return file.endswith("torch/serialization.py") or "torch/distributed/checkpoint/" in file


def is_others_package(file: str) -> bool:
    """Whether a file belongs to an installed package other than torch, its data loading included, and our hooks."""
    return package_of(file) not in (None, "torch") and not is_agent_file(file)


def is_torch(file: str) -> bool:
    """Whether a file belongs to torch, but for its data loading: ``torch/functional.py``.

    Other packages may have a folder of that name, for what they build on torch: ``gluonts/torch/model/estimator.py``.
    """
    return _TORCH_FILE.search(file) is not None and package_of(file) in (None, "torch")


# ---- loops that libraries own

_ITERATIONS = frozenset({"__next__", "__iter__"})


def is_iteration(function: str) -> bool:
    """Whether a library's function of this name gives its loop the next batch, be it as a generator: ``__next__``."""
    return function in _ITERATIONS


# ---- what a shortened stack keeps

#: The part of torch that runs models.
MODULES = "nn/"
#: What the phase of a sample, and what a worker does, are recognised by.
_PARTS = re.compile(
    r"torch/(nn/|optim/|utils/data/|utils/checkpoint\.py|autograd/|_tensor\.py|distributed/|cuda/|amp/|serialization\.py)"
)


def marked_part(file: str) -> str:
    """The part of torch, or ``agent`` for our hooks, whose frames a shortened stack keeps; "" for all other files.

    ``torch/optim/adam.py`` -> ``optim/``; ``torch/_ops.py`` -> "".
    """
    if is_agent_file(file):
        return "agent"
    part = _PARTS.search(file)
    return part[1] if part is not None else ""
