"""What the syntax of a program shows of its lines: counts set, loops, packages at work, blocks, what keeps objects."""

import pytest

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.records import SettingLine
from tuimon.sources.source_facts import FileFacts, SourceFacts

KEPT = {
    "losses and a total": """
losses, total, seen = [], 0.0, []
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    losses.append(loss)  # kept
    total += loss  # kept
    seen.append(loss.item())
    mean = total + float(loss)
""",
    "outputs of the model, by the step that made them": """
def fit(self, model):
    optimizer = SGD(model.parameters())
    for step, x in enumerate(loader):
        output = model(x)
        scaler.scale(output.mean()).backward()
        self.outputs[step] = output  # kept
        self.outputs["latest"] = output
        self.seen.append((step, output))  # kept
        self.numbers.append(output.detach())
""",
    "what a step returns": """
def step(x):
    loss = model.loss(x)
    loss.backward()
    return loss

def fit():
    latest = deque(maxlen=100)
    while True:
        history.append(step(next(batches)))  # kept
        latest.append(step(next(batches)))
        shown.append(step(next(batches)).item())
""",
    "a list for each step": """
for batch in loader:
    losses, loss = [], 0.0
    for part in batch:
        loss += task(part)
        losses.append(loss)
    total = sum(losses)
    total.backward()
    losses.clear()
""",
    "a total for each epoch": """
for epoch in range(9):
    total = 0.0
    for x in loader:
        loss = f(x)
        loss.backward()
        total = total + loss / len(loader)  # kept
""",
    "figures": """
import matplotlib.pyplot as plt
for step, x in enumerate(loader):
    figure, axes = plt.subplots()  # kept
    writer.add_figure("x", figure)
""",
    "figures that are closed": """
import matplotlib.pyplot as plt
for step, x in enumerate(loader):
    figure = plt.figure()
    plt.close(figure)
""",
    "averages, and losses of outputs": """
criterion = nn.CrossEntropyLoss()
optimizer = SGD(model.parameters())
for x, y in loader:
    output = model(x)
    loss = criterion(output, y)
    loss.backward()
    center = output.mean(0)
    average = 0.9 * average + 0.1 * center  # kept
    scores.append(F.mse_loss(output, y))  # kept
    hits.append(accuracy(output, y))
    with torch.no_grad():
        checks.append(criterion(model(held), held))
""",
    "hooks": """
for epoch in range(9):
    model[1].register_forward_hook(show)
    for x in loader:
        model[0].register_forward_hook(show)  # kept
        model(x).backward()
""",
    "hooks that are removed": """
for x in loader:
    handle = model[0].register_forward_hook(show)
    model(x).backward()
    handle.remove()
""",
    "objects in the loop": """
hard, rates, seen, latest = [], [], set(), {}
for epoch in range(9):
    outputs = []
    for step, x in enumerate(loader):
        loss = f(x)
        loss.backward()
        hard.append((loss.item(), x))  # kept
        rates.append(float(loss) / step)
        latest["batch"] = x
        outputs.append(x)
        seen.add(x)
    seen.clear()
    kept.append(outputs)
""",
    "objects in what the loop calls": """
NORMS, NAMES = [], {}

def register(function):
    NAMES[function.__name__] = function
    return function

def note(model):
    NORMS.append([parameter.grad.norm() for parameter in model.parameters()])  # kept

def make_logger():
    history = []
    def log(value):
        found = []
        found.append(value)
        history.append(value)  # kept
    return log

log = make_logger()
for x in loader:
    f(x).backward()
    note(model)
    log(x)
""",
    "objects in classes that another file uses": """
class Images:
    def __init__(self):
        self.cache, self.names, self.order = {}, [], deque(maxlen=9)
        self.fill()

    def fill(self):
        for name in listed():
            self.names.append(name)

    def __getitem__(self, index):
        self.cache[index] = image = load(index)  # kept
        self.order.append(image)
        self.latest.append(image)
        return image

class Replay:
    def __init__(self):
        self.moments, self.episode = [], []

    def push(self, moment):
        self.moments.append(moment)  # kept
        self.episode.append(moment)

    def end(self):
        self.episode = []
""",
    "another Python": "print loss\nloss.backward()",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=list(KEPT))
def test_what_is_kept(text):
    lines = text.strip("\n").encode().split(b"\n")
    marked = [number for number, line in enumerate(lines, 1) if b"# kept" in line]
    assert sorted(line.line for line in FileFacts(lines).keeping) == marked


def test_what_has_a_graph_comes_before_other_objects():
    text = "a, b = [], []\nfor x in y:\n    a.append(x)\n    loss = f(x)\n    loss.backward()\n    b.append(loss)\n"
    assert [(line.line, line.kept) for line in list(FileFacts(text.encode().splitlines()).keeping)] == [
        (6, "graph"),
        (3, "object"),
    ]


def test_a_sum_of_a_thousand_terms_is_passed_over():
    text = f"for x in y:\n    total += {' + '.join(['loss'] * 3000)}\n    loss.backward()\n"
    assert list(FileFacts(text.encode().splitlines()).keeping) == []


def test_at_most_four_of_a_file():
    text = "for x in y:\n    loss = f(x)\n    loss.backward()\n" + "    a.append(loss)\n" * 9
    assert [line.line for line in list(FileFacts(text.encode().splitlines()).keeping)] == [4, 5, 6, 7]


SCRIPT = b"""\
import torch

def main(args):
    if args.threads:
        torch.set_num_threads(args.threads)

    class Data:
        size = 3
    loader = DataLoader(Data(), num_workers=4)  # num_workers=8 was slower


main(parse())
"""


def test_each_has_its_line_and_function():
    assert list(FileFacts(SCRIPT.splitlines()).counts) == [
        SettingLine("threads", 5, "main", "torch.set_num_threads(args.threads)"),
        SettingLine("workers", 9, "main", "loader = DataLoader(Data(), num_workers=4)  # num_workers=8 was slower"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'os.environ["OMP_NUM_THREADS"] = "8"',
        b"os.environ['MKL_NUM_THREADS']='8'",
        b'os.environ.setdefault("OMP_NUM_THREADS", "8")',
        b"set_num_threads(8)",
    ],
)
def test_ways_to_set_threads(line):
    assert [(found.what, found.function) for found in FileFacts([line]).counts] == [("threads", "<module>")]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            b"handle = weight.register_post_accumulate_grad_hook(clip)",
            "weight.register_post_accumulate_grad_hook(clip)",
        ),
        (
            b"with graph.saved_tensors_hooks(\n    pack,\n    unpack,\n): pass",
            "graph.saved_tensors_hooks(pack, unpack)",
        ),
        (b"layer.register_full_backward_pre_hook(watch)", "layer.register_full_backward_pre_hook(watch)"),
    ],
)
def test_ways_to_register_what_autograd_calls(text, call):
    assert [(found.what, found.line, found.source) for found in FileFacts(text.splitlines()).counts] == [
        ("hook", 1, call)
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"psutil.Process().cpu_affinity()",
        b"module.register_forward_hook(watch)",
        b"optimizer.register_step_pre_hook(watch)",
        b'threads = os.environ["OMP_NUM_THREADS"]',
        b'threads = os.environ.get("OMP_NUM_THREADS", "1")',
        b'if os.environ["OMP_NUM_THREADS"] == "1": pass',
        b"# torch.set_num_threads(8)",
        b"sys.settrace(None)",
        b"def set_num_threads(count): pass",
        b"if loader.num_workers == 0: pass",
        b'parser.add_argument("--num_workers", default=4)',
    ],
)
def test_what_only_reads_or_names_them_sets_nothing(line):
    assert FileFacts([line]).counts == ()


def test_a_file_without_end_tells_few():
    assert len(FileFacts([b"loader = DataLoader(data, num_workers=4)"] * 99).counts) == 4


LOOPS = b"""\
for epoch in range(3):
    def forward(x):
        y = x.exp()
        for t in range(9):
            # each
            if t:
                y = y + x[
                    t
                ]
        z = [torch.tanh(row) for row in y]
        while True:
            z = z[1:]
        return y
    forward(x)
""".splitlines()


def test_which_lines_are_in_a_loop_of_their_function():
    facts = FileFacts(LOOPS)
    assert [line for line in range(100) if facts.loops(line)] == [6, 7, 8, 9, 10, 12, 14]


def test_how_many_loops_are_around_a_line():
    code = "while training:\n    loss.backward()\n    for p in parameters:\n        clip(p)\n    x = [f(y) for y in x]"
    assert [FileFacts(code.encode().splitlines()).loops(line) for line in range(1, 6)] == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("loop", "counts"),
    [
        ("for layer in self.layers: x = layer(x)", False),
        ("for n, (norm, mlp) in enumerate(blocks): x = x + mlp(norm(x))", False),
        ("for n in range(4): x = self.layers[n](x)", False),
        ("for layer in self.layers: x, h = self.layers[layer](x, h)", False),
        ("x = [head(x) for head in self.heads]", True),
        ("for n in range(4): out[n] = self.experts[n](x[rows[n]])", True),
        ("for row in x: y.append(self.layer(row))", True),
        ("for t in range(9): h = self.cell(x[:, t], h)", True),
        ("for row in x: row.exp()", True),
        ("while True: layer(x)", True),
    ],
)
def test_loops_over_layers_do_not_count(loop, counts):
    assert FileFacts(loop.encode().splitlines()).loops(1) == counts


@pytest.mark.parametrize(
    ("loop", "polls"),
    [
        ("while not self.ready: time.sleep(0.02)", True),
        ("while len(self.ready) > n: pass", True),
        ("while True:\n  with lock:\n    if ready:\n      return ready.popleft()\n  sleep(1e-3)", True),
        ("while queue.full():\n  if closed: break\n  continue", True),
        ("while not done:\n  x = read()\n  time.sleep(0.02)", False),
        ("while step(): log()", False),
        ("for row in rows: time.sleep(0.02)", False),
    ],
)
def test_which_loops_only_wait(loop, polls):
    lines = f"def f():\n  {loop.replace(chr(10), chr(10) + '  ')}\n  x = 1".encode().splitlines()
    assert FileFacts(lines).polling == (set(range(2, len(lines))) if polls else set())


@pytest.mark.parametrize(
    ("body", "polls"),
    [
        ("line = f.readline()\n  if line: yield line\n  else: sleep(0.1)", {5}),
        ("line = f.readline()\n  if not line:\n    time.sleep(0.1)\n    continue\n  yield line", {5}),
        ("line = f.readline()\n  if line: yield line\n  else: report(); sleep(0.1)", set()),
        ("if late:\n    time.sleep(0.1)\n    step()", {2, 3}),
        ("if self.rows and len(self.rows) > n:\n    write(self.rows.popleft())", {2, 3}),
        ("if self.rows: write(self.rows.popleft())", set()),
        ("if ready():\n    write()", set()),
        ("if self.rows:\n    write()\n  else:\n    read()", set()),
    ],
)
def test_which_branches_of_a_loop_only_wait(body, polls):
    assert FileFacts(f"def f():\n while True:\n  {body}".encode().splitlines()).polling == polls


@pytest.mark.parametrize(
    ("body", "skips"),
    [
        ("for n, x in enumerate(self.read()):\n  if n % self.workers == self.worker:\n   yield x", True),
        ("for n, x in enumerate(self.read()):\n  if n % world != rank: continue\n  yield augment(x)", True),
        ("for x in self.read():\n  n += 1\n  if n // size % world != rank: continue\n  yield x", True),
        ("for key, x in self.read():\n  if crc32(key) % world == rank:\n   yield x", True),
        ("for n, x in enumerate(self.read()):\n  rows.append(x)\n  if n % 64 == 63:\n   yield stack(rows)", False),
        ("for n, x in enumerate(loader):\n  step(x)\n  if n % 100 == 0: log()", False),
        ("for n, x in enumerate(loader):\n  if n % 100 == 0: log()\n  step(x)", False),
        ("for n, x in enumerate(self.read()):\n  if n % 2 == 0:\n   yield x\n  else:\n   yield flip(x)", False),
        ("for n, x in enumerate(self.read()):\n  if n > first: yield x", False),
        ("for x in self.read():\n  yield x", False),
    ],
)
def test_which_loops_take_one_in_n_items(body, skips):
    assert FileFacts(f"def f():\n {body}".encode().splitlines()).skipping == ({2} if skips else set())


FILES = TargetFiles(None, ended=OURS)
BLOCKS = """\
import torch
@torch.no_grad()
def estimate_loss():
    for k in range(200):
        losses[k] = model(*get_batch())
class Trainer:
    @property
    @torch.inference_mode
    def score(self):
        return self.model(held_out)
    def step(self, x):
        with autocast(), torch.no_grad():
            target = self.target(x)

            def again():
                return self.model(x)
        loss = self.model(x) - target
        with torch.set_grad_enabled(False): return loss
        with torch.set_grad_enabled(training):
            loss.backward()
        if loss < best:
            with torch.inference_mode(mode=False):
                save()
            with torch.no_grad():
                with lock:
                    test()
"""


@pytest.mark.parametrize(
    ("line", "block"),
    [
        (1, None),
        (4, (2, 5)),
        (10, (7, 10)),
        (12, None),  # entering it
        (13, (12, 16)),
        (16, None),  # a function that is only defined there
        (17, None),
        (18, (18, 18)),
        (20, None),  # nobody knows what it is set to
        (23, None),
        (26, (24, 26)),
    ],
)
def test_the_block_around_a_line(line, block):
    assert FileFacts(BLOCKS.encode().splitlines()).without_gradients(line) == block


def test_what_is_no_python_has_none(tmp_path):
    (tmp_path / "a.py").write_text("with torch.no_grad():\n    print 'of Python 2'\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    for name, line in (("a.py", 2), ("b.py", 1), ("gone.py", 1)):
        assert SourceFacts().of(str(tmp_path / name), FILES).without_gradients(line) is None
