"""What frames of torch and other libraries mean, and whose code a file is: literal frames, and some that look alike."""

import ast
from pathlib import Path

import pytest

import tuimon
from tuimon import code_origin, torch_code
from tuimon.library_code import is_collector, is_environment, is_rollout_entry, steps_environment
from tuimon.records import Place

#: Where a torch may lie: installed for a user or by the system, and built in place.
TORCHES = (
    "/venv/lib/python3.11/site-packages/torch",
    "/usr/lib/python3/dist-packages/torch",
    "/home/u/src/pytorch/torch",
)
HOOKS = ("/venv/lib/python3.11/site-packages/tuimon/agent", "/home/u/src/tuimon/agent", "/x/tuimon/target")


#: Each question, frames (below torch) that it holds for, and some that it does not hold for.
QUESTIONS = {
    torch_code.is_fetch: (
        "utils/data/dataloader.py __next__, utils/data/dataloader.py _reset",
        "utils/data/dataloader.py __init__, utils/data/_utils/fetch.py fetch, nn/modules/container.py __next__",
    ),
    torch_code.compiles: (
        "_dynamo/convert_frame.py _compile, _inductor/compile_fx.py compile_fx_inner, utils/cpp_extension.py load",
        "serialization.py load, _dynamo/eval_frame.py compile_wrapper, _functorch/_aot_autograd/x.py runtime_wrapper",
    ),
    torch_code.is_backward_entry: (
        "_tensor.py backward, autograd/__init__.py grad, autograd/graph.py _engine_run_backward",
        "autograd/function.py backward, autograd/__init__.py _make_grads, nn/modules/linear.py backward",
    ),
    torch_code.is_optimizer_step: (
        "optim/adam.py step, optim/optimizer.py wrapper, optim/lr_scheduler.py wrapper",
        "optim/lr_scheduler.py step, optim/swa_utils.py step, optim/optimizer.py zero_grad, amp/x.py step",
    ),
    torch_code.may_call_closure: (
        "optim/lbfgs.py obj_func, optim/adam.py step",
        "optim/optimizer.py step, optim/swa_utils.py step, nn/adam.py step",
    ),
    torch_code.elementwise_update: (
        "optim/adam.py _single_tensor_adam, optim/adamw.py _multi_tensor_adamw",
        "optim/adam.py _fused_adam, nn/adam.py _single_tensor_adam, optim/adam.py step",
    ),
    torch_code.is_module_run: (
        "nn/modules/module.py _wrapped_call_impl, nn/parallel/distributed.py forward, nn/functional.py relu",
        "nn/modules/linear.py reset_parameters, nn/utils/clip_grad.py clip_grad_norm_, fx/graph.py forward",
    ),
    torch_code.is_module_call: (
        "nn/modules/module.py _call_impl, nn/modules/module.py _wrapped_call_impl",
        "nn/modules/module.py forward, fx/graph_module.py _wrapped_call_impl",
    ),
    torch_code.is_call_wrapper: ("nn/modules/module.py _wrapped_call_impl", "nn/modules/module.py _call_impl"),
    torch_code.is_worker_loop: (
        "utils/data/_utils/worker.py _worker_loop, ../torchdata/stateful_dataloader/worker.py _worker_loop",
        "profiler/_cupti_monitor.py _worker_loop, utils/data/_utils/worker.py _try_get_data",
    ),
    torch_code.is_loader_idle_loop: (
        "utils/data/_utils/worker.py _worker_loop, utils/data/_utils/pin_memory.py do_one_step",
        "utils/data/_utils/fetch.py fetch, ../torchdata/stateful_dataloader/worker.py _worker_loop",
    ),
    torch_code.is_gpu_sync: (
        "cuda/__init__.py synchronize, cuda/streams.py wait, _tensor.py tolist, _tensor_str.py _str_intern",
        "cuda/__init__.py is_available, _tensor.py backward, distributed/distributed_c10d.py wait",
    ),
    torch_code.is_collective: (
        "distributed/distributed_c10d.py all_reduce, distributed/distributed_c10d.py broadcast_object_list, "
        "distributed/distributed_c10d.py all_to_all_single, distributed/_functional_collectives.py wait_tensor, "
        "distributed/c10d_logger.py wrapper, distributed/x.py wait, nn/parallel/distributed.py _sync_buffers, "
        "distributed/fsdp/_fully_shard/_fsdp_collectives.py foreach_reduce, "
        "distributed/fsdp/_fully_shard/_fsdp_param_group.py wait_for_unshard, "
        "distributed/fsdp/_fully_shard/_fsdp_param_group.py finalize_backward, "
        "distributed/pipelining/schedules.py _wait_batch_p2p",
        "distributed/checkpoint.py wait, distributed/optim/zero.py broadcast, distributed/rpc.py get_rank",
    ),
    torch_code.is_checkpoint_io: (
        "serialization.py x, distributed/checkpoint/state_dict.py x",
        "functional.py x, distributed/distributed_c10d.py x",
    ),
    torch_code.saves_checkpoint: (
        "serialization.py save, optim/optimizer.py state_dict, distributed/fsdp/_state_dict_utils.py state_dict",
        "serialization.py load, nn/modules/module.py state_dict",
    ),
    torch_code.is_compiler: ("_dynamo/eval_frame.py x, ../triton/runtime/jit.py x", "functional.py x"),
    torch_code.is_distributed: ("distributed/distributed_c10d.py x", "utils/data/distributed.py x"),
    torch_code.is_grad_scaler: ("amp/grad_scaler.py x", "amp/autocast_mode.py x"),
    torch_code.is_loader_code: ("utils/data/dataloader.py x, utils/data/_utils/fetch.py x", "utils/data/dataset.py x"),
}
CASES = [
    (question, frame, holds)
    for question, both in QUESTIONS.items()
    for frames, holds in zip(both, (True, False), strict=True)
    for frame in frames.split(", ")
]


@pytest.mark.parametrize("torch", TORCHES)
@pytest.mark.parametrize(("question", "frame", "holds"), CASES)
def test_what_a_frame_is(question, frame, holds, torch):
    file, function = frame.split(" ")
    assert bool(question(f"{torch}/{file}".replace("torch/../", ""), function)) is holds


@pytest.mark.parametrize("folder", HOOKS)
def test_our_hooks_are_boundaries_in_every_log(folder):
    assert code_origin.is_agent_file(f"{folder}/hooks.py")
    assert torch_code.is_fetch(f"{folder}/hooks.py", "tuimon_fetch")
    assert torch_code.is_fetch(f"{folder}/importlib_bootstrap/hooks.py", "tuimon_iter")
    assert torch_code.is_backward_entry(f"{folder}/hooks.py", "tuimon_backward")
    assert torch_code.is_optimizer_step(f"{folder}/hooks.py", "tuimon_scaler_step")
    assert not code_origin.is_user_file(f"{folder}/hooks.py")
    assert torch_code.marked_part(f"{folder}/hooks.py") == "agent"


def test_our_hooks_have_these_names():
    folder = Path(tuimon.__file__).parent / "agent"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    named = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    boundaries = {"tuimon_fetch", "tuimon_iter", "tuimon_backward", "tuimon_scaler_step"}
    assert boundaries <= named


def test_what_makes_the_data_of_reinforcement_learning():
    packages = "/venv/lib/python3.11/site-packages"
    algorithm = f"{packages}/stable_baselines3/common/on_policy_algorithm.py"
    assert is_collector(algorithm, "collect_rollouts") and not is_collector(algorithm, "learn")
    assert is_rollout_entry(f"{packages}/transformers/generation/utils.py", "generate")
    assert is_environment(f"{packages}/stable_baselines3/common/vec_env/dummy_vec_env.py", "step_wait")
    assert is_environment(f"{packages}/gymnasium/wrappers/common.py", "step")
    assert is_environment(f"{packages}/skrl/envs/wrappers/torch/gymnasium_envs.py", "step")
    assert is_environment(f"{packages}/own_env.py", "reset")
    assert not is_environment(f"{packages}/torch/optim/adam.py", "step")
    assert not is_environment("/home/u/envs/rl/lib/python3.11/site-packages/nice/trainer.py", "step")
    for line in ("state, reward, done, _ = world.step(action)", "out = self.envs.step(actions)"):
        assert steps_environment(line)
    for line in ("optimizer.step()", "loss, norm = meter.step(loss)", "scheduler.step(metric)"):
        assert not steps_environment(line)


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("/home/u/train.py", True),
        ("/home/u/lib/model.py", True),
        ("/home/u/torch/utils/mine.py", True),
        ("<ipython-input-3-abc>", True),
        ("<python-input-7>", True),
        ("<timed exec>", True),
        ("In[4]", True),
        ("<stdin>", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("", False),
        ("/usr/lib/python3.11/threading.py", False),
        ("/usr/lib64/python3.9/queue.py", False),
        ("/opt/pypy/lib/pypy3.10/site.py", False),
        ("/opt/lib/python3.13t/queue.py", False),
        ("/usr/lib/python311.zip/json.py", False),
        ("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/u/src/pytorch/torch/nn/modules/linear.py", False),
        ("/home/u/src/pytorch/torch/_tensor.py", False),
        ("/home/u/src/pytorch/torch/nn/functional.py", False),
        ("/home/u/torch/distributed/train.py", True),  # torch's in a checkout, or a user's folder: taken for the user's
        ("/home/u/src/tuimon/agent/hooks.py", False),
        ("/tmp/torchinductor_u/ab/cab.py", False),
        (f"/scratch/cache/ln/cln{'b7' * 24}p5.py", False),  # TORCHINDUCTOR_CACHE_DIR
        ("/tmp/torch_geometric.nn.conv.sg_conv_SGConv_propagate_412ormzm.py", False),
        ("/home/me/label_propagate.py", True),
        ("/home/me/co/ccode_of_mine.py", True),
        (code_origin.__file__, False),
    ],
)
def test_whose_code_it_is(file, user):
    assert code_origin.is_user_file(file) is user


def test_imports_and_packages():
    assert code_origin.is_import_system("<frozen importlib._bootstrap_external>")
    assert not code_origin.is_import_system("/usr/lib/python3.11/importlib/metadata/__init__.py")
    assert [code_origin.is_package_file(f"{torch}/_tensor.py") for torch in TORCHES] == [True, True, False]


@pytest.mark.parametrize(
    ("file", "package", "installed"),
    [
        ("/venv/bin/nice-train", "/venv/lib/python3.11/site-packages/nice/cli.py", True),
        ("/home/u/.local/bin/nice", "/home/u/.local/lib/python3.9/site-packages/nice.py", True),
        ("/usr/bin/nice", "/usr/lib/python3/dist-packages/nice/cli.py", True),
        ("/opt/x/bin/nice", "/opt/x/lib64/python3.12/site-packages/nice/cli.py", True),
        ("/home/u/project/bin/train.py", "/venv/lib/python3.11/site-packages/nice/cli.py", False),
        ("/home/u/train.py", "/venv/lib/python3.11/site-packages/nice/cli.py", False),
        ("/venv/bin/nice-train", "/usr/lib/python3.11/threading.py", False),
    ],
)
def test_a_script_beside_the_interpreter_is_installed(file, package, installed):
    assert code_origin.is_installed_script(file, [file, package]) is installed


def test_a_folder_of_another_package_that_is_named_torch_is_none_of_torchs():
    own = "/venv/lib/python3.11/site-packages/nice/torch/agents/agent.py"
    assert code_origin.is_library_file(own) and not code_origin.is_torch(own)
    stack = [Place(file, 1, "f") for file in ("/home/u/train.py", own, f"{TORCHES[0]}/_tensor.py")]
    assert code_origin.innermost_work(stack) is stack[1]
    assert code_origin.is_torch(f"{TORCHES[0]}/_tensor.py") and code_origin.is_torch(f"{TORCHES[2]}/_tensor.py")
