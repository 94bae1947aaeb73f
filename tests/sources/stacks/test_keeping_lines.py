"""Which lines in the loops of a training keep what has a graph, or open figures that nobody closes."""

import pytest

from tuimon.proc.target_files import TargetFiles
from tuimon.records import KeepingLine
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame
from tuimon.sources.stacks.frames.keeping_lines import keeping_lines


def kept(text):
    """Numbers of the lines that are marked, and of those that are found."""
    lines = text.strip("\n").encode().split(b"\n")
    return [number for number, line in enumerate(lines, 1) if b"# kept" in line], [
        line.line for line in keeping_lines(lines)
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
    "another Python": "print loss\nloss.backward()",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=list(KEPT))
def test_what_is_kept_with_its_graph(text):
    marked, found = kept(text)
    assert found == marked


def test_a_sum_of_a_thousand_terms_is_passed_over():
    text = f"for x in y:\n    total += {' + '.join(['loss'] * 3000)}\n    loss.backward()\n"
    assert keeping_lines(text.encode().splitlines()) == []


def test_at_most_four_of_a_file():
    text = "for x in y:\n    loss = f(x)\n    loss.backward()\n" + "    a.append(loss)\n" * 9
    assert [line.line for line in keeping_lines(text.encode().splitlines())] == [4, 5, 6, 7]


def test_the_first_frame_of_a_file_brings_them(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("for x in y:\n    loss = f(x)\n    loss.backward()\n    a.append(loss)\n")
    ids = FrameIds()
    files = TargetFiles(None)
    for line in (2, 3):
        ids.id_of(RawFrame(str(script), line, "<module>"), files)
    _, frames = ids.pop_new_frames()
    assert [frame.keeping for frame in frames] == [(KeepingLine(4, "<module>", "a.append(loss)"),), ()]
