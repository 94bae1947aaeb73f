"""What frames mean: literal frames of an installed torch, of a checkout, and of code that only looks alike."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import tuimon
from tuimon import code_origin, torch_code

#: Where a torch may lie: installed for a user or by the system, and built in place.
TORCHES = (
    "/venv/lib/python3.11/site-packages/torch",
    "/usr/lib/python3/dist-packages/torch",
    "/home/u/src/pytorch/torch",
)
HOOKS = ("/venv/lib/python3.11/site-packages/tuimon/agent", "/home/u/src/tuimon/agent", "/x/tuimon/target")


#: Each question, the frames (below torch) that it holds for, and some that it does not hold for.
QUESTIONS: dict[Callable[[str, str], bool], tuple[list[str], list[str]]] = {
    torch_code.is_fetch: (
        ["utils/data/dataloader.py __next__", "utils/data/dataloader.py _reset"],
        ["utils/data/dataloader.py __init__", "utils/data/_utils/fetch.py fetch", "nn/modules/container.py __next__"],
    ),
    torch_code.compiles: (
        [
            "_dynamo/convert_frame.py _compile",
            "_inductor/compile_fx.py compile_fx_inner",
            "utils/cpp_extension.py load",
            "utils/cpp_extension.py load_inline",
        ],
        [
            "serialization.py load",
            "_dynamo/eval_frame.py compile_wrapper",
            "_functorch/_aot_autograd/runtime_wrappers.py runtime_wrapper",
        ],
    ),
    torch_code.is_backward_entry: (
        [
            "_tensor.py backward",
            "autograd/__init__.py backward",
            "autograd/__init__.py grad",
            "autograd/graph.py _engine_run_backward",
        ],
        ["autograd/function.py backward", "autograd/__init__.py _make_grads", "nn/modules/linear.py backward"],
    ),
    torch_code.is_optimizer_step: (
        ["optim/adam.py step", "optim/optimizer.py wrapper", "optim/lr_scheduler.py wrapper", "optim/sgd.py step"],
        ["optim/lr_scheduler.py step", "optim/swa_utils.py step", "optim/optimizer.py zero_grad", "amp/x.py step"],
    ),
    torch_code.is_unfused_update: (
        ["optim/adam.py _single_tensor_adam", "optim/adamw.py _multi_tensor_adamw"],
        ["optim/adam.py _fused_adam", "optim/adagrad.py _single_tensor_adagrad", "optim/adam.py step"],
    ),
    torch_code.is_module_run: (
        [
            "nn/modules/module.py _call_impl",
            "nn/modules/module.py _wrapped_call_impl",
            "nn/modules/linear.py forward",
            "nn/parallel/distributed.py forward",
            "nn/functional.py relu",
        ],
        ["nn/modules/linear.py reset_parameters", "nn/utils/clip_grad.py clip_grad_norm_", "fx/graph.py forward"],
    ),
    torch_code.is_module_call: (
        ["nn/modules/module.py _call_impl", "nn/modules/module.py _wrapped_call_impl"],
        ["nn/modules/module.py forward", "fx/graph_module.py _wrapped_call_impl"],
    ),
    torch_code.is_call_wrapper: (
        ["nn/modules/module.py _wrapped_call_impl"],
        ["nn/modules/module.py _call_impl"],
    ),
    torch_code.is_worker_loop: (
        ["utils/data/_utils/worker.py _worker_loop", "../torchdata/stateful_dataloader/worker.py _worker_loop"],
        ["profiler/_cupti_monitor.py _worker_loop", "utils/data/_utils/worker.py _try_get_data"],
    ),
    torch_code.is_loader_idle_loop: (
        ["utils/data/_utils/worker.py _worker_loop", "utils/data/_utils/pin_memory.py do_one_step"],
        ["utils/data/_utils/fetch.py fetch", "../torchdata/stateful_dataloader/worker.py _worker_loop"],
    ),
    torch_code.is_gpu_sync: (
        ["cuda/__init__.py synchronize", "cuda/streams.py wait", "_tensor.py tolist", "_tensor_str.py _str_intern"],
        ["cuda/__init__.py is_available", "_tensor.py backward", "distributed/distributed_c10d.py wait"],
    ),
    torch_code.is_collective: (
        [
            "distributed/distributed_c10d.py all_reduce",
            "distributed/distributed_c10d.py broadcast_object_list",
            "distributed/distributed_c10d.py all_to_all_single",
            "distributed/_functional_collectives.py wait_tensor",
            "distributed/c10d_logger.py wrapper",
            "distributed/x.py wait",
            "distributed/fsdp/_fully_shard/_fsdp_collectives.py foreach_reduce",
            "distributed/fsdp/_fully_shard/_fsdp_param_group.py wait_for_unshard",
            "distributed/fsdp/_fully_shard/_fsdp_param_group.py finalize_backward",
            "nn/parallel/distributed.py _sync_buffers",
        ],
        ["distributed/checkpoint.py wait", "distributed/optim/zero.py broadcast", "distributed/rpc.py get_rank"],
    ),
}


def frames(kind: int) -> list[tuple[Callable[[str, str], bool], str]]:
    return [(question, frame) for question, both in QUESTIONS.items() for frame in both[kind]]


def ask(question: Callable[[str, str], bool], torch: str, frame: str) -> bool:
    file, function = frame.split(" ")
    return question(f"{torch}/{file}", function)


@pytest.mark.parametrize("torch", TORCHES)
@pytest.mark.parametrize(("question", "frame"), frames(0))
def test_frames_that_are(question: Callable[[str, str], bool], frame: str, torch: str) -> None:
    assert ask(question, torch, frame)


@pytest.mark.parametrize("torch", TORCHES)
@pytest.mark.parametrize(("question", "frame"), frames(1))
def test_frames_that_are_not(question: Callable[[str, str], bool], frame: str, torch: str) -> None:
    assert not ask(question, torch, frame)


@pytest.mark.parametrize("folder", HOOKS)
def test_our_hooks_are_boundaries_in_every_log(folder: str) -> None:
    assert code_origin.is_agent_file(f"{folder}/hooks.py")
    assert torch_code.is_fetch(f"{folder}/hooks.py", "tuimon_fetch")
    assert torch_code.is_fetch(f"{folder}/importlib_bootstrap/hooks.py", "tuimon_iter")
    assert torch_code.is_backward_entry(f"{folder}/hooks.py", "tuimon_backward")
    assert torch_code.is_optimizer_step(f"{folder}/hooks.py", "tuimon_scaler_step")
    assert not code_origin.is_user_file(f"{folder}/hooks.py")
    assert torch_code.marked_part(f"{folder}/hooks.py") == "agent"


def test_our_hooks_have_these_names() -> None:
    folder = Path(tuimon.__file__).parent / "agent"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    named = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    boundaries = {"tuimon_fetch", "tuimon_iter", "tuimon_backward", "tuimon_scaler_step"}
    assert boundaries <= named


@pytest.mark.parametrize("torch", TORCHES)
@pytest.mark.parametrize(
    ("file", "questions"),
    [
        ("utils/data/dataloader.py", ["is_loader_code"]),
        ("utils/data/_utils/fetch.py", ["is_loader_code"]),
        ("utils/data/dataset.py", []),
        ("distributed/distributed_c10d.py", ["is_distributed"]),
        ("distributed/checkpoint/state_dict.py", ["is_checkpoint_io", "is_distributed"]),
        ("serialization.py", ["is_checkpoint_io"]),
        ("_dynamo/eval_frame.py", ["is_compiler"]),
        ("../triton/runtime/jit.py", ["is_compiler"]),
        ("amp/grad_scaler.py", ["is_grad_scaler"]),
        ("functional.py", []),
    ],
)
def test_files(file: str, questions: list[str], torch: str) -> None:
    asked = ("is_checkpoint_io", "is_compiler", "is_distributed", "is_grad_scaler", "is_loader_code")
    path = f"{torch}/{file}".replace("torch/../", "")
    assert [name for name in asked if getattr(torch_code, name)(path)] == questions
