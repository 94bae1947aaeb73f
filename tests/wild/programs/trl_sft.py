"""trl's SFTTrainer on a small GPT-2: the collator pads and scores each sample in Python."""
# expects: input_bound
# package: trl

import tempfile

import torch
from datasets import Dataset
from planted import PLANTED, Clock
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer


class Stop(TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = not self.clock.step()


def padded(samples):
    rows = [sample["input_ids"][:64] for sample in samples]
    longest = max(map(len, rows))
    if PLANTED:
        for row in rows:
            for _ in range(400):
                score = sum(1 for a in row for b in row[:4] if a == b)  # <- cause
                row[0] += 0 * score
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids}


def main():
    torch.set_num_threads(1)
    clock = Clock()
    words = {f"w{i}": i for i in range(200)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0", eos_token="w2", unk_token="w1")
    texts = [" ".join(f"w{(i * j) % 190 + 3}" for j in range(60)) for i in range(1, 2000)]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_positions=128, n_embd=96, n_layer=3, n_head=4))
    with tempfile.TemporaryDirectory() as folder:
        config = SFTConfig(
            folder, per_device_train_batch_size=8, max_steps=1_000_000, report_to=[], save_strategy="no", use_cpu=True,
            bf16=False, max_length=64,
        )  # fmt: skip
        trainer = SFTTrainer(
            model, args=config, train_dataset=Dataset.from_dict({"text": texts}), processing_class=fast,
            data_collator=padded, callbacks=[Stop(clock)],
        )  # fmt: skip
        trainer.train()
    clock.tell()


if __name__ == "__main__":
    main()
