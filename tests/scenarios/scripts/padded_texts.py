"""Every text is padded to the longest that there can be, and the model computes the padding as well."""
# expects: compute_bound_cpu/padding

import torch
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, Dataset

LONGEST = 128


class Texts(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.arange(1, 16 + index * 7 % 24)


def main():
    args = options()

    def collate(texts):
        length = max(map(len, texts)) if args.fixed else LONGEST  # <- cause
        ids = torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = text
        return {"input_ids": ids, "attention_mask": ids != 0}

    table = nn.Embedding(64, 64)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)
    optimizer = torch.optim.AdamW([*table.parameters(), *encoder.parameters()], lr=1e-4, fused=True)
    batches = (tuple(batch.values()) for batch in DataLoader(Texts(), 16, collate_fn=collate))
    fit(args, optimizer, batches, lambda ids, mask: encoder(table(ids), src_key_padding_mask=~mask).square().mean())


main()
