"""transformers' Trainer, a small GPT-2, peft's LoRA adapters, and a callback that counts n-grams after each step."""
# expects: side_work
# package: peft

import tempfile
from collections import Counter

import torch
from peft import LoraConfig, get_peft_model
from planted import PLANTED, Clock
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Stories(torch.utils.data.Dataset):
    def __init__(self):
        self.ids = torch.randint(0, 500, (2000, 64))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class NGrams(TrainerCallback):
    def __init__(self, clock, stories):
        self.clock = clock
        self.stories = stories

    def on_step_end(self, args, state, control, **_):
        if PLANTED:
            self.count()
        control.should_training_stop = not self.clock.step()

    def count(self):
        counts = Counter()
        for story in self.stories.ids[:1500].tolist():
            counts.update(zip(story, story[1:], story[2:], strict=False))  # <- cause
        return counts.most_common(5)  # <- cause


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=64, n_embd=128, n_layer=3, n_head=4))
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, max_steps=1_000_000, report_to=[], save_strategy="no", use_cpu=True
        )
        stories = Stories()
        Trainer(model, arguments, train_dataset=stories, callbacks=[NGrams(clock, stories)]).train()
    clock.tell()


if __name__ == "__main__":
    main()
