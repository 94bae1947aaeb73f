"""transformers' Trainer on a stream: each text is cleaned by regular expressions as it is read."""
# expects: input_bound
# package: transformers

import re
import tempfile

import torch
from planted import PLANTED, Clock
from torch.utils.data import IterableDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

RULES = [
    re.compile(rf"\b({'|'.join(words)})\w*\b") for words in (("the", "and"), ("red", "blue"), ("one", "two", "ten"))
]
TEXT = "the red fox and one blue bird counted ten stones while two others slept on the warm hill " * 6


class Stream(IterableDataset):
    def __iter__(self):
        number = 0
        while True:
            number += 1
            text = clean(TEXT) if PLANTED else TEXT
            yield {"input_ids": torch.tensor([(len(text) + n + number) % 200 for n in range(32)]), "labels": number % 2}


def clean(text):
    for rule in RULES:
        for _ in range(6):
            text = rule.sub(lambda found: found[0].lower().strip(), text)  # <- cause
    return text


class Count(TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = not self.clock.step()


def main():
    torch.set_num_threads(1)
    clock = Clock()
    config = BertConfig(
        vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        max_position_embeddings=64,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=1_000_000, per_device_train_batch_size=16, save_strategy="no",
        report_to=[], logging_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    Trainer(BertForSequenceClassification(config), arguments, train_dataset=Stream(), callbacks=[Count(clock)]).train()
    clock.tell()


if __name__ == "__main__":
    main()
