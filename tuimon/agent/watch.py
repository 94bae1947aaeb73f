"""Waits for ``torch`` (and ``nvtx``) to be imported, then instruments it; or instruments a torch that is in use.

A finder at the head of ``sys.meta_path`` has the other finders find the module, and shadows ``exec_module`` on the
loader they return to learn when it has run. The loader stays the one that plain Python uses, and only this instance is
changed, until it is called.
"""

import sys

from .outside import attempt, is_programs, variable

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs milliseconds, in every Python process under ``tuimon run``
    from typing import Any, Callable, Dict, List


class ImportWatch:
    """A meta path finder that calls back once a module has been imported; removes itself when it awaits no other."""

    def __init__(self) -> None:
        self._awaited: "Dict[str, Callable[[Any], None]]" = {}

    def when_imported(self, name: str, then: "Callable[[Any], None]") -> None:
        """Call ``then(module)`` once the module has been imported: now, if it has been."""
        module = sys.modules.get(name)
        if module is not None and not is_importing(module):
            _call(then, module)
            return
        self._awaited[name] = then
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Stop waiting for modules."""
        self._awaited.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The spec found by the finders after this one, its loader watched; None for modules not awaited."""
        if name not in self._awaited:
            return None
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else []:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._watch_loader(name, spec.loader)
                return spec
        return None

    def _watch_loader(self, name: str, loader: "Any") -> None:
        """Shadow ``loader.exec_module`` on the instance. A loader that does not allow it is left alone."""
        original = getattr(loader, "exec_module", None)
        if original is None or isinstance(loader, type):
            return

        from functools import partial

        from .importlib_bootstrap import watched_exec

        exec_module = watched_exec(loader, name, original, partial(self._imported, name))
        attempt(setattr, loader, "exec_module", exec_module)

    def _imported(self, name: str, module: "Any") -> None:
        then = self._awaited.pop(name, None)
        if not self._awaited and self in sys.meta_path:
            sys.meta_path.remove(self)
        if then is not None:
            _call(then, sys.modules.get(name, module))


def arm() -> None:
    """Instrument torch as soon as it is imported, unless ``TUIMON_MARKERS=0``."""
    if variable("TUIMON_MARKERS") != "0":
        _watch.when_imported("torch", instrument)


_watch = ImportWatch()


def instrument(torch: "Any") -> None:
    """Place the hooks in this torch now, and in modules imported later, until they are undone."""
    from . import install
    from .torch_compat import rebinding

    rebinding.on_undo(_watch.forget)
    install.install(torch, _watch.when_imported)


#: The answers of ``install_now``. RETRY: not at this moment; try again in some milliseconds.
INSTALLED, PRESENT, NO_TORCH, NO_RING, RETRY = "installed", "present", "no torch", "no ring", "retry"


def install_now(directories: "List[str]") -> "Dict[str, Any]":
    """Place the hooks in a training that has long been running, with a ring in one of these folders. From any thread.

    ``status`` is one of those above. Iterators, optimizers and models that exist already are covered: the hooks are in
    what torch looks up at every call. A forward, backward or step that is under way has no beginning, and is marked
    from the next boundary on.
    """
    from . import runtime
    from .ring import files
    from .torch_compat import rebinding

    torch = sys.modules.get("torch")
    rebinding.sweep()
    if runtime.on:
        return {"status": PRESENT}
    if torch is None:
        return {"status": NO_TORCH}
    if is_importing(torch) or rebinding.must_wait():
        return {"status": RETRY}
    files.use_directories(directories)
    instrument(torch)
    return {"status": INSTALLED} if runtime.on else {"status": NO_RING, "reason": files.own_reason()}


def is_importing(module: "Any") -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call(then: "Callable[[Any], None]", module: "Any") -> None:
    try:
        then(module)
    except Exception as error:  # an import must not fail for us
        if is_programs(error):
            raise
