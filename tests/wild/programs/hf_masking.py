"""Trains a small BERT with the transformers Trainer; planted: the collate function masks token by token in Python."""

# expects: input_bound/slow_collate
# package: transformers
import tempfile

import torch
from planted import PLANTED, Clock
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

VOCAB_SIZE = 500
MASK_ID = 3
SPECIAL_IDS = {0, 1, 2, 3}
IGNORED = -100
MLM_PROBABILITY = 0.15


class Sentences(Dataset):
    def __init__(self, count, length):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(10, VOCAB_SIZE, (count, length), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def mask_one_by_one(examples):
    input_ids = torch.stack(examples)
    labels = torch.full_like(input_ids, IGNORED)
    for row in range(input_ids.size(0)):
        for col in range(input_ids.size(1)):
            token = input_ids[row, col].item()  # <- cause
            if token not in SPECIAL_IDS and torch.rand(1).item() < MLM_PROBABILITY:  # <- cause
                labels[row, col] = token  # <- cause
                input_ids[row, col] = MASK_ID  # <- cause
    return {"input_ids": input_ids, "labels": labels, "attention_mask": torch.ones_like(input_ids)}


def mask_batch(examples):
    input_ids = torch.stack(examples)
    chosen = torch.rand(input_ids.shape) < MLM_PROBABILITY
    labels = input_ids.masked_fill(~chosen, IGNORED)
    input_ids = input_ids.masked_fill(chosen, MASK_ID)
    return {"input_ids": input_ids, "labels": labels, "attention_mask": torch.ones_like(input_ids)}


class ClockCallback(TrainerCallback):
    def __init__(self):
        self.clock = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.clock = Clock()

    def on_step_end(self, args, state, control, **kwargs):
        if not self.clock.step():
            control.should_training_stop = True


def build_model():
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_act="relu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=128,
    )
    return BertForMaskedLM(config)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    callback = ClockCallback()
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir,
            per_device_train_batch_size=24,
            max_steps=1_000_000,
            learning_rate=3e-4,
            max_grad_norm=0.0,
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
            logging_strategy="no",
            save_strategy="no",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(
            model=build_model(),
            args=args,
            train_dataset=Sentences(20_000, 64),
            data_collator=mask_one_by_one if PLANTED else mask_batch,
            callbacks=[callback],
        )
        trainer.train()
    callback.clock.tell()


if __name__ == "__main__":
    main()
