"""Trainings in which nothing is wrong, each of another shape."""

import multiprocessing
import time
from itertools import pairwise, repeat

import torch
import torch.nn.functional as F
from laps import Laps, endless, fit, options
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset

import tuimon


# program: healthy_accumulation
# healthy
def healthy_accumulation(args):
    """Gradients of four small batches are accumulated, clipped, and applied."""
    torch.set_num_threads(2)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    head = nn.Linear(64, 4)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    data = DataLoader(TensorDataset(torch.randn(2000, 32, 64), torch.randint(4, (2000,))), batch_size=16)
    watch = Laps(args.seconds)
    for number, (x, y) in enumerate(endless(data), 1):
        watch.lap("data")
        loss = F.cross_entropy(head(encoder(x).mean(1)), y) / 4
        watch.lap("forward")
        loss.backward()
        watch.lap("backward")
        if number % 4 == 0:
            nn.utils.clip_grad_norm_(parameters, 1.0)
            watch.lap("other")
            optimizer.step()
            optimizer.zero_grad()
            watch.lap("optimizer")
            if not watch.step():
                break
    watch.report()


# program: healthy_compiled
# healthy
def healthy_compiled(args):
    """A compiled model."""
    model = nn.Sequential(*(Residual(256) for _ in range(4)), nn.Linear(256, 10))
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(128, 256), torch.randint(10, (128,))
    fit(args, optimizer, repeat((x, y)), lambda x, y: F.cross_entropy(compiled(x), y))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


# program: healthy_function
# healthy
def healthy_function(args):
    """A convolutional net on preloaded pictures."""
    torch.set_num_threads(2)
    pictures, labels = torch.randn(2000, 1, 28, 28), torch.randint(10, (2000,))
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18432, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def batches():
        while True:
            for chosen in torch.randperm(2000).split(50):
                yield pictures[chosen], labels[chosen]

    fit(args, optimizer, batches(), lambda x, y: F.cross_entropy(model(x), y))


# program: healthy_gan
# healthy
def healthy_gan(args):
    """Two networks with an optimizer each."""
    generator, critic = network(32, 256, 512, 128), network(128, 512, 256, 1)
    g_opt = torch.optim.SGD(generator.parameters(), lr=1e-3)
    c_opt = torch.optim.SGD(critic.parameters(), lr=1e-3)
    judge, ones, zeros = nn.BCEWithLogitsLoss(), torch.ones(256, 1), torch.zeros(256, 1)
    real, watch = torch.randn(4096, 128), Laps(args.seconds)

    def update(optimizer, loss):
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")

    while True:
        sample = real[torch.randint(4096, (256,))]
        watch.lap("data")
        fake = generator(torch.randn(256, 32))
        update(c_opt, judge(critic(sample), ones) + judge(critic(fake.detach()), zeros))
        update(g_opt, judge(critic(fake), ones))
        if not watch.step():
            break
    watch.report()


def network(*sizes):
    layers = [layer for sides in pairwise(sizes) for layer in (nn.Linear(*sides), nn.LeakyReLU(0.2))]
    return nn.Sequential(*layers[:-1])


# program: healthy_generation
# healthy
def healthy_generation(args):
    """Text is generated token by token, and each sequence is a step: the model takes the time, as it should."""
    model = Writer().eval()
    watch = Laps(args.seconds)
    with torch.inference_mode():
        while True:
            decode(model, 40, watch)
            watch.lap("other")
            tuimon.step()
            if not watch.step():
                break
    watch.report()


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(500, 512), nn.GRU(512, 512, 2, batch_first=True)
        self.words = nn.Linear(512, 500)

    def forward(self, word, state):
        output, state = self.cell(self.embed(word), state)
        return self.words(output), state


def decode(model, length, watch):
    word, state, text = torch.zeros(4, 1, dtype=torch.long), None, []
    for _ in range(length):
        scores, state = model(word, state)
        watch.lap("forward")
        word = scores[:, -1].softmax(-1).multinomial(1)
        text.append(word)
        watch.lap("other")
    return torch.cat(text, 1)


# program: healthy_lbfgs
# healthy
def healthy_lbfgs(args):
    """LBFGS: forward and backward inside the optimizer's step."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=5, history_size=4)
    x = torch.randn(1024, 64)
    y = x.square().sum(1, keepdim=True).sin()
    watch = Laps(args.seconds)

    def closure():
        optimizer.zero_grad()
        begin = time.perf_counter()
        loss = F.mse_loss(model(x), y)
        middle = time.perf_counter()
        loss.backward()
        watch.spent("forward", middle - begin)
        watch.spent("backward", time.perf_counter() - middle)
        return loss

    while True:
        optimizer.step(closure)
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.report()


# program: healthy_longer_episodes
# healthy
def healthy_longer_episodes(args):
    """Episodes get longer as a policy learns to stay up: each step has more data, and does nothing slower."""
    policy = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    first, last = 20, 500  # moments of an episode at the beginning and at the end

    def episodes():
        begin = time.perf_counter()
        while True:
            learned = min(1.0, (time.perf_counter() - begin) / args.seconds)
            yield (torch.randn(int(first + learned * (last - first)), 64).cumsum(0).tanh(),)

    def loss_of(states):
        choices = Categorical(logits=policy(states))
        return -choices.log_prob(choices.sample()).mean()

    fit(args, optimizer, episodes(), loss_of)


# program: healthy_muon
# healthy
def healthy_muon(args):
    """The optimizer multiplies matrices, for a third of the step: there is nothing to fuse, and no row to leave out."""
    weights = [nn.Parameter(0.05 * torch.randn(192, 192)) for _ in range(4)]

    def loss_of(x):
        for weight in weights:
            x = torch.relu(x @ weight)
        return x.square().mean()

    fit(args, Muon(weights), iter(lambda: (torch.randn(1500, 192),), None), loss_of)


class Muon(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            x = p.grad / (p.grad.norm() + 1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (2.0315 * gram @ gram - 4.775 * gram) @ x
            p.add_(x, alpha=-0.01)


# program: healthy_two_trainings
# healthy
def healthy_two_trainings(args):
    """Two trainings at 99 % of a core each, on two cores: they do not hurt each other."""
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=train_one, args=(n, args)) for n in (1, 2)]
    for process in both:
        process.start()
    for process in both:
        process.join()


def train_one(number, args):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = nn.LSTM(32, 128, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(32, 24, 32)
    fit(args, optimizer, repeat((x,)), lambda x: model(x)[0].square().mean())


if __name__ == "__main__":
    args = options()
    globals()[args.program](args)
