"""Writes what makes the batches of a random loop: data set, transforms, collate function, sampler, loader."""

from __future__ import annotations

from tests.random_loops.plan import Piece, Plan


def amount_of(piece: Piece) -> str:
    return f'0 if OPTIONS.without == "{piece.name}" else {piece.amount}'


def data_blocks(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """The data set, and what makes batches of it."""
    if plan.shape == "by_hand":
        lines = ["def get_batch(rows):", f"    x = rows[torch.randint(len(rows), ({plan.batch},))]"]
        lines += [f"    x = {names[p.name]}(x, {amount_of(p)})" for p in plan.pieces if p.place == "batch"]
        return [["OPTIONS = options()"], [*lines, "    return x, x.roll(1, 1)"]]
    item = [f"x = {names[p.name]}(x, {amount_of(p)})" for p in plan.pieces if p.place == "item"]
    transforms = ", ".join(
        f"lambda x: {names[p.name]}(x, {amount_of(p)})" for p in plan.pieces if p.place == "transform"
    )
    length = plan.epoch_batches * plan.batch
    get = [*item, "for transform in TRANSFORMS:", "    x = transform(x)", "return x, x.roll(1, 0)"]
    if plan.stream:
        data = [
            "class Rows(IterableDataset):",
            "    def __init__(self):",
            f"        self.rows = torch.randn(1024, {plan.width})",
            "",
            "    def __iter__(self):",
            f"        for index in range({length}):",
            "            yield self.one(index)",
            "",
            "    def one(self, index):",
            "        x = self.rows[index % 1024]",
            *(f"        {line}" for line in get),
        ]
    else:
        data = [
            "class Rows(Dataset):",
            "    def __init__(self):",
            f"        self.rows = torch.randn(1024, {plan.width})",
            "",
            "    def __len__(self):",
            f"        return {length}",
            "",
            "    def __getitem__(self, index):",
            "        x = self.rows[index % 1024]",
            *(f"        {line}" for line in get),
        ]
    return [["OPTIONS = options()", f"TRANSFORMS = [{transforms}]"], data, *_collate(plan, names), _loader(plan)]


def _collate(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    blocks: list[list[str]] = []
    for piece in plan.pieces:
        if piece.place == "collate":
            blocks.append(
                [
                    "def collate(samples):",
                    "    x = torch.stack([x for x, _ in samples])",
                    f"    x = {names[piece.name]}(x, {amount_of(piece)})",
                    "    return x, torch.stack([y for _, y in samples])",
                ]
            )
        if piece.place == "sampler" and not plan.stream:
            blocks.append(
                [
                    "class Batches(Sampler):",
                    "    def __init__(self, count):",
                    "        self.count = count",
                    "",
                    "    def __len__(self):",
                    "        return self.count",
                    "",
                    "    def __iter__(self):",
                    "        for _ in range(self.count):",
                    f"            order = torch.randint(1024, ({plan.batch},)).float()",
                    f"            order = {names[piece.name]}(order, {amount_of(piece)})",
                    "            yield order.long().tolist()",
                ]
            )
    return blocks


def _loader(plan: Plan) -> list[str]:
    places = {piece.place for piece in plan.pieces}
    arguments = [f"num_workers={plan.workers}"]
    if plan.workers and plan.persistent:
        arguments.append("persistent_workers=True")
    if "collate" in places:
        arguments.append("collate_fn=collate")
    if "sampler" in places and not plan.stream:
        arguments.append(f"batch_sampler=Batches({plan.epoch_batches})")
    else:
        arguments += [f"batch_size={plan.batch}", *([] if plan.stream else ["shuffle=True"])]
    return ["def make_loader():", f"    return DataLoader(Rows(), {', '.join(arguments)})"]
