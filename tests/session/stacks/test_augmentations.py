"""Modules that change the batch before a model sees it, and modules that only look like them."""

from __future__ import annotations

import pytest

from tests.session.stacks.classified import last_of
from tuimon.records import Frame
from tuimon.session.stacks.samples import Sample

SITE = "/v/lib/python3.11/site-packages"
LINES = {
    10: "for images, labels in loader:",
    11: "images = augment(images)",
    12: "images = self.mel(images)",
    13: "wanted = teacher(images)",
    14: "found = model(images)",
    15: "loss = criterion(found, wanted)",
    16: "loss.backward()",
    17: "optimizer.step()",
    18: "score = augment(found)",
}
BELOW = {
    "fetch": Frame(f"{SITE}/torch/utils/data/dataloader.py", 1, "__next__"),
    "backward": Frame(f"{SITE}/torch/_tensor.py", 3, "backward"),
    "update": Frame(f"{SITE}/torch/optim/adam.py", 4, "step"),
    "call": Frame(f"{SITE}/torch/nn/modules/module.py", 5, "_call_impl"),
    "sequential": Frame(f"{SITE}/torch/nn/modules/container.py", 6, "forward"),
    "linear": Frame(f"{SITE}/torch/nn/modules/linear.py", 7, "forward"),
    "crop": Frame(f"{SITE}/kornia/augmentation/base.py", 8, "forward"),
    "flow": Frame(f"{SITE}/flows/transform.py", 8, "forward"),
    "own": Frame("train.py", 2, "forward", "image[:, row] = 0", True),
}
TRAINING = [(10, "fetch"), (14, "call linear"), (16, "backward"), (17, "update")]


def sample(line: int, below: str, others: list[tuple[int, str]], function: str = "main", source: str = "") -> Sample:
    """A sample at a line of the loop, among others."""

    def stack(at: int, called: str) -> list[Frame]:
        text = source if source and at == line else LINES[at]
        return [Frame("train.py", at, function, text, True), *(BELOW[name] for name in called.split())]

    return last_of(*(stack(*each) for each in [*others, (line, below)]), has_loader=True)


@pytest.mark.parametrize(
    ("line", "below"),
    [(11, "call sequential call own"), (11, "call own"), (11, "call sequential"), (12, "call crop"), (11, "call crop")],
)
def test_a_module_that_changes_the_batch_before_the_model_is_data_by_its_name_or_its_library(
    line: int, below: str
) -> None:
    found = sample(line, below, TRAINING)
    assert (found.phase, found.moved_from) == ("data", "forward")


@pytest.mark.parametrize(
    ("line", "below"),
    [
        (13, "call linear"),  # a teacher
        (13, "call own"),  # one with parameters of its own
        (12, "call flow"),
        (11, "call sequential call linear"),  # it has layers: what is named so is learned
        (14, "call own"),
        (15, "call own"),  # a loss
    ],
)
def test_other_modules_are_forward(line: int, below: str) -> None:
    assert sample(line, below, TRAINING).phase == "forward"


def test_on_one_line_with_the_model_it_is_not_told_from_it() -> None:
    source = "loss = criterion(self.net(self.augment(images)), labels)"
    assert sample(14, "call own", TRAINING, source=source).phase == "forward"


def test_layers_that_other_samples_show_in_it_count_too() -> None:
    assert sample(11, "call own", [*TRAINING, (11, "call sequential call linear")]).phase == "forward"


def test_where_no_other_module_runs_it_is_the_model_whatever_its_name() -> None:
    training = [(10, "fetch"), (16, "backward"), (17, "update")]
    assert sample(11, "call own", training).phase == "forward"


def test_after_the_update_it_makes_no_batch() -> None:
    assert sample(18, "call own", TRAINING).phase == "other"


def test_in_the_model_it_is_the_models() -> None:
    found = sample(14, "call own call crop", TRAINING)
    assert found.phase == "forward"


@pytest.mark.parametrize(
    "name", ["self.transforms", "gpu_augs", "random_crop", "MixUp()", "spec_augment", "preprocess"]
)
def test_names_of_augmentations(name: str) -> None:
    assert sample(12, "call own", TRAINING, source=f"images = {name}(images)").phase == "data"


@pytest.mark.parametrize("name", ["self.transform", "transformer", "wavelet_transform", "cropped_model", "net"])
def test_names_of_models(name: str) -> None:
    assert sample(12, "call own", TRAINING, source=f"images = {name}(images)").phase == "forward"


def test_in_the_training_step_of_a_library_that_owns_the_loop_it_makes_the_batch_too() -> None:
    library = f"{SITE}/nice/trainer.py"
    main = Frame("train.py", 90, "main", "trainer.fit(model)", True)
    fit, step = Frame(library, 484, "fit"), ("train.py", "training_step")
    ways = [
        [Frame(library, 482, "fit"), BELOW["fetch"]],
        [fit, Frame(step[0], 22, step[1], "found = self.net(images)", True), BELOW["call"], BELOW["linear"]],
        [Frame(library, 486, "fit"), BELOW["backward"]],
        [Frame(library, 487, "fit"), BELOW["update"]],
        [fit, Frame(step[0], 21, step[1], "images = self.augment(images)", True), BELOW["call"], BELOW["own"]],
    ]
    found = last_of(*([main, *way] for way in ways), has_loader=True)
    assert (found.phase, found.moved_from) == ("data", "forward")
