"""Which lines of a training keep what has a graph, open figures, add hooks or fill containers that nothing empties."""

import pytest

from tuimon.sources.source_facts import FileFacts


def kept(text):
    """Numbers of the lines that are marked, and of those that are found."""
    lines = text.strip("\n").encode().split(b"\n")
    return [number for number, line in enumerate(lines, 1) if b"# kept" in line], [
        line.line for line in FileFacts(lines).keeping
    ]


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
    marked, found = kept(text)
    assert sorted(found) == marked


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
