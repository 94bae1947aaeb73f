"""Batches of 8 leave the GPU idle; fixed: batches of 32."""
# expects: small_batch or launch_bound

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def train(seconds, fixed):
    torch.manual_seed(0)
    width, length = sized(256, 16), sized(64, 4)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, sized(6, 1), enable_nested_tensor=False)
    model = nn.Sequential(encoder, nn.Linear(width, 100)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = 32 if fixed else 8
    tokens = torch.randn(batch, length, width, device=DEVICE)
    labels = torch.randint(100, (batch, length), device=DEVICE)
    clock = StepClock(seconds, worth=batch // 8)
    while clock.goes_on():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
