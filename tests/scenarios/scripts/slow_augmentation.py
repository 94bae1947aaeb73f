"""Two workers on two cores cannot keep up with one line of augmentation."""
# expects: input_bound/slow_item

import torch
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self, cheap):
        self.cheap = cheap

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        signal = torch.randn(128)
        signal = smooth_at_once(signal) if self.cheap else smooth(signal)
        return signal, index % 4


def smooth(signal):
    out = signal.clone()
    for i in range(1, len(signal)):
        out[i] = 0.9 * out[i - 1] + 0.1 * signal[i]  # <- cause
    return out


def smooth_at_once(signal):
    decay = 0.9 ** torch.arange(len(signal), dtype=torch.float32)
    return torch.cumsum(signal / decay, 0) * decay * 0.1


def main():
    args = options()
    loader = DataLoader(Signals(args.fixed), batch_size=32, num_workers=2, shuffle=True)
    net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    fit(args, optimizer, loader, lambda signal, label: nn.functional.cross_entropy(net(signal), label))


if __name__ == "__main__":
    main()
