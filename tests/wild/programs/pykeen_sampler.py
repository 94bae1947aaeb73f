"""pykeen's training loop over open-world triples: a sampler of one's own seeks negatives that are no known facts."""
# expects: input_bound
# package: pykeen

import random

import torch
from planted import PLANTED, Clock
from pykeen.models import RotatE
from pykeen.sampling import BasicNegativeSampler
from pykeen.training import SLCWATrainingLoop, TrainingCallback
from pykeen.triples import CoreTriplesFactory

ENTITIES, RELATIONS = 1500, 200


class TypedNegativeSampler(BasicNegativeSampler):
    def __init__(self, *, mapped_triples, **options):
        super().__init__(mapped_triples=mapped_triples, **options)
        self.facts = set(map(tuple, mapped_triples.tolist()))
        self.tails = {r: mapped_triples[mapped_triples[:, 1] == r, 2].tolist() for r in range(RELATIONS)}

    def corrupt_batch(self, positive_batch):
        if PLANTED:
            return self.typed(positive_batch)
        return super().corrupt_batch(positive_batch)

    def typed(self, positive_batch):
        negatives = []
        for head, relation, _ in positive_batch.tolist():
            unknown = [t for t in self.tails[relation] if (head, relation, t) not in self.facts]  # <- cause
            negatives += [(head, relation, t) for t in random.choices(unknown, k=self.num_negs_per_pos)]
        return torch.tensor(negatives).view(len(positive_batch), self.num_negs_per_pos, 3)


class Done(Exception):
    pass


class Count(TrainingCallback):
    def __init__(self):
        super().__init__()
        self.clock = Clock()

    def post_batch(self, **_):
        if not self.clock.step():
            raise Done


def main():
    torch.set_num_threads(1)
    count = Count()
    # the library collects garbage after each epoch: of 47 batches, that took a tenth of the time (measured)
    triples = torch.stack([torch.randint(0, n, (120_000,)) for n in (ENTITIES, RELATIONS, ENTITIES)], dim=1).unique(
        dim=0
    )
    factory = CoreTriplesFactory(triples, num_entities=ENTITIES, num_relations=RELATIONS)
    model = RotatE(triples_factory=factory, embedding_dim=256)
    loop = SLCWATrainingLoop(
        model=model, triples_factory=factory, negative_sampler=TypedNegativeSampler,
        negative_sampler_kwargs={"num_negs_per_pos": 8}, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
    )  # fmt: skip
    try:
        loop.train(factory, num_epochs=10_000, batch_size=256, use_tqdm=False, callbacks=count)
    except Done:
        pass
    count.clock.tell()


if __name__ == "__main__":
    main()
