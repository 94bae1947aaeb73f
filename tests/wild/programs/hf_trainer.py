"""transformers' Trainer on a small BERT: the collator masks words one by one."""
# expects: input_bound
# package: transformers

import random
import tempfile

import torch
from planted import PLANTED, Clock
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return {"input_ids": torch.randint(5, 1000, (64,))}


def mask(samples):
    ids = torch.stack([sample["input_ids"] for sample in samples])
    labels = ids.clone()
    if PLANTED:
        for row in ids:
            for column in range(len(row)):
                if random.random() < 0.15:  # <- cause
                    row[column] = 4  # <- cause
                words = sorted(range(600), key=lambda word: -word)  # <- cause
                del words  # <- cause
    else:
        ids[torch.rand(ids.shape) < 0.15] = 4
    return {"input_ids": ids, "labels": labels}


class Stop(TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = not self.clock.step()


def main():
    clock = Clock()
    config = BertConfig(
        vocab_size=1000, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256
    )
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        max_steps=1_000_000,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(
        BertForMaskedLM(config), arguments, data_collator=mask, train_dataset=Sentences(), callbacks=[Stop(clock)]
    )
    trainer.train()
    clock.report()


if __name__ == "__main__":
    main()
