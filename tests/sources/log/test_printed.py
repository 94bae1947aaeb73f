"""How far a run has come, out of what it prints."""

import pytest

from tuimon.sources.log.printed import PrintedSource, progress_of

BAR = "Epoch 1:  45%|████▌     | 450/1000 [00:30<00:37, 14.8it/s, loss=0.312]"


@pytest.mark.parametrize(
    ("rows", "progress"),
    [
        ([BAR], ("Epoch 1: 450 of 1000, 00:37 left", "0.312")),
        (["  0%|          | 0/50 [00:00<?, ?it/s]"], ("0 of 50", "")),
        (["100%|██████████| 12/12 [1:02:03<00:00,  1.50s/it]"], ("12 of 12, 00:00 left", "")),
        (["step 7/200 | loss: 1.5e-3 | lr 0.1"], ("step 7 of 200", "1.5e-3")),
        (["Iter 7 of 200", "train_loss 0.25"], ("iter 7 of 200", "0.25")),
        (["step 1/9 loss 0.9", "step 2/9 loss 0.8"], ("step 2 of 9", "0.8")),
        (["downloading:  12%|█▏        | 12.0M/100M [00:01<00:09, 9.5MB/s]"], ("", "")),
        (["weight loss program", "loss: nan", "hello"], ("", "")),
        ([], ("", "")),
    ],
)
def test_progress(rows, progress):
    assert progress_of(rows) == progress


def test_it_follows_the_output(tmp_path):
    output = tmp_path / "output"
    source = PrintedSource(str(output), 42, clock=lambda: 7.0)
    assert list(source.read()) == []
    output.write_text(f"{BAR}\r\x1b[2K{BAR.replace('450', '451')}")
    (record,) = source.read()
    assert (record.t, record.pid) == (7.0, 42)
    assert (record.place, record.loss) == ("Epoch 1: 451 of 1000, 00:37 left", "0.312")
    with output.open("a") as file:
        file.write("\nsaved\n")
    assert list(source.read()) == []  # as before
    with output.open("a") as file:
        file.write("loss: 0.2\n")
    assert [(record.place, record.loss) for record in source.read()] == [("Epoch 1: 451 of 1000, 00:37 left", "0.2")]
