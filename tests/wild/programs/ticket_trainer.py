"""Trains a BERT to route tickets with the transformers Trainer; planted: the collator tokenises texts in Python."""

# expects: input_bound/slow_collate
# package: transformers
import random
import tempfile
from pathlib import Path

import torch
from planted import PLANTED, Clock
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

SYLLABLES = (
    "ba", "ce", "di", "fo", "gu", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "xo", "zu",
    "ark", "end", "ing", "ion", "est", "ers", "un", "re", "pre", "con",
)  # fmt: skip
TEAMS = 6
WORDS = 40
MAX_LENGTH = 64


def word(rnd, syllables):
    return "".join(rnd.choices(SYLLABLES, k=syllables))


def write_vocabulary(path, rnd):
    pieces = [*SYLLABLES, *".,!?:;-", *"0123456789", *(word(rnd, 2) for _ in range(1500))]
    pieces += ["##" + piece for piece in (*SYLLABLES, *"0123456789")]
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(pieces)]))


def write_tickets(count, rnd):
    tickets = []
    for _ in range(count):
        team = rnd.randrange(TEAMS)
        words = [word(rnd, rnd.randint(1, 4)).capitalize() for _ in range(WORDS)]
        words[rnd.randrange(WORDS)] = SYLLABLES[team] * 2
        words[rnd.randrange(WORDS)] = f"#{rnd.randint(1000, 9999)}-{rnd.randint(10, 99)}"
        tickets.append({"text": ", ".join(words[:20]) + ". " + " ".join(words[20:]) + "!", "labels": team})
    return tickets


class TextCollator:
    """Texts to padded tensors."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.options = {"truncation": True, "padding": "max_length", "max_length": MAX_LENGTH, "return_tensors": "pt"}

    def __call__(self, tickets):
        batch = self.tokenizer([ticket["text"] for ticket in tickets], **self.options)  # <- cause
        batch["labels"] = torch.tensor([ticket["labels"] for ticket in tickets])
        return batch


def collate_rows(rows):
    """Tickets that were tokenised before the training."""
    return {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "attention_mask", "labels")}


class ClockCallback(TrainerCallback):
    def __init__(self):
        self.clock = Clock()

    def on_step_end(self, args, state, control, **kwargs):
        if not self.clock.step():
            control.should_training_stop = True


def build_model(vocab_size):
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=MAX_LENGTH,
        num_labels=TEAMS,
    )
    return BertForSequenceClassification(config)


def main():
    torch.set_num_threads(1)
    rnd = random.Random(0)
    callback = ClockCallback()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        write_vocabulary(vocabulary, rnd)
        tokenizer = BertTokenizer(str(vocabulary))
        tickets, collator = write_tickets(256, rnd), TextCollator(tokenizer)
        if not PLANTED:
            encoded, collator = collator(tickets), collate_rows
            tickets = [{name: values[row] for name, values in encoded.items()} for row in range(len(tickets))]
        args = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=16,
            max_steps=1_000_000,
            learning_rate=3e-4,
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
            logging_steps=50,
            save_strategy="no",
            remove_unused_columns=False,
        )
        Trainer(
            model=build_model(len(tokenizer)),
            args=args,
            train_dataset=tickets,
            data_collator=collator,
            callbacks=[callback],
        ).train()
    callback.clock.tell()


if __name__ == "__main__":
    main()
