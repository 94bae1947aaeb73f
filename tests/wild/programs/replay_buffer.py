"""torchrl's replay buffer without a DataLoader: returns are discounted step by step for each sample drawn."""
# expects: input_bound
# package: torchrl

import torch
from planted import PLANTED, Clock
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer


def discounted(rewards):
    out = []
    for row in rewards.tolist():  # <- cause
        total = 0.0
        for reward in reversed(row):  # <- cause
            total = reward + 0.99 * total  # <- cause
        out.append(total)
    return torch.tensor(out)


def draw(buffer):
    sample = buffer.sample()
    target = discounted(sample["rewards"]) if PLANTED else sample["rewards"][:, 0]
    return sample["state"], target


def main():
    torch.set_num_threads(1)
    clock = Clock()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(4000), batch_size=128)
    buffer.extend(TensorDict({"state": torch.randn(4000, 24), "rewards": torch.rand(4000, 800)}, batch_size=[4000]))
    critic = nn.Sequential(nn.Linear(24, 800), nn.Tanh(), nn.Linear(800, 800), nn.Tanh(), nn.Linear(800, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
    while True:
        state, target = draw(buffer)
        value = critic(state)[:, 0]
        loss = nn.functional.smooth_l1_loss(value, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
