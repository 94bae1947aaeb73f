"""A small transformer, compiled with CUDA graphs; fixed: four times the batch. Prints a digest of its weights."""
# expects: launch_bound or small_batch

import hashlib

import torch
from common import DEVICE, ON_GPU, StepClock, main, sized
from torch import nn

DIGEST_AFTER = sized(300, 2)


def digest(model):
    weights = (parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    return hashlib.sha1(b"".join(weights)).hexdigest()


def train(seconds, fixed):
    torch.manual_seed(0)
    width, batch = sized(256, 16), sized(32, 4)
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    how = {"mode": "reduce-overhead"} if ON_GPU else {"backend": "eager"}
    model = torch.compile(nn.Sequential(encoder, nn.Linear(width, 64)).to(DEVICE), **how)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    shape = (4 * batch if fixed else batch, 64)
    x, y = torch.randn(*shape, width, device=DEVICE), torch.randn(*shape, 64, device=DEVICE)
    clock = StepClock(seconds, worth=4 if fixed else 1)
    while clock.goes_on():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if clock.steps == DIGEST_AFTER and not fixed:
            print(f"weights after {DIGEST_AFTER} steps: {digest(model)}", flush=True)
    return clock


if __name__ == "__main__":
    main(train)
