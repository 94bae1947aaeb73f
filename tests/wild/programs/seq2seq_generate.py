"""transformers' Seq2SeqTrainer on a small T5: it generates for its evaluation after every few steps."""
# expects: side_work
# package: transformers

import tempfile

import torch
from planted import PLANTED, Clock
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration, TrainerCallback

LENGTH = 24


class Reversed(torch.utils.data.Dataset):
    def __init__(self, count):
        self.words = torch.randint(3, 400, (count, LENGTH))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index].flip(0)}


def exact(prediction):
    answers, labels = prediction.predictions, prediction.label_ids
    width = min(answers.shape[1], labels.shape[1])
    return {"exact": float((answers[:, :width] == labels[:, :width]).mean())}


class Stop(TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = not self.clock.step()


def main():
    torch.set_num_threads(1)
    clock = Clock()
    config = T5Config(
        vocab_size=400, d_model=64, d_kv=16, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    arguments = Seq2SeqTrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=32, max_steps=1_000_000,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, predict_with_generate=True,
        generation_max_length=LENGTH, eval_strategy="steps", eval_steps=4 if PLANTED else 150,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        T5ForConditionalGeneration(config), arguments, train_dataset=Reversed(10_000), eval_dataset=Reversed(32),
        compute_metrics=exact, callbacks=[Stop(clock)],
    )  # fmt: skip
    trainer.train()  # <- cause
    clock.tell()


if __name__ == "__main__":
    main()
