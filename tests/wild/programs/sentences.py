"""sentence-transformers' own modules and a triplet loss: a metric compares all pairs in Python after each step."""
# expects: side_work
# package: sentence_transformers

import torch
from planted import PLANTED, Clock
from sentence_transformers import util
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mean_similarity(vectors):
    total = 0.0
    for a in vectors[:12]:
        for b in vectors[:12]:
            total += util.cos_sim(a, b).item()  # <- cause
    return total / 144


def main():
    torch.set_num_threads(1)
    clock = Clock()
    encoder = nn.Sequential(nn.EmbeddingBag(2000, 256), nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-4)
    words = TensorDataset(*(torch.randint(0, 2000, (5000, 20)) for _ in range(3)))
    while True:
        for anchor, near, far in DataLoader(words, batch_size=64, shuffle=True):
            vectors = encoder(anchor)
            loss = nn.functional.triplet_margin_loss(vectors, encoder(near), encoder(far))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if PLANTED:
                mean_similarity(vectors.detach())
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
