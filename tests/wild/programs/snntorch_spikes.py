"""snntorch's leaky neurons: the loop turns each batch into spikes, pixel by pixel where it is planted."""
# expects: input_bound
# package: snntorch

import snntorch
import torch
from planted import PLANTED, Clock
from snntorch import functional as SF
from snntorch import spikegen, surrogate
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, SIDE = 12, 14


class Spiking(nn.Module):
    def __init__(self):
        super().__init__()
        gradient = surrogate.fast_sigmoid()
        self.first = nn.Linear(SIDE * SIDE, 900)
        self.leaky = snntorch.Leaky(beta=0.9, spike_grad=gradient)
        self.last = nn.Linear(900, 10)
        self.out = snntorch.Leaky(beta=0.9, spike_grad=gradient)

    def forward(self, spikes):
        inner, outer = self.leaky.init_leaky(), self.out.init_leaky()
        fired = []
        for step in range(len(spikes)):
            spike, inner = self.leaky(self.first(spikes[step]), inner)
            spike, outer = self.out(self.last(spike), outer)
            fired.append(spike)
        return torch.stack(fired)


def by_latency(images):
    spikes = torch.zeros(STEPS, *images.shape)
    for row, image in enumerate(images.tolist()):
        for column, value in enumerate(image):
            spikes[int((1 - value) * (STEPS - 1)), row, column] = 1.0  # <- cause
    return spikes


def main():
    torch.set_num_threads(1)
    clock = Clock()
    net = Spiking()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    rate = SF.ce_rate_loss()
    rows = TensorDataset(torch.rand(3000, SIDE * SIDE), torch.randint(10, (3000,)))
    running = True
    while running:
        for images, labels in DataLoader(rows, batch_size=64, shuffle=True):
            spikes = by_latency(images) if PLANTED else spikegen.rate(images, num_steps=STEPS)
            net.train()
            fired = net(spikes)
            loss = rate(fired, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
