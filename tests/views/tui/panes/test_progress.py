"""How far a run has come, out of what it prints."""

import pytest

from tests.views.playback import Output
from tuimon.views.tui.panes.output_pane import OutputPane
from tuimon.views.tui.panes.progress import Progress, progress_of

BAR = "Epoch 1:  45%|████▌     | 450/1000 [00:30<00:37, 14.8it/s, loss=0.312]"


@pytest.mark.parametrize(
    ("rows", "progress"),
    [
        ([BAR], Progress("Epoch 1: 450 of 1000, 00:37 left", "0.312")),
        (["  0%|          | 0/50 [00:00<?, ?it/s]"], Progress("0 of 50")),
        (["100%|██████████| 12/12 [1:02:03<00:00,  1.50s/it]"], Progress("12 of 12, 00:00 left")),
        (["step 7/200 | loss: 1.5e-3 | lr 0.1"], Progress("step 7 of 200", "1.5e-3")),
        (["Iter 7 of 200", "train_loss 0.25"], Progress("iter 7 of 200", "0.25")),
        (["step 1/9 loss 0.9", "step 2/9 loss 0.8"], Progress("step 2 of 9", "0.8")),
        (["downloading:  12%|█▏        | 12.0M/100M [00:01<00:09, 9.5MB/s]"], None),
        (["weight loss program", "loss: nan", "hello"], None),
        ([], None),
    ],
)
def test_progress(rows, progress):
    assert progress_of(rows) == progress


def test_it_follows_the_output():
    pane = OutputPane()
    assert pane.progress() is None
    pane.tail = Output(f"{BAR}\r{BAR.replace('450', '451')}".encode())
    pane.read_output()
    assert pane.progress() == Progress("Epoch 1: 451 of 1000, 00:37 left", "0.312")
