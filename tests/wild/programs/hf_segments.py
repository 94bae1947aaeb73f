"""transformers' Trainer: a model counts how far each token is from separators, token by token."""
# expects: compute_bound_cpu/python
# package: transformers

import torch
from planted import PLANTED, Clock
from torch import nn
from transformers import BertConfig, BertModel, Trainer, TrainerCallback, TrainingArguments

SEPARATORS = (7, 11, 13, 17)


def segments(ids):
    return segments_of_tokens(ids) if PLANTED else torch.zeros_like(ids)


def segments_of_tokens(ids):
    numbered = []
    for row in ids.tolist():
        numbers = []
        for position in range(len(row)):
            near = 0
            for separator in SEPARATORS:
                near += next((far for far in range(position) if row[position - far] == separator), 0)  # <- cause
            numbers.append(near % 2)
        numbered.append(numbers)
    return torch.tensor(numbered)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        small = BertConfig(200, 32, 1, 2, 64, max_position_embeddings=128)
        self.bert = BertModel(small, add_pooling_layer=False)
        self.head = nn.Linear(32, 2)

    def forward(self, input_ids, labels):
        hidden = self.bert(input_ids, token_type_ids=segments(input_ids)).last_hidden_state
        logits = self.head(hidden)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Stop(TrainerCallback):
    def __init__(self):
        self.clock = Clock()

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = not self.clock.step()


class Sentences(torch.utils.data.Dataset):
    ids = torch.randint(0, 200, (4000, 128))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index] % 2}


def main():
    torch.set_num_threads(1)
    stop = Stop()
    settings = TrainingArguments(
        "out", per_device_train_batch_size=32, num_train_epochs=1000, use_cpu=True, report_to=[], save_strategy="no",
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    Trainer(Tagger(), settings, train_dataset=Sentences(), callbacks=[stop]).train()
    stop.clock.tell()


if __name__ == "__main__":
    main()
