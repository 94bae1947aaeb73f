"""CPU trainings for rules: a literal run with a data loader."""

from msgspec import structs

from tests.session.records import frames, header, process, session_of, stacks, steps, thread
from tuimon.diagnosis.judging import diagnose
from tuimon.records import Loader, LoaderFacts, LoaderWorker, MeasuredBatches, Notice, Place

NO_GPU = Notice(t=0, pid=0, source="gpu", level="info", message="no driver")
STARVED = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}
HEALTHY = {"data": 1, "forward": 40, "backward": 45, "optimizer": 10, "other": 4}
SIDE = {"data": 1, "forward": 30, "backward": 35, "optimizer": 9, "other": 25}

#: Places of a training: those that make its data, and below them its passes and its update.
AUGMENT = frames(
    ("/lib/site-packages/torch/utils/data/_utils/worker.py", 300, "_worker_loop"),
    ("data.py", 31, "augment", "out = cv(img)", True),
    ("data.py", 33, "augment", "out = flip(out)", True),
    ("train.py", 44, "main", "for x, y in loader:", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_fetch"),
    ("train.py", 50, "main", "torch.save(model, path)", True),
    ("/lib/site-packages/torch/utils/data/_utils/collate.py", 12, "default_collate"),
    ("data.py", 60, "my_collate", "return pad(batch)", True),
    ("train.py", 46, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 48, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 9, "tuimon_backward"),
)
FORWARD, BACKWARD = [8, 9], [10, 11]


def run(phases, *more, **facts):
    """The findings in windows of these phases (ms per step), with more records; ``facts``: see ``training``."""
    return diagnose(training(phases, *more, **facts))


def training(phases, *more, cpu_count=2, windows=12, **of_steps):
    """A session of windows of these phases (ms per step), with more records; ``of_steps``: facts of each window."""
    made = (structs.replace(steps(t, phases, first_index=10 * (t - 1)), **of_steps) for t in range(1, windows + 1))
    return session_of(header(cpu_count=cpu_count), process(), NO_GPU, AUGMENT, *made, *more)


def workers(number, cpu_ratio, *counted, delay=None, state="running", role="worker"):
    """Records of the trainer's DataLoader workers, or of its other children."""
    for pid in range(201, 201 + number):
        yield process(pid, role, ppid=100)
        yield thread(12, cpu_ratio, delay, pid=pid, state=state, name="pt_data_worker")
        yield stacks(12, *counted, pid=pid)


def loader(workers, *made, fetches=10, counts=(), **facts):
    """A window of the training's loader with so many workers; ``made``: by each, the batches and the ms that their
    items, collating and waiting took in all; ``counts``: of the window; ``facts``: of the loader.
    """
    rows = [LoaderWorker(201 + n if workers else 100, n, *row) for n, row in enumerate(made)]
    known = LoaderFacts(**{"dataset": "Rows", "kind": "map", "workers": workers} | facts)
    counted = {"number": 1, "window_s": 1.0, "role": "train", "fetches": fetches, "workers": rows, "facts": known}
    return Loader(t=12, pid=100, **counted | dict(counts))


def sends_views(sending_ms=100.0, whole_kib=96 << 10, ms_per_batch=2.0, waits_ms=100.0):
    """The window of a loader whose two workers send batches of 0.5 MiB, of views into so much."""
    batches = MeasuredBatches(1, 1 << 19, 8, 1, tensors=8, storage_bytes=whole_kib and whole_kib << 10)
    made = (10, 10 * ms_per_batch, 0.0, 10 * waits_ms, 10 * sending_ms)
    counts = {"batches": batches, "ready_fetches": 100, "ready_none": 90}
    return loader(2, made, made, counts=counts, prefetch=2, item=Place("data.py", 31, "__getitem__"))
