"""An LSTM as a loop over 200 time steps of small operations; fixed: the whole sequence in one call."""
# expects: launch_bound

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


class CellByCell(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)

    def forward(self, x):
        state, outputs = None, []
        for moment in x.unbind(1):
            state = self.cell(moment, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1)


class AtOnce(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def train(seconds, fixed):
    torch.manual_seed(0)
    length, hidden = sized(200, 5), 128
    model = nn.Sequential((AtOnce if fixed else CellByCell)(64, hidden), nn.Linear(hidden, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(64, length, 64, device=DEVICE), torch.randn(64, length, 1, device=DEVICE)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
