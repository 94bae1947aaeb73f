"""The meaning of a stack frame of torch, of Python or of our own hooks, as named questions.

Most are rows of ``frame_test``: files and functions. ``code_origin`` has the owner of a frame's code, ``library_code``
the meaning of other libraries' frames.
"""

from __future__ import annotations

import re

from tuimon.code_origin import AGENT_FILE, frame_test, is_agent_file, is_generated

# ---- boundaries of the training loop, in torch or in our hooks

#: Gets the next batch from a DataLoader; ``_get_iterator`` and ``_reset`` start an epoch's workers.
is_fetch = frame_test(
    (r"torch/utils/data/dataloader\.py$", "__next__|_next_data|_get_iterator|_reset"),
    (AGENT_FILE, "tuimon_fetch|tuimon_iter"),
)
#: Enters or runs the backward pass.
is_backward_entry = frame_test(
    (r"torch/(?:autograd/__init__|autograd/graph|_tensor)\.py$", "backward|grad|_engine_run_backward"),
    (AGENT_FILE, "tuimon_backward"),
)
#: Returns gradients and accumulates none.
is_gradient_call = frame_test((r"torch/autograd/__init__\.py$", "grad"))
#: Updates parameters. torch puts a ``wrapper`` around every optimizer's ``step`` (``Optimizer.profile_hook_step``), and
#: a scheduler puts one around it, too; the ``step`` of a scheduler updates nothing.
is_optimizer_step = frame_test(
    ("torch/optim/", "wrapper"),
    (r"torch/optim/(?!.*(?:lr_scheduler|swa_utils)\.py$)", "step"),
    (AGENT_FILE, "tuimon_scaler_step"),
)
_REGISTERS = re.compile(
    r"saved_tensors_hooks|register_(?:post_accumulate_grad_|full_backward_(?:pre_)?|multi_grad_)?hook"
)


def registers_hook(function: str) -> bool:
    """True if a function of torch registers hooks that autograd calls: ``register_hook``."""
    return _REGISTERS.fullmatch(function) is not None


def is_hook_of(line: str, function: str) -> bool:
    """True if a line makes a hook of a function: ``with saved_tensors_hooks(self.pack, self.unpack):``, ``pack``."""
    found = _REGISTERS.search(line)
    return found is not None and function in re.findall(r"(\w+)[,)]", line[found.end() :])


#: The code of torch's optimizers.
is_torch_optimizer = frame_test("torch/optim/")
#: Where one of torch's optimizers calls its closure; callees of ``optimizer.py`` are hooks.
may_call_closure = frame_test(
    (
        r"torch/optim/(?!.*(?:lr_scheduler|swa_utils)\.py$|optimizer\.py$)",
        "step|obj_func|_directional_evaluate|_strong_wolfe",
    )
)
_UPDATE = re.compile(r"_(single|multi)_tensor_(\w+)")
#: A line that multiplies or factorizes matrices, and functions that are named after such a method.
_PRODUCTS = re.compile(
    r"\s@=?\s|\b(?:addmm|baddbmm|bmm|cholesky\w*|conv(?:_transpose)?\dd|eigh|einsum|inv|kron|linear|matmul|matrix_\w+|mm|qr"
    r"|scaled_dot_product_attention|solve\w*|svd|tensordot)_?\("
)
_MATRIX_METHODS = re.compile(r"newton_?schulz|zeropower|orthogonal|precondition|inverse_?root|matrix_(?:inverse|power)")


def elementwise_update(file: str, function: str) -> tuple[str, str] | None:
    """Kind and optimizer of an update that is not fused: ``single``, ``sgd`` for ``sgd.py``, ``_single_tensor_sgd``."""
    update = _UPDATE.fullmatch(function) if is_torch_optimizer(file) else None
    return (update[1], update[2]) if update is not None else None


_COMPOSES = re.compile(r"torch/(?:distributions/\w+|functional|_tensor)\.py$")


def composes(file: str) -> bool:
    """True if a file of torch only composes operations, as a user's function does: ``torch/distributions/normal.py``.

    Layers, the autograd engine and the compiler do not count: they run the model.
    """
    return _COMPOSES.search(file) is not None


def multiplies(function: str, source: str) -> bool:
    """True if a line multiplies or factorizes matrices, or its function is named so: ``gram = x @ x.T``."""
    return _PRODUCTS.search(source) is not None or _MATRIX_METHODS.search(function) is not None


def is_module_body(file: str, function: str) -> bool:
    """True if a frame of a library runs while that is imported: ``torch/optim/adadelta.py``, ``<module>``.

    A shortened stack may hold it, or the import of torch that our hook waits for, without Python's import system. Code
    that torch.compile has generated waits in its body for the kernels to be compiled, and does not import.
    """
    if function == "<module>":
        return not is_generated(file)
    return function == "exec_module" and is_agent_file(file)


# ---- modules

_MODULE_FILE = r"torch/nn/modules/module\.py$"
#: Runs a module or a function of ``nn.functional``, unlike constructing or initialising one or clipping its gradients.
is_module_run = frame_test(("torch/nn/", "forward|_call_impl|_wrapped_call_impl"), r"torch/nn/functional\.py$")
#: Only leads from a module's call to its ``forward``.
is_module_call = frame_test((_MODULE_FILE, "_call_impl|_wrapped_call_impl"))
#: The outer of the two frames around each ``forward`` in torch 2. A shortened stack leaves it out and keeps the inner
#: one, ``_call_impl``, which shows that a module runs.
is_call_wrapper = frame_test((_MODULE_FILE, "_wrapped_call_impl"))
#: For frames that run no module and update nothing: makes, copies, loads or clears a model or an optimizer
#: (``zero_grad``). ``torch/nn/utils`` and the functional part do other work.
is_model_upkeep = frame_test(
    r"torch/nn/(?:modules/module|init|parameter)\.py$|torch/optim/", ("torch/nn/modules/", "__init__|reset_parameters")
)
#: The recurrent layers and cells.
is_recurrent_layer = frame_test(r"torch/nn/modules/rnn\.py$")
#: Layers that cuDNN computes.
is_cudnn_layer = frame_test(r"torch/nn/modules/(?:conv|rnn)\.py$")
_is_layer_or_update = frame_test(("torch/nn/modules/", r".*_forward"), "torch/optim/")


def copies_nothing(file: str, function: str) -> bool:
    """True if a frame's code copies nothing between host and GPU: a layer, the autograd engine, an optimizer."""
    # _forward: of convolutions, embedding bags, attention
    return any(test(file, function) for test in (_is_layer_or_update, is_module_run, is_backward_entry))


#: Files whose functions do several things, and the lines that show which.
_TELLING: tuple[tuple[str | tuple[str, ...], re.Pattern[str]], ...] = (
    ("/stable_baselines3/common/callbacks.py", re.compile(r"\.save")),
    (
        ("/accelerate/data_loader.py", "/transformers/trainer_pt_utils.py", "/datasets/iterable_dataset.py"),
        re.compile(r"for element in self\.dataset|\bislice\(ex_iterator, self\.step"),
    ),
    ("torch/nn/modules/module.py", re.compile(r"\bhook\(")),
    ("torch/nn/functional.py", re.compile(r"\battn_output_weights\b")),
    ("torch/nn/modules/rnn.py", re.compile(r"_cell\(")),
    ("torch/nn/modules/linear.py", re.compile(r"\bbilinear\(")),
    ("torch/nn/modules/distance.py", re.compile(r"\bcosine_similarity\(")),
    ("torch/nn/parallel/distributed.py", re.compile(r"prepare_for_backward\(list\(")),
    ("torch_geometric/nn/conv/sg_conv.py", re.compile(r"\b(?:propagate|gcn_norm)\(")),
    ("torch_geometric/nn/conv/ssg_conv.py", re.compile(r"\b(?:propagate|gcn_norm)\(")),
    ("torch/utils/data/_utils/fetch.py", re.compile(r"collate_fn\(")),
)


def telling_lines(file: str) -> re.Pattern[str] | None:
    """The lines of a file that identify its functions: ``result = hook(self, args, result)``; None if none do."""
    return next((line for name, line in _TELLING if file.endswith(name)), None)


# ---- DataLoader

#: Hooks around making a batch and around collating it, in logs from before these hooks were removed.
_FETCHER_HOOKS = (AGENT_FILE, "tuimon_load|tuimon_collate")
_FETCHER_FILE = r"torch/utils/data/_utils/fetch\.py$"
#: The root of a DataLoader worker's own work: a forked worker carries the trainer's frames outside it. Loaders made
#: after torch's have the same function in a ``worker.py`` of their own (``torchdata/stateful_dataloader/worker.py``).
is_worker_loop = frame_test((r"worker\.py$", "_worker_loop"))
#: A worker's or the pin-memory thread's loop, idle when it waits.
is_loader_idle_loop = frame_test(
    (r"torch/utils/data/_utils/(?:worker|pin_memory)\.py$", "_worker_loop|_pin_memory_loop|do_one_step")
)
#: torch's data loading, or our hook in it: the code that it calls makes the batch.
loads_data = frame_test("torch/utils/data/", _FETCHER_HOOKS)
#: The code that it calls makes a batch, in a worker or in the trainer itself.
makes_batch = frame_test(_FETCHER_FILE, _FETCHER_HOOKS)
#: torch's code that fetches items for a DataLoader, in its workers or in the training process.
is_fetcher = frame_test(_FETCHER_FILE)
#: The machinery of torch's DataLoader.
is_loader_code = frame_test(r"torch/utils/data/(?:dataloader|_utils/\w+)\.py$")


def collates(file: str, function: str, source: str) -> bool:
    """True if a frame makes a batch of items: torch's fetcher at the line that does, or a function named so."""
    return "collate_fn(" in source if is_fetcher(file) else "collate" in function


# ---- torch's work in a frame

#: Waits for the GPU or for a tensor's values.
is_gpu_sync = frame_test(
    (r"torch/cuda/(?:__init__|streams|graphs)\.py$", "synchronize|wait|query"),
    r"torch/_tensor_str\.py$",
    (r"torch/_tensor\.py$", "__repr__|__format__|__str__|tolist|unique|__contains__|__array__"),
)
#: ``GradScaler``, whose ``step`` reads a flag from the GPU.
is_grad_scaler = frame_test(r"torch/amp/grad_scaler\.py$")
is_distributed = frame_test("torch/distributed/")
#: Exchanges data with other ranks.
is_collective = frame_test(
    (
        r"torch/distributed/(?!optim|fsdp/_|checkpoint)\w+\.py$",
        r"all_reduce\w*|monitored_barrier|barrier|broadcast\w*|all_gather\w*|all_to_all\w*|reduce_scatter\w*|reduce"
        r"|gather\w*|scatter\w*|wait|wait_tensor|recv\w*|send\w*|irecv|isend|batch_isend_irecv|wrapper"
        r"|\w*new_(?:process_)?group\w*|_store_based_barrier",
    ),
    # torch's own wrappers, which wait in C: DistributedDataParallel's, whose buffers come from rank 0 before each
    # forward pass, fully_shard's, for parameters and gradients, and a pipeline's, for the stage before or after
    (
        r"torch/nn/parallel/distributed\.py$"
        r"|torch/distributed/(?:utils|fsdp/_fully_shard/_fsdp_(?:collectives|param_group)|pipelining/schedules)\.py$",
        r"_sync_(?:module_|params_and_)?\w*buffers|_(?:distributed|default)_broadcast_coalesced|_broadcast_coalesced"
        r"|foreach_(?:all_gather|reduce)|foreach_all_gather_copy_out|finalize_backward|_?wait_\w+|_wait_all_gather\w*",
    ),
)
#: DTensor's exchanges are functional collectives; those of DistributedDataParallel and fully_shard are not.
_DIVISION = re.compile(
    r"torch/distributed/(?:(?P<stages>pipelining/)|(?P<shards>fsdp/)|(?P<layers>tensor/|_functional_collectives\.py$))"
)


def model_division(file: str) -> str | None:
    """The division of a frame's model over ranks: into the ``stages`` of a pipeline, into ``layers`` that ranks share,
    or into ``shards`` of its parameters.
    """
    found = _DIVISION.search(file)
    return found.lastgroup if found is not None else None


#: Calls any of torch's operators, so that its caller shows what is done.
is_operator_call = frame_test(r"torch/_ops\.py$")
_COMPILER = r"torch/_(?:dynamo|inductor|functorch)/|/triton/|torch/fx/"
_EXTENSIONS = r"torch/utils/cpp_extension\.py$"  # builds C++ and CUDA the program's code
#: torch.compile, triton, and builds of extensions.
is_compiler = frame_test(f"{_COMPILER}|{_EXTENSIONS}")
#: Contains all work of one compilation. Code that runs compiled code is in the compiler's files as well, but not below
#: such a frame.
compiles = frame_test(
    (_EXTENSIONS, "load|load_inline"),
    (r"torch/_dynamo/convert_frame\.py$", "_compile"),
    (r"torch/_inductor/compile_fx\.py$", "compile_fx_inner"),
)
#: Calls a compiled model or function; not ``_fn``, through which functions go that are kept from being compiled.
is_compiled_call = frame_test((r"torch/_dynamo/eval_frame\.py$", "__call__|compile_wrapper"))
#: Replays CUDA graphs of torch.compile, or a captured one.
is_graph_replay = frame_test(
    r"torch/_inductor/cudagraph_trees\.py$", (r"torch/(?:cuda|accelerator)/graphs\.py$", "replay")
)


def waits_for_compiler(file: str) -> bool:
    """True if a wait in this file is a wait for the compiler: ``torch/_inductor/cpp_builder.py``."""
    # each call of compiled code goes through eval_frame.py
    return is_compiler(file) and not file.endswith("_dynamo/eval_frame.py")


#: Saves or loads tensors.
is_checkpoint_io = frame_test(r"torch/serialization\.py$|torch/distributed/checkpoint/")
#: Writes weights, or gathers them for that: of torch, and of libraries that train. A module's ``state_dict`` takes no
#: time for that; averages of weights call it, too.
saves_checkpoint = frame_test(
    (
        r"torch/(?:serialization|optim/optimizer)\.py$|torch/distributed/(?:checkpoint|fsdp)/"
        r"|-packages/(?:accelerate|composer|deepspeed|diffusers|ignite|keras|lightning(?:_fabric)?|peft"
        r"|pytorch_lightning|safetensors|transformers)/",
        r"_?(?:async_|legacy_)?save(?:_\w+)?|state_dict",
    )
)


def collects_garbage(source: str) -> bool:
    """True if a line calls Python's garbage collector: ``gc.collect()``."""
    return "gc.collect(" in source


# ---- the frames that a shortened stack keeps

#: The part of torch that runs models.
MODULES = "nn/"
#: Frames by which the phase of a sample, and a worker's work, are recognised.
_PARTS = re.compile(
    r"torch/(nn/|optim/|utils/data/|utils/checkpoint\.py|autograd/|_tensor\.py|distributed/|cuda/|amp/|serialization\.py)"
)


def marked_part(file: str) -> str:
    """The part of torch that a file belongs to if shortened stacks keep its frames; ``agent`` for our hooks; else "".

    ``torch/optim/adam.py`` -> ``optim/``; ``torch/_ops.py`` -> "".
    """
    if is_agent_file(file):
        return "agent"
    part = _PARTS.search(file)
    return part[1] if part is not None else ""
