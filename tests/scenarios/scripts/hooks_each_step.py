"""Each step registers a hook for the activations once more, and none is ever removed."""
# expects: memory_pressure/growing

import torch
import torch.nn.functional as F
from laps import options, small_model, steps


def recorder():
    """A hook, and what it has seen last."""
    seen = {}

    def record(module, inputs, output):
        seen["output"] = output.detach().clone()

    return record, seen


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in steps(args.seconds):
        x = torch.randn(64, 256)
        if step == 0 or not args.fixed:
            record, seen = recorder()
            model[0].register_forward_hook(record)  # <- cause
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert seen["output"].shape == x.shape


if __name__ == "__main__":
    main()
