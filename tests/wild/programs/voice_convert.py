"""Trains a voice conversion net with ignite; planted: after each iteration a handler aligns spectra in plain Python."""

# expects: side_work
# package: ignite
import math

import torch
from ignite.engine import Engine, Events
from ignite.metrics import RunningAverage
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MELS, FRAMES = 40, 96


class Converter(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.inp = nn.Conv1d(MELS, width, 5, padding=2)
        self.body = nn.ModuleList(nn.Conv1d(width, 2 * width, 5, padding=2) for _ in range(depth))
        self.rnn = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(width, MELS)

    def forward(self, mel):
        hidden = self.inp(mel.transpose(1, 2))
        for conv in self.body:
            hidden = hidden + nn.functional.glu(conv(hidden), dim=1)
        hidden, _ = self.rnn(hidden.transpose(1, 2))
        return self.out(hidden)


def parallel_corpus(count=192):
    """Smooth random spectrograms of one speaker; another's are late, and filtered."""
    spectra = torch.randn(count, FRAMES + 16, MELS).cumsum(dim=1) * 0.2
    spectra -= spectra.mean(dim=1, keepdim=True)
    source, target = spectra[:, 8 : 8 + FRAMES], spectra[:, 5 : 5 + FRAMES] * torch.linspace(1.2, 0.6, MELS)
    return TensorDataset(source.contiguous(), target)


class Distortion:
    """Mel-cepstral distortion along the best alignment in time, within a band."""

    def __init__(self, band=30, coefficients=13):
        self.band = band
        order, mel = torch.arange(1, coefficients + 1), torch.arange(MELS)
        self.dct = torch.cos(torch.pi / MELS * torch.outer(mel + 0.5, order)) * (2 / MELS) ** 0.5

    def align(self, a, b):
        cost = torch.cdist(a, b).tolist()
        rows, columns = len(a), len(b)
        acc = [[math.inf] * (columns + 1) for _ in range(rows + 1)]
        acc[0][0] = 0.0
        for i in range(1, rows + 1):
            for j in range(max(1, i - self.band), min(columns, i + self.band) + 1):
                acc[i][j] = cost[i - 1][j - 1] + min(acc[i - 1][j], acc[i][j - 1], acc[i - 1][j - 1])  # <- cause
        return acc[rows][columns] / rows

    def __call__(self, engine):
        _, predicted, target = engine.state.output
        scores = [self.align(a @ self.dct, b @ self.dct) for a, b in zip(predicted, target, strict=True)]
        engine.state.distortion = sum(scores) / len(scores)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Converter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.L1Loss()

    def update(engine, batch):
        model.train()
        source, target = batch
        predicted = model(source)
        loss = criterion(predicted, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), predicted.detach(), target

    trainer = Engine(update)
    RunningAverage(output_transform=lambda output: output[0]).attach(trainer, "loss")
    trainer.add_event_handler(Events.ITERATION_COMPLETED if PLANTED else Events.EPOCH_COMPLETED(every=10), Distortion())
    clock = Clock()

    @trainer.on(Events.ITERATION_COMPLETED)
    def tick(engine):
        if not clock.step():
            engine.terminate()

    @trainer.on(Events.EPOCH_COMPLETED(every=10))
    def report(engine):
        state = engine.state
        print(f"epoch {state.epoch} L1 {state.metrics['loss']:.3f} distortion {state.distortion:.2f}")

    trainer.run(DataLoader(parallel_corpus(), batch_size=8, shuffle=True, drop_last=True), max_epochs=1_000_000)
    clock.tell()


if __name__ == "__main__":
    main()
