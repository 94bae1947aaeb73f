"""Text is generated token by token, and each sequence is a step: the model takes the time, as it should."""
# healthy

import torch
from laps import Laps, options
from torch import nn

import tuimon


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


def main():
    args = options()
    model = Writer().eval()
    watch = Laps(args.seconds)
    with torch.inference_mode():
        while True:
            decode(model, 40, watch)
            watch.lap("other")
            tuimon.step()
            if not watch.step():
                break
    watch.tell()


if __name__ == "__main__":
    main()
