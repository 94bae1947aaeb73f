"""Installs the hooks once torch is imported, and removes them."""

from typing import Any, Callable

from . import api, ranges, runtime
from .control.orders import end_tasks
from .importlib_bootstrap import hooks
from .loading import loader_facts, worker
from .outside import undisturbed
from .pace import pace
from .process import gc_pauses, notebook
from .ring import files
from .torch_compat import dynamo, rebinding

WhenImported = Callable[[str, Callable[[Any], None]], None]


def install(torch: Any, when_imported: WhenImported) -> None:
    """Make the ring and place the hooks, once; no ring, no hooks. A hook that fails stops no other."""
    if runtime.on:
        return
    gc_pauses.install(runtime)  # before the ring, whose facts say whether pauses are recorded
    runtime.start(torch)
    if not runtime.on:
        gc_pauses.uninstall()
        return
    rebinding.on_undo(loader_facts.forget)
    notebook.install(runtime)
    api.connect(runtime, ranges)
    dynamo.skip_own_functions()
    when_imported("torch.autograd", hooks.hook_backward)
    when_imported("torch.utils.data.dataloader", hooks.hook_fetch)
    when_imported("torch.utils.data._utils.fetch", worker.hook_fetchers)
    when_imported("torch.optim.optimizer", hooks.hook_optimizer)
    when_imported("torch.amp.grad_scaler", hooks.hook_scaler)
    when_imported("torch.cuda.graphs", hooks.hook_captures)
    when_imported("torch.accelerator.graphs", hooks.hook_captures)
    when_imported("torch.cuda.nvtx", ranges.hook_nvtx)
    when_imported("nvtx", ranges.hook_nvtx_package)


def uninstall() -> None:
    """Undo every hook; calls that are under way go on as if there had been none."""
    runtime.stop()
    pace.leave()
    gc_pauses.uninstall()
    rebinding.undo_all()
    rebinding.sweep()
    files.use_directories([])


def withdraw() -> None:
    """Undo everything; a signal handler that raises meanwhile leaves no half of it."""
    end_tasks()
    undisturbed(uninstall)


runtime.withdraw = withdraw
