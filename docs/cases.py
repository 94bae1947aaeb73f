"""The cases that README and docs show: their recorded logs, and the gains of their fixes, measured without tuimon."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A program of ``bench/gpu/programs`` on an NVIDIA H100 (driver 580, torch 2.11).

    The times are mean steps, measured without tuimon in one process: as the program is, fixed, and as it is again.
    """

    log: str
    rule: str
    training: str
    fix: str
    as_it_is_ms: float
    fixed_ms: float
    again_ms: float

    @property
    def before_ms(self) -> float:
        """The mean step of both measurements of the program as it is."""
        return (self.as_it_is_ms + self.again_ms) / 2

    @property
    def gain(self) -> float:
        """How much faster the fixed program is, as `make gpu-check` computes it."""
        return self.before_ms / self.fixed_ms


CASES = {
    case.log: case
    for case in (
        Case("h100_seed_dummy_loader_pyspy", "input_bound", "two slow DataLoader workers",
             "12 workers", 37.8, 7.1, 38.4),
        Case("h100_cell_by_cell", "launch_bound", "an LSTM as a loop over time steps", "`nn.LSTM`", 70.7, 2.7, 68.7),
        Case("h100_masked_loss", "sync_point", "a loss over `errors[mask]`", "`torch.where`", 18.0, 11.7, 19.3),
        Case("h100_pageable_images", "transfer_bound", "batches of 77 MB from ordinary memory",
             "pinned memory, one batch ahead", 13.9, 1.85, 14.8),
        Case("h100_adam_one_by_one", "optimizer_bound", "AdamW, 800 tensors one by one", "`fused=True`", 103, 46, 146),
        Case("h100_amp_on_a_small_model", "launch_bound", "autocast on a small model", "no autocast", 13.8, 8.5, 12.6),
        Case("h100_guard_in_every_layer", "sync_point", "`if x.abs().max() > 1e4` in 24 layers, GPU busy 93 %",
             "`torch.where`", 58.9, 55.0, 59.5),
    )
}  # fmt: skip
