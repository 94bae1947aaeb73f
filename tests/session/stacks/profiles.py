"""A literal training run whose samples have a known shape: 10 s of a trainer with two workers."""

from tests.session.records import frames, header, process, session_of, stacks, steps, threads

MAIN = 4242
TORCH = "/opt/env/lib/python3.11/site-packages/torch"
APP = "/home/me/project"
PLACES = (
    (f"{APP}/train.py", 90, "<module>", "main()", True),  # 0
    (f"{APP}/train.py", 44, "main", "for x, y in loader:", True),
    (f"{APP}/train.py", 52, "main", "loss = criterion(model(x), y)", True),
    (f"{APP}/train.py", 55, "main", "loss.backward()", True),
    (f"{APP}/train.py", 57, "main", "opt.step()", True),
    (f"{APP}/train.py", 71, "main", "log(loss.item())", True),  # 5
    (f"{TORCH}/utils/data/dataloader.py", 733, "__next__"),
    (f"{TORCH}/utils/data/dataloader.py", 1488, "_try_get_data"),
    ("/usr/lib/python3.11/selectors.py", 415, "select"),
    (f"{TORCH}/nn/modules/module.py", 1773, "_call_impl"),
    (f"{APP}/model.py", 21, "forward", "x = self.conv(x)", True),  # 10
    (f"{APP}/model.py", 24, "forward", "mask = (x > 0).nonzero()", True),
    (f"{TORCH}/nn/modules/conv.py", 543, "_conv_forward"),
    (f"{TORCH}/_tensor.py", 630, "backward"),
    (f"{TORCH}/autograd/graph.py", 824, "_engine_run_backward"),
    (f"{TORCH}/optim/optimizer.py", 485, "wrapper"),  # 15
    (f"{TORCH}/optim/adam.py", 380, "_single_tensor_adam"),
    (f"{TORCH}/utils/data/_utils/worker.py", 349, "_worker_loop"),
    (f"{TORCH}/utils/data/_utils/fetch.py", 52, "fetch"),
    (f"{APP}/transforms.py", 31, "augment", "out = cv(img, kernel)", True),
    (f"{APP}/data.py", 12, "__getitem__", "img = Image.open(self.files[i])", True),  # 20
    (f"{APP}/metrics.py", 8, "log", "time.sleep(0.001)", True),
)  # fmt: skip

#: The trainer's samples of a second: (frame ids root first, count).
TRAINER = (
    ((0, 1, 6, 7, 8), 62),
    ((0, 2, 9, 10, 9, 12), 14),
    ((0, 2, 9, 11), 6),
    ((0, 3, 13, 14), 10),
    ((0, 4, 15, 16), 4),
    ((0, 5), 2),
    ((0, 5, 21), 2),
)
WORKER = (((0, 1, 17, 18, 20, 19), 90), ((0, 1, 17, 18, 20), 10))


def session(seconds=10):
    """The run folded."""
    return session_of(*records(seconds))


def records(seconds=10, gpu=True):
    """The run's records."""
    found = [
        header(pid=MAIN, cpu_count=16),
        process(MAIN, gpu_uuids=["GPU-0"] if gpu else []),
        process(4300, "worker", ppid=MAIN, start_unix_s=1.7e9 + 1),
        process(4301, "worker", ppid=MAIN, start_unix_s=1.7e9 + 1),
        frames(*PLACES),
    ]
    for t in range(1, seconds + 1):
        phases = {"data": 62.0, "forward": 20.0, "backward": 10.0, "optimizer": 4.0, "other": 4.0}
        found.append(steps(float(t), phases, count=10, pid=MAIN, first_index=10 * t))
        found.append(stacks(t + 1.0, *TRAINER, pid=MAIN))
        found += [stacks(t + 1.0, *WORKER, pid=pid) for pid in (4300, 4301)]
        found.append(
            threads(t + 1.0, (MAIN, "python", 0.4, "waiting"), (4312, "pt_autograd_0", 0.1, "waiting"), pid=MAIN)
        )
        found += [threads(t + 1.0, (pid, "python", 0.99, "running"), pid=pid) for pid in (4300, 4301)]
    return found
