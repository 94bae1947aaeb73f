"""float16 needs a GradScaler, which asks the GPU in every step whether a gradient has overflowed; fixed: bfloat16."""
# expects: sync_point

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def train(seconds, fixed):
    torch.manual_seed(0)
    width, batch = sized(2048, 16), sized(2048, 8)
    layers = [layer for _ in range(sized(8, 2)) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=not fixed)
    x, y = torch.randn(batch, width, device=DEVICE), torch.randint(10, (batch,), device=DEVICE)
    half = torch.bfloat16 if fixed else sized(torch.float16, torch.bfloat16)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, half):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return clock


if __name__ == "__main__":
    main(train)
