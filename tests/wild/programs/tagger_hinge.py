"""Trains a tagger with a structured hinge loss; planted: cost-augmented Viterbi in plain Python in the loss."""

# expects: compute_bound_cpu/python
# package: torch
import torch
from planted import PLANTED, Clock
from torch import nn

VOCAB, TAGS = 2000, 12
LENGTH, BATCH = 20, 24


class Encoder(nn.Module):
    def __init__(self, dim=96, hidden=128):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.mlp = nn.Sequential(nn.Linear(2 * hidden, 256), nn.ReLU(), nn.Linear(256, TAGS))

    def forward(self, words):
        hidden, _ = self.rnn(self.embed(words))
        return self.mlp(hidden)


def viterbi(scores, transitions):
    """Best tags of one sentence, from nested lists."""
    best, back = scores[0], []
    for row in scores[1:]:
        pointers, current = [], []
        for tag in range(TAGS):
            prev = max(range(TAGS), key=lambda p: best[p] + transitions[p][tag])  # <- cause
            pointers.append(prev)
            current.append(best[prev] + transitions[prev][tag] + row[tag])
        best = current
        back.append(pointers)
    tags = [max(range(TAGS), key=best.__getitem__)]
    for pointers in reversed(back):
        tags.append(pointers[tags[-1]])
    return tags[::-1]


def viterbi_batch(scores, transitions):
    """Best tags of a whole batch at once."""
    best, back = scores[:, 0], []
    for t in range(1, scores.shape[1]):
        best, pointers = (best.unsqueeze(2) + transitions).max(dim=1)
        best = best + scores[:, t]
        back.append(pointers)
    tags = [best.argmax(dim=1)]
    for pointers in reversed(back):
        tags.append(pointers.gather(1, tags[-1].unsqueeze(1)).squeeze(1))
    return torch.stack(tags[::-1], dim=1)


class StructuredHinge(nn.Module):
    """Score of the worst violating sequence minus that of the gold one."""

    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin
        self.transitions = nn.Parameter(0.1 * torch.randn(TAGS, TAGS))

    def score(self, emissions, tags):
        emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(dim=1)
        return emitted + self.transitions[tags[:, :-1], tags[:, 1:]].sum(dim=1)

    @torch.no_grad()
    def decode(self, emissions, gold):
        augmented = emissions + self.margin
        augmented.scatter_add_(2, gold.unsqueeze(2), torch.tensor(-self.margin).expand(*gold.shape, 1))
        if PLANTED:
            transitions = self.transitions.tolist()
            return torch.tensor([viterbi(sentence, transitions) for sentence in augmented.tolist()])
        return viterbi_batch(augmented, self.transitions)

    def forward(self, emissions, gold):
        predicted = self.decode(emissions, gold)
        cost = self.margin * (predicted != gold).sum(dim=1)
        return (self.score(emissions, predicted) + cost - self.score(emissions, gold)).clamp(min=0).mean()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = torch.randint(VOCAB, (200, BATCH, LENGTH))
    gold = torch.randint(TAGS, (200, BATCH, LENGTH))
    encoder, criterion = Encoder(), StructuredHinge()
    params = [*encoder.parameters(), *criterion.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9)

    clock = Clock()
    running = True
    while running:
        for i in range(len(words)):
            loss = criterion(encoder(words[i]), gold[i])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 5.0)
            optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
