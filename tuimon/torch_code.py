"""The meaning of a stack frame of torch, of Python or of our own hooks, as named questions.

A frame is its ``file`` and its bare ``function`` name (``step``, not ``Adam.step``). Whose code it is: ``code_origin``;
what frames of other libraries mean: ``library_code``.
"""

from __future__ import annotations

import re
from typing import Literal

from tuimon.code_origin import is_agent_file, is_generated, is_import_system

#: Hooks around making a batch and around collating it, in logs from before these hooks were removed.
_FETCHER_HOOKS = frozenset({"tuimon_load", "tuimon_collate"})

# ---- boundaries of the training loop, in torch or in our hooks

#: ``_get_iterator`` and ``_reset`` start an epoch's workers.
_FETCH_FUNCTIONS = frozenset({"__next__", "_next_data", "_get_iterator", "_reset"})
_FETCH_HOOKS = frozenset({"tuimon_fetch", "tuimon_iter"})
_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/_tensor.py")
_BACKWARD_FUNCTIONS = frozenset({"backward", "grad", "_engine_run_backward"})
#: ``wrapper``: torch puts one around every optimizer's ``step`` (``Optimizer.profile_hook_step``), and a scheduler puts
#: one around it, too.
_STEP_FUNCTIONS = frozenset({"step", "wrapper"})
#: In ``torch/optim/``, with a ``step`` of their own that updates no parameter.
_SCHEDULER_FILES = ("lr_scheduler.py", "swa_utils.py")
_CLOSURE_CALLERS = frozenset({"step", "obj_func", "_directional_evaluate", "_strong_wolfe"})
_UPDATE = re.compile(r"_(single|multi)_tensor_(\w+)")
#: A line that multiplies or factorizes matrices, and functions that are named after such a method.
_PRODUCTS = re.compile(
    r"\s@=?\s|\b(?:addmm|baddbmm|bmm|cholesky\w*|conv(?:_transpose)?\dd|eigh|einsum|inv|kron|linear|matmul|matrix_\w+|mm|qr"
    r"|scaled_dot_product_attention|solve\w*|svd|tensordot)_?\("
)
_MATRIX_METHODS = re.compile(r"newton_?schulz|zeropower|orthogonal|precondition|inverse_?root|matrix_(?:inverse|power)")
#: Callees of ``optimizer.py`` are hooks.
_NO_CLOSURE_FILES = (*_SCHEDULER_FILES, "torch/optim/optimizer.py")


def may_be_boundary(file: str) -> bool:
    """True if a file can hold one of these boundaries, or an import, at all: false for ``/home/me/train.py``."""
    return "torch/" in file or is_agent_file(file) or is_import_system(file)


def is_fetch(file: str, function: str) -> bool:
    """True if a frame gets the next batch from a DataLoader: ``torch/utils/data/dataloader.py``, ``__next__``."""
    if file.endswith("torch/utils/data/dataloader.py"):
        return function in _FETCH_FUNCTIONS
    return function in _FETCH_HOOKS and is_agent_file(file)


def is_backward_entry(file: str, function: str) -> bool:
    """True if a frame enters or runs the backward pass: ``torch/autograd/__init__.py``, ``backward``."""
    if function in _BACKWARD_FUNCTIONS:
        return file.endswith(_BACKWARD_FILES)
    return function == "tuimon_backward" and is_agent_file(file)


def is_gradient_call(file: str, function: str) -> bool:
    """True if a frame returns gradients and accumulates none: ``torch/autograd/__init__.py``, ``grad``."""
    return function == "grad" and file.endswith("torch/autograd/__init__.py")


def is_optimizer_step(file: str, function: str) -> bool:
    """True if a frame updates parameters: ``torch/optim/adam.py``, ``step``; not a scheduler's ``step``."""
    if function in _STEP_FUNCTIONS:
        return is_torch_optimizer(file) and (function == "wrapper" or not file.endswith(_SCHEDULER_FILES))
    return function == "tuimon_scaler_step" and is_agent_file(file)


def is_torch_optimizer(file: str) -> bool:
    """True if a file is of torch's optimizers: ``/…/torch/optim/adam.py``."""
    return "torch/optim/" in file


def elementwise_update(file: str, function: str) -> tuple[str, str] | None:
    """Kind and optimizer of an update that is not fused: ``single``, ``sgd`` for ``sgd.py``, ``_single_tensor_sgd``."""
    update = _UPDATE.fullmatch(function) if is_torch_optimizer(file) else None
    return (update[1], update[2]) if update is not None else None


def multiplies(function: str, source: str) -> bool:
    """True if a line multiplies or factorizes matrices, or its function is named so: ``gram = x @ x.T``."""
    return _PRODUCTS.search(source) is not None or _MATRIX_METHODS.search(function) is not None


def may_call_closure(file: str, function: str) -> bool:
    """True if a frame is where one of torch's optimizers calls its closure: ``torch/optim/lbfgs.py``, ``obj_func``."""
    return function in _CLOSURE_CALLERS and is_torch_optimizer(file) and not file.endswith(_NO_CLOSURE_FILES)


def is_module_body(file: str, function: str) -> bool:
    """True if a frame of a library runs while that is imported: ``torch/optim/adadelta.py``, ``<module>``.

    A shortened stack may hold it, or the import of torch that our hook waits for, without Python's import system. Code
    that torch.compile has generated waits in its body for the kernels to be compiled, which is no import.
    """
    if function == "<module>":
        return not is_generated(file)
    return function == "exec_module" and is_agent_file(file)


# ---- modules

_MODULE_FILE = "torch/nn/modules/module.py"
_PARAMETER_FILE = "torch/nn/parameter.py"
_CALL_WRAPPER = "_wrapped_call_impl"
_MODULE_CALLS = frozenset({"_call_impl", _CALL_WRAPPER})


def is_module_run(file: str, function: str) -> bool:
    """True if a frame runs a module or a function of ``nn.functional``: ``torch/nn/modules/linear.py``, ``forward``.

    Constructing a module, initialising it or clipping its gradients is no run of it.
    """
    if "torch/nn/" not in file:
        return False
    return function == "forward" or function in _MODULE_CALLS or file.endswith("torch/nn/functional.py")


def is_model_upkeep(file: str, function: str) -> bool:
    """True if a frame makes, copies, loads or clears a model or an optimizer: ``optimizer.py``, ``zero_grad``.

    For frames that run no module and update nothing; ``torch/nn/utils`` and the functional part do other work.
    """
    if file.endswith((_MODULE_FILE, "torch/nn/init.py", _PARAMETER_FILE)) or is_torch_optimizer(file):
        return True
    return function in ("__init__", "reset_parameters") and "torch/nn/modules/" in file


def is_module_call(file: str, function: str) -> bool:
    """True if a frame only leads from a module's call to its ``forward``: ``module.py``, ``_call_impl``."""
    return function in _MODULE_CALLS and file.endswith(_MODULE_FILE)


def copies_nothing(file: str, function: str) -> bool:
    """True if a frame runs what copies nothing between host and GPU: a layer, the autograd engine, an optimizer."""
    if "torch/nn/modules/" in file and function.endswith("_forward"):  # convolutions, embedding bags, attention
        return True
    return is_module_run(file, function) or is_backward_entry(file, function) or "torch/optim/" in file


def is_call_wrapper(file: str, function: str) -> bool:
    """True if a frame is the outer of the two frames around each ``forward`` in torch 2: ``_wrapped_call_impl``.

    A shortened stack leaves it out and keeps the inner one, ``_call_impl``, which shows that a module runs.
    """
    return function == _CALL_WRAPPER and file.endswith(_MODULE_FILE)


#: Files of torch whose functions do several things, and the lines that show which.
_TELLING = (
    (_MODULE_FILE, re.compile(r"\bhook\(")),
    ("torch/nn/functional.py", re.compile(r"\battn_output_weights\b")),
    ("torch/nn/modules/rnn.py", re.compile(r"_cell\(")),
)


def may_tell(file: str) -> bool:
    """True if lines of a file show what its functions do: ``torch/nn/modules/module.py``."""
    return file.endswith(tuple(name for name, _ in _TELLING))


def tells(file: str, source: str) -> bool:
    """True if a line shows what its function does: ``result = hook(self, args, result)``."""
    return any(file.endswith(name) and line.search(source) is not None for name, line in _TELLING)


# ---- DataLoader

_IDLE_LOOP_FILES = ("torch/utils/data/_utils/worker.py", "torch/utils/data/_utils/pin_memory.py")
_IDLE_LOOPS = frozenset({"_worker_loop", "_pin_memory_loop", "do_one_step"})
_LOADER_FILE = re.compile(r"torch/utils/data/(?:dataloader|_utils/\w+)\.py$")


def is_worker_loop(file: str, function: str) -> bool:
    """True if a frame is the root of what a DataLoader worker does itself: ``_utils/worker.py``, ``_worker_loop``.

    A forked worker carries the trainer's frames outside it. Loaders made after torch's have the same function in a
    ``worker.py`` of their own (``torchdata/stateful_dataloader/worker.py``).
    """
    return function == "_worker_loop" and file.endswith("worker.py")


def is_loader_idle_loop(file: str, function: str) -> bool:
    """True if a frame is a worker's or the pin-memory thread's loop, idle when it waits: ``_pin_memory_loop``."""
    return function in _IDLE_LOOPS and file.endswith(_IDLE_LOOP_FILES)


def loads_data(file: str, function: str) -> bool:
    """True if a frame is of torch's data loading, or our hook in it: what it calls makes the batch."""
    return "torch/utils/data/" in file or (function in _FETCHER_HOOKS and is_agent_file(file))


def makes_batch(file: str, function: str) -> bool:
    """True if what a frame calls makes a batch, in a worker or in the trainer itself: ``fetch.py``, ``fetch``."""
    return is_fetcher(file) or (function in _FETCHER_HOOKS and is_agent_file(file))


def is_loader_code(file: str) -> bool:
    """True if a file is the machinery of torch's DataLoader: ``torch/utils/data/_utils/fetch.py``."""
    return _LOADER_FILE.search(file) is not None


def collates(file: str, function: str, source: str) -> bool:
    """True if a frame makes a batch of items: torch's fetcher at the line that does, or a function named so."""
    return calls_collate(source) if is_fetcher(file) else "collate" in function


def is_fetcher(file: str) -> bool:
    """True if a file is torch's that fetches items for a DataLoader, in its workers or in the training process."""
    return file.endswith("torch/utils/data/_utils/fetch.py")


def calls_collate(source: str) -> bool:
    """True if a line makes a batch: ``return self.collate_fn(data)``."""
    return "collate_fn(" in source


# ---- what torch does in a frame

_SYNC_FILES = ("torch/cuda/__init__.py", "torch/cuda/streams.py", "torch/cuda/graphs.py")
_COMPILED_CALLS = frozenset({"__call__", "compile_wrapper"})
_SYNC_FUNCTIONS = frozenset({"synchronize", "wait", "query"})
#: Methods of a tensor that need its values on the CPU.
_VALUE_METHODS = frozenset({"__repr__", "__format__", "__str__", "tolist", "unique", "__contains__", "__array__"})
_COLLECTIVE_FILE = re.compile(r"torch/distributed/(?!optim|fsdp/_|checkpoint)\w+\.py$")
_COLLECTIVES = re.compile(
    r"(?:all_reduce\w*|monitored_barrier|barrier|broadcast\w*|all_gather\w*|all_to_all\w*|reduce_scatter\w*|reduce"
    r"|gather\w*|scatter\w*|wait|wait_tensor|recv\w*|send\w*|irecv|isend|batch_isend_irecv|wrapper)$"
)
#: Files in which torch's own wrappers wait in C: DistributedDataParallel's, whose buffers come from rank 0 before each
#: forward pass, fully_shard's, for parameters and gradients, and a pipeline's, for the stage before or after.
_WRAPPED_COLLECTIVE_FILE = re.compile(
    r"torch/nn/parallel/distributed\.py$"
    r"|torch/distributed/(?:utils|fsdp/_fully_shard/_fsdp_(?:collectives|param_group)|pipelining/schedules)\.py$"
)
_WRAPPED_COLLECTIVES = re.compile(
    r"(?:_sync_(?:module_|params_and_)?\w*buffers|_(?:distributed|default)_broadcast_coalesced|_broadcast_coalesced"
    r"|foreach_(?:all_gather|reduce)|foreach_all_gather_copy_out|finalize_backward|_?wait_\w+|_wait_all_gather\w*)$"
)
_EXTENSIONS = "torch/utils/cpp_extension.py"  # builds C++ and CUDA code of the program's
_COMPILER_FILE = re.compile(rf"torch/_(?:dynamo|inductor|functorch)/|/triton/|torch/fx/|{re.escape(_EXTENSIONS)}$")


def is_gpu_sync(file: str, function: str) -> bool:
    """True if a frame waits for the GPU or for a tensor's values: ``torch/cuda/streams.py``, ``synchronize``."""
    if function in _SYNC_FUNCTIONS and file.endswith(_SYNC_FILES):
        return True
    return file.endswith("torch/_tensor_str.py") or (function in _VALUE_METHODS and file.endswith("torch/_tensor.py"))


def is_grad_scaler(file: str) -> bool:
    """True if a file is ``GradScaler``'s, whose ``step`` reads a flag from the GPU: ``torch/amp/grad_scaler.py``."""
    return file.endswith("torch/amp/grad_scaler.py")


def is_distributed(file: str) -> bool:
    """True if a file belongs to ``torch.distributed``: ``torch/distributed/distributed_c10d.py``."""
    return "torch/distributed/" in file


def is_collective(file: str, function: str) -> bool:
    """True if a frame exchanges data with other ranks: ``torch/distributed/distributed_c10d.py``, ``all_reduce``."""
    if _COLLECTIVES.match(function) is not None and _COLLECTIVE_FILE.search(file) is not None:
        return True
    return _WRAPPED_COLLECTIVES.match(function) is not None and _WRAPPED_COLLECTIVE_FILE.search(file) is not None


#: DTensor's exchanges are functional collectives; those of DistributedDataParallel and fully_shard are not.
_DIVISION = re.compile(r"torch/distributed/(?:(?P<stages>pipelining/)|tensor/|_functional_collectives\.py$)")


def model_division(file: str) -> Literal["stages", "layers"] | None:
    """How a frame's model is divided over ranks: in the stages of a pipeline, or in layers that ranks share."""
    found = _DIVISION.search(file)
    return None if found is None else "stages" if found["stages"] else "layers"


def is_operator_call(file: str) -> bool:
    """True if a file calls any of torch's operators, so that its caller shows what is done: ``torch/_ops.py``."""
    return file.endswith("torch/_ops.py")


def is_compiler(file: str) -> bool:
    """True if a file belongs to torch.compile, triton or builds of extensions: ``torch/_inductor/codecache.py``."""
    return _COMPILER_FILE.search(file) is not None


def compiles(file: str, function: str) -> bool:
    """True if a frame holds all that one compilation does: ``torch/_dynamo/convert_frame.py``, ``_compile``.

    What runs compiled code is in the compiler's files as well, but below no such frame.
    """
    if function in ("load", "load_inline"):
        return file.endswith(_EXTENSIONS)
    return (function == "_compile" and file.endswith("torch/_dynamo/convert_frame.py")) or (
        function == "compile_fx_inner" and file.endswith("torch/_inductor/compile_fx.py")
    )


def is_compiled_call(file: str, function: str) -> bool:
    """True if a frame calls a compiled model or function: ``torch/_dynamo/eval_frame.py``, ``compile_wrapper``.

    Not ``_fn``, through which functions go that are kept from being compiled.
    """
    return function in _COMPILED_CALLS and file.endswith("torch/_dynamo/eval_frame.py")


def is_graph_replay(file: str, function: str) -> bool:
    """True if a frame replays CUDA graphs: ``torch/_inductor/cudagraph_trees.py``, or ``replay`` of a captured one."""
    return file.endswith("torch/_inductor/cudagraph_trees.py") or (
        function == "replay" and file.endswith(("torch/cuda/graphs.py", "torch/accelerator/graphs.py"))
    )


def is_recurrent_layer(file: str) -> bool:
    """True if a file holds the recurrent layers and cells: ``torch/nn/modules/rnn.py``."""
    return file.endswith("torch/nn/modules/rnn.py")


def waits_for_compiler(file: str) -> bool:
    """True if a frame of this file that waits does so for code that is compiled: ``torch/_inductor/cpp_builder.py``.

    Not so ``torch/_dynamo/eval_frame.py``, through which each call of compiled code goes.
    """
    return is_compiler(file) and not file.endswith("_dynamo/eval_frame.py")


def is_checkpoint_io(file: str) -> bool:
    """True if a file saves or loads tensors: ``torch/serialization.py``."""
    return file.endswith("torch/serialization.py") or "torch/distributed/checkpoint/" in file


#: Functions that write weights, or gather them for that: of torch, and of libraries that train.
_SAVE = re.compile(r"_?(?:async_|legacy_)?save(?:_\w+)?|state_dict")
_SAVES = re.compile(
    r"torch/(?:serialization|nn/modules/module|optim/optimizer)\.py$|torch/distributed/(?:checkpoint|fsdp)/"
    r"|-packages/(?:accelerate|composer|deepspeed|diffusers|ignite|keras|lightning(?:_fabric)?|peft|pytorch_lightning"
    r"|safetensors|transformers)/"
)


def saves_checkpoint(file: str, function: str) -> bool:
    """True if a frame saves a model or gathers its weights: ``torch/serialization.py``, ``save``."""
    return _SAVE.fullmatch(function) is not None and _SAVES.search(file) is not None


def collects_garbage(source: str) -> bool:
    """True if a line calls Python's garbage collector: ``gc.collect()``."""
    return "gc.collect(" in source


# ---- what a shortened stack keeps

#: The part of torch that runs models.
MODULES = "nn/"
#: Frames by which the phase of a sample, and a worker's work, are recognised.
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
