"""flair's ModelTrainer: a plugin writes the values of all parameters as text after every batch."""
# expects: side_work
# package: flair

import json
import logging
import tempfile
from pathlib import Path

import flair
import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.embeddings import DocumentRNNEmbeddings, HashEmbeddings
from flair.models import TextClassifier
from flair.trainers import ModelTrainer
from flair.trainers.plugins import TrainerPlugin
from planted import PLANTED, Clock

logging.getLogger("flair").setLevel(logging.ERROR)


class Done(Exception):
    pass


class Watch(TrainerPlugin):
    def __init__(self, folder):
        super().__init__()
        self.clock, self.file = Clock(), Path(folder, "weights.json")

    @TrainerPlugin.hook
    def after_training_batch(self, **_):
        if PLANTED:
            self.file.write_text(weights(self.model))
        if not self.clock.step():
            raise Done


def weights(model):
    values = {name: value.flatten().tolist()[:10_000] for name, value in model.named_parameters()}
    return json.dumps(values, indent=1)  # <- cause


def sentences(count):
    words = [f"word{number}" for number in range(18)]
    for number in range(count):
        at = number % len(words)
        sentence = Sentence(" ".join(words[at:] + words[:at]))
        sentence.add_label("topic", f"class{number % 4}")
        yield sentence


def main():
    torch.set_num_threads(1)
    flair.device = torch.device("cpu")
    train = FlairDatapointDataset(list(sentences(400)))
    held_out = FlairDatapointDataset(list(sentences(16)))
    corpus = Corpus(train=train, dev=held_out, test=held_out)
    embeddings = DocumentRNNEmbeddings([HashEmbeddings(num_embeddings=500, embedding_length=64)], hidden_size=192)
    model = TextClassifier(embeddings, label_type="topic", label_dictionary=corpus.make_label_dictionary("topic"))
    folder = tempfile.mkdtemp()
    watch = Watch(folder)
    try:
        ModelTrainer(model, corpus).train(
            folder, max_epochs=100_000, mini_batch_size=16, plugins=[watch], save_final_model=False,
            embeddings_storage_mode="none",
        )  # fmt: skip
    except Done:
        pass
    watch.clock.tell()


if __name__ == "__main__":
    main()
