"""Batches that are measured: which, how large, and where they lie."""

import collections
import dataclasses
import gc
import types
from itertools import count

import pytest

from tuimon.agent import pace
from tuimon.agent.importlib_bootstrap import hooks
from tuimon.agent.loading import batches
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import Batch, pack_batch, unpack_batch
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.steps import TokenBucket

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, TensorDataset, distributed  # noqa: E402
from torch.utils.data import sampler as samplers  # noqa: E402

from tests.agent.loop_shapes import gaps_always  # noqa: E402

IMAGES = torch.zeros(96, 3, 4)
LABELS = torch.zeros(96, dtype=torch.int64)
OF_32 = Batch(32 * (12 * 4 + 8), 32, True, None)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only a test moves, in seconds."""
    clock = types.SimpleNamespace(now_s=1000.0)
    for module in (batches, hooks):
        monkeypatch.setattr(module, "monotonic_ns", lambda: int(clock.now_s * 1e9))
    batches.forget()
    yield clock
    batches.forget()


@pytest.fixture
def measured(hooked, clock):
    """What was measured since the last call: id of the loader's facts, and the batch."""
    reader = RingReader(hooked.writer().path)

    def read():
        hooked.end_gap()
        hooked.writer().flush()
        return [(m.flag, unpack_batch(m.value)) for m in reader.read() if m.kind == layout.BATCH]

    yield read
    reader.close()


def loader(**more):
    return DataLoader(TensorDataset(IMAGES, LABELS), 32, **more)


def train(batches, weight, optimizer):
    for images, _ in batches:
        (weight * images.sum()).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_first_batch_of_a_loader_is_measured(measured, workers):
    own = loader(num_workers=workers)
    for _ in range(3):
        assert len(list(own)) == 3
    ((key, batch),) = measured()
    assert key > 0
    assert batch == OF_32


def test_another_one_a_second_later(measured, clock, weight):
    own, optimizer = loader(), torch.optim.SGD([weight], lr=0.1)
    for _ in range(100):
        train(own, weight, optimizer)
    assert len(measured()) == 1
    clock.now_s += 1.0
    for _ in range(200):
        train(own, weight, optimizer)
    assert [batch for _, batch in measured()] == [OF_32]


@pytest.mark.parametrize(("takes_s", "least", "most"), [(0.0, 30, 100), (0.001, 5, 12)])
def test_a_slow_loop_is_measured_several_times_a_second_as_far_as_that_is_quick(
    measured, clock, monkeypatch, takes_s, least, most
):
    """Lengths of text differ: few batches would not show how many tokens the others have."""
    monkeypatch.setattr(pace, "SHORTEST", 10**9)
    monkeypatch.setattr(batches, "count_tokens", lambda *_: setattr(clock, "now_s", clock.now_s + takes_s))
    for _ in iter(DataLoader(TensorDataset(torch.zeros(1600)), 8)):
        clock.now_s += 0.05
    assert least <= len(measured()) <= most


def test_loaders_that_take_turns_are_all_measured(measured, clock, weight):
    pairs = [loader(), DataLoader(LABELS, 16)]
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for second in (0.0, 1.0):
        clock.now_s += second
        for (images, _), _ in zip(*pairs):  # noqa: B905 (Python 3.9)
            (weight * images.sum()).sum().backward()
            optimizer.step()
        assert sorted(batch.size_bytes for _, batch in measured()) == [128, OF_32.size_bytes]


def test_a_loop_with_gaps_is_measured_and_has_gaps(hooked, measured, monkeypatch, weight):
    gaps_always(monkeypatch, 20)
    monkeypatch.setattr(hooked, "facts_due", False)
    ticks = count()
    monkeypatch.setattr(batches, "PAUSE_FACTOR", 0)  # to measure takes a tick of this clock
    for module in (batches, hooks):
        monkeypatch.setattr(module, "monotonic_ns", lambda: next(ticks) * batches.DUE_NS)
    begun = []
    monkeypatch.setattr(TokenBucket, "steps_owed", lambda bucket: begun.append(1) or 20)
    train(DataLoader(TensorDataset(torch.zeros(4000, 2), torch.zeros(4000)), 2), weight, torch.optim.SGD([weight], 0.1))
    assert len(begun) > 10
    assert len(measured()) > 5


def found(batch):
    """The Batch of one, without a loader."""
    measured = batches.measure(batch, torch)
    return None if measured is None else unpack_batch(measured[1])


def tokens(batch):
    """Positions and padding of a batch of text."""
    value = batches.count_tokens(batch)
    return None if value is None else layout.unpack_pair(value)


IDS = torch.ones(2, 4, dtype=torch.int64)
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
FREED = MASK.clone()
FREED.untyped_storage().resize_(0)
PADDED = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 0, 0, 0]])
FREED_IDS = PADDED.clone()
FREED_IDS.untyped_storage().resize_(0)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"input_ids": IDS}, (8, 0)),  # all alike: no padding
        ({"input_ids": PADDED}, (12, 5)),
        ({"input_ids": IDS.float().long().to("meta")}, (8, None)),
        ({"input_ids": IDS, "attention_mask": MASK}, (8, 4)),
        ({"tokens": IDS, "attention_mask": MASK.bool()}, (8, 4)),
        (collections.UserDict(input_ids=IDS, attention_mask=MASK), (8, 4)),  # as a BatchEncoding
        (({"input_ids": IDS}, torch.zeros(2)), (8, 0)),
        ({"input_ids": IDS, "attention_mask": MASK.float()}, (8, None)),
        ({"input_ids": IDS, "attention_mask": 2 * MASK}, (8, None)),  # numbers of segments
        ({"input_ids": IDS, "attention_mask": MASK[:, :3]}, (8, None)),
        ({"input_ids": IDS, "attention_mask": MASK.to("meta")}, (8, None)),
        ({"input_ids": IDS, "attention_mask": FREED}, (8, None)),
        ({"input_ids": torch.zeros(2, 4, 8)}, None),  # embeddings
        ({"pixels": IDS}, None),
        ((IDS, IDS), None),
        ((PADDED, torch.zeros(3)), (12, 5)),  # by pad_sequence()
        ([PADDED.int()], (12, 5)),
        (PADDED, (12, 5)),
        (PADDED + 7, (12, 5)),
        (torch.cat((PADDED, torch.tensor([[8, 9, 4, 4]]))), (16, 5)),  # a word twice at the end
        (torch.cat((PADDED, torch.tensor([[0, 9, 4, 3]]))), None),  # zero is a value as others are
        (torch.tensor([[1, 2, 102], [3, 4, 102]]), None),  # each text ends once
        (torch.tensor([[5, 2, 5, 5], [2, 3, 1, 5]]), None),  # packed texts, with ends within
        (torch.eye(4, dtype=torch.int64), None),
        (PADDED.to(torch.uint8), None),  # pictures
        (PADDED.bool(), (12, 5)),  # a mask
        (PADDED.double(), None),
        (PADDED.t(), None),  # not in one piece
        (PADDED[None], None),
        (torch.zeros(3, 0, dtype=torch.int64), None),
        (torch.zeros(0, 3, dtype=torch.int64), None),
        (FREED_IDS, None),
        ([], None),
    ],
)
def test_tokens_are_those_of_batches_that_name_them_or_pad_rows_of_them(batch, expected):
    assert tokens(batch) == expected


def test_a_mask_with_rows_too_long_to_be_read_at_once_leaves_the_padding_unknown():
    size = batches.ROWS_BYTES // 8 + 1
    ids = torch.ones(size, dtype=torch.int64)
    assert tokens({"input_ids": ids, "attention_mask": ids}) == (size, None)
    assert tokens({"input_ids": ids[1:], "attention_mask": ids[1:]}) == (size - 1, 0)


@pytest.mark.parametrize("length", [4, 1024])
def test_of_many_rows_some_stand_for_all(length):
    """In order of their lengths, as pack_padded_sequence() wants them."""
    ids = torch.arange(256 * length).reshape(256, length) + 1
    mask = torch.arange(length) < torch.linspace(length, 2, 256, dtype=torch.int64)[:, None]
    count, padding = tokens((ids * mask,))
    for found in (padding, tokens({"input_ids": ids, "attention_mask": mask})[1]):
        assert (count, found) == (ids.numel(), pytest.approx(mask.numel() - int(mask.sum()), rel=0.05))


class OwnSampler(torch.utils.data.SequentialSampler):
    def __len__(self):
        raise AssertionError("a sampler of the program's is asked for nothing")


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(count())


@pytest.mark.parametrize(
    ("own", "length"),
    [
        (loader(), 3),
        (loader(num_workers=1), 3),
        (DataLoader(range(10), 4, drop_last=True, shuffle=True), 2),
        (DataLoader(range(10), 4, drop_last=True), 2),
        (DataLoader(range(10), 4, shuffle=True), 3),
        (DataLoader(range(10), None), 10),
        (DataLoader(range(10), None, shuffle=True), 10),
        (DataLoader(range(10), 4, sampler=samplers.SubsetRandomSampler(range(9))), 3),
        (DataLoader(range(10), 4, sampler=samplers.WeightedRandomSampler([1.0] * 10, 21)), 6),
        (DataLoader(range(10), 4, sampler=samplers.RandomSampler(range(10), num_samples=25)), 7),
        (DataLoader(range(90), 4, sampler=samplers.RandomSampler(range(90), replacement=True)), None),
        (DataLoader(range(10), 4, sampler=distributed.DistributedSampler(range(10), 2, 0)), 2),
        (DataLoader(range(10), batch_sampler=[[0, 1], [2], [3]]), None),
        (DataLoader(range(10), 4, sampler=OwnSampler(range(10))), None),
        (DataLoader(Endless(), 4), None),
    ],
)
def test_the_position_in_the_epoch(hooked, clock, own, length):
    iterator = iter(own)
    next(iterator), next(iterator)
    assert layout.unpack_pair(batches.position_of(iterator)) == (2, length)


def test_a_data_set_is_counted_by_torch_alone(hooked, clock):
    counted = []

    class Counted(torch.utils.data.Dataset):
        def __len__(self):
            counted.append(1)
            return 6

        def __getitem__(self, index):
            return torch.tensor(index)

    loader = DataLoader(Counted(), 2)
    next(iter(loader))
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        assert layout.unpack_pair(batches.position_of(iterator)) == (1, 3)
    assert len(counted) == 4  # by torch itself, once an epoch
    del loader, iterator
    gc.collect()
    assert batches.epoch_lengths == {}


def test_positions_and_tokens_are_in_the_ring(hooked, clock):
    reader = RingReader(hooked.writer().path)
    text = DataLoader([{"input_ids": IDS[0], "attention_mask": MASK[1]}] * 8, 2)
    list(text)
    hooked.writer().flush()
    found = {m.kind: (m.flag > 0, layout.unpack_pair(m.value)) for m in reader.read() if m.kind in layout.LOADER_KINDS}
    reader.close()
    assert (found[layout.TOKENS], found[layout.POSITION]) == ((True, (8, 6)), (True, (1, 4)))
    assert found[layout.TENSORS] == (True, (2, 0))


ONE = torch.zeros(2, 3)


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


DEEP = [[[[[[[ONE]]]]]]]
CIRCLE = [ONE]
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (ONE, (24, 2)),
        ([ONE, torch.zeros(2, dtype=torch.uint8)], (26, 2)),
        ({"pixels": ONE, "name": ["a", "b"], "n": 7, "nothing": None}, (24, 2)),
        (({"x": [ONE, (ONE.double(),)]}, "a"), (72, 2)),
        ([ONE, ONE, {"again": ONE}], (24, 2)),
        (collections.namedtuple("Pair", "x y")(ONE, 1), (24, 2)),
        (collections.UserDict(ids=ONE), (24, 2)),
        (dataclasses.make_dataclass("Data", ["x"])(ONE), (24, 2)),
        (Plain(store=Plain(mapping={"x": ONE})), (24, 2)),
        (torch.zeros(()), (4, None)),
        (torch.zeros(0, 5), (0, 0)),
        (torch.nn.utils.rnn.pack_sequence([torch.zeros(3, 1), torch.zeros(2, 1)]), (20 + 24, 5)),
        (None, None),
        ([1, 2.5, b"", True, "text"], None),
        (len, None),
        (torch, None),  # modules, classes and functions hold what is no batch
        ([torch.zeros(1) for _ in range(1025)], None),
        (list(range(5000)), None),
        (DEEP, None),
        (CIRCLE, None),
        ([ONE, torch.eye(3).to_sparse()], None),
        (object(), None),
    ],
)
def test_tensors_are_found_in_what_holds_them(batch, expected):
    measured = found(batch)
    assert (measured and measured[:2]) == expected


def test_many_tensors_are_counted():
    targets = [{"boxes": torch.zeros(3, 4), "label": torch.zeros(3)} for _ in range(80)]
    assert layout.unpack_pair(batches.measure([ONE, targets, ONE], torch)[0])[0] == 161


WHOLE = torch.zeros(1 << 18)


@pytest.mark.parametrize(
    ("batch", "kib"),
    [
        ([WHOLE], 1024),
        ([WHOLE[:9], WHOLE[9:20]], 1024),  # of one storage
        ([WHOLE.clone()[:9], WHOLE.clone()[9:20], ONE], 2048),
        ([WHOLE[:2048].clone(), torch.zeros(4, device="meta")], 8),
    ],
)
def test_the_storages_of_tensors_are_measured_whole(batch, kib):
    assert layout.unpack_pair(batches.measure(batch, torch)[0]) == (len(batch), kib)


def test_where_tensors_lie():
    assert found([ONE, torch.zeros(4, device="meta")]) == Batch(40, 2, False, None)
    assert found(torch.zeros(4, device="meta")) == Batch(16, 4, False, None)


def test_properties_of_a_batch_are_not_read(measured):
    class Broken:
        @property
        def __dict__(self):
            raise RuntimeError("read")

    own = DataLoader([Broken()] * 3, collate_fn=lambda samples: [samples, ONE])
    assert len(list(own)) == 3
    assert [found.samples for _, found in measured()] == [2]


class Cuda:
    """torch with a GPU, as far as pinned memory goes; asked before CUDA is ready, or in a capture, it fails."""

    def __init__(self, *, initialized=True, context=True, capturing=False):
        self.is_initialized = lambda: initialized
        self.device_count = lambda: 2
        self._C = types.SimpleNamespace(
            _cuda_hasPrimaryContext=lambda index: context and index == 1,
            _cuda_isCurrentStreamCapturing=lambda: capturing,
        )
        self.ready = initialized and context and not capturing

    def tensor(self, pinned, elements=3):
        def is_pinned():
            assert self.ready, "the call would touch CUDA"
            return pinned

        return types.SimpleNamespace(is_pinned=is_pinned, numel=lambda: elements)


@pytest.mark.parametrize(
    ("pinned", "state", "expected"),
    [
        ((True, True), {}, True),
        ((True, False), {}, False),
        ((False,), {}, False),
        ((), {}, None),
        # never touched before the program does, nor in a capture
        ((True,), {"initialized": False}, None),
        ((True,), {"context": False}, None),
        ((True,), {"capturing": True}, None),
    ],
)
def test_pinned_memory(monkeypatch, pinned, state, expected):
    cuda = Cuda(**state)
    monkeypatch.setitem(batches.sys.modules, "torch.cuda", cuda)
    monkeypatch.setattr(batches, "read", lambda tensor, name: getattr(tensor, name)())
    tensors = [cuda.tensor(each) for each in pinned]
    assert batches.are_pinned(tensors, cuda) is expected
    if tensors:
        empty = cuda.tensor(not expected, elements=0)  # it is in no memory
        assert batches.are_pinned([*tensors, empty], cuda) is expected


@pytest.mark.parametrize("pinned", [None, False, True])
@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(("size", "samples"), [(0, 0), (1, None), ((1 << 40) - 1, (1 << 20) - 2), (5 << 30, 512)])
def test_a_batch_in_a_marker(size, samples, on_cpu, pinned):
    value = pack_batch(size, samples, on_cpu, pinned)
    assert 0 <= value < 1 << 63
    assert unpack_batch(value) == (size, samples, on_cpu, pinned)


def test_what_does_not_fit_a_marker():
    assert pack_batch(1 << 40, 1, True, None) is None
    assert unpack_batch(pack_batch(1, 1 << 20, True, None)).samples is None
    assert unpack_batch((1 << 64) - 1) is None
