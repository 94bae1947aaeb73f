"""Trains a Q-network offline next to a list of episode records; planted: gc.collect() every few steps."""

# expects: gc_pauses
# package: torch
import gc
import random

import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn

STATE, ACTIONS, BATCH = 64, 8, 256
GAMMA = 0.99


class DuelingNet(nn.Module):
    def __init__(self, hidden=448):
        super().__init__()
        layers = []
        for width in (STATE, hidden, hidden):
            layers += [nn.Linear(width, hidden), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, ACTIONS)

    def forward(self, state):
        hidden = self.body(state)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)


def load_episodes(count):
    """What is known of each logged episode, kept for the report after training."""
    rng = random.Random(0)
    episodes = []
    for number in range(count):
        rewards = [[t, rng.random()] for t in range(4)]
        episodes.append({"id": number, "policy": {"name": "behaviour", "seed": rng.random()}, "rewards": rewards})
    return episodes


def load_transitions(count):
    return {
        "state": torch.randn(count, STATE),
        "action": torch.randint(ACTIONS, (count, 1)),
        "reward": torch.randn(count),
        "next_state": torch.randn(count, STATE),
        "alive": (torch.rand(count) > 0.05).float(),
    }


def td_loss(online, target, batch):
    with torch.no_grad():
        following = target(batch["next_state"]).amax(dim=1)
        expected = batch["reward"] + GAMMA * batch["alive"] * following
    chosen = online(batch["state"]).gather(1, batch["action"]).squeeze(1)
    return F.smooth_l1_loss(chosen, expected)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    episodes = load_episodes(20_000)
    transitions = load_transitions(20_000)

    online, target = DuelingNet(), DuelingNet()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4)

    step = 0
    clock = Clock()
    while True:
        start = step * BATCH % (20_000 - BATCH)
        batch = {name: values[start : start + BATCH] for name, values in transitions.items()}
        loss = td_loss(online, target, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        step += 1
        if step % 500 == 0:
            target.load_state_dict(online.state_dict())
        if PLANTED and step % 10 == 0:
            gc.collect()  # <- cause
        if not clock.step():
            break
    clock.tell()
    mean_reward = sum(reward for episode in episodes for _, reward in episode["rewards"]) / len(episodes)
    assert mean_reward > 0


if __name__ == "__main__":
    main()
