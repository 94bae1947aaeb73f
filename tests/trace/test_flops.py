"""Operations counted from the shapes in a trace, held against torch's own counter."""

import pytest

from tests.trace.kineto_file import call, contents, event, kernel
from tuimon.agent.control.trace import Profiler
from tuimon.records import TracedFlops
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import summarize

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

nn = torch.nn
attention = pytest.importorskip("torch.nn.attention")
flop_counter = pytest.importorskip("torch.utils.flop_counter")


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that share a core wait for each other after each small operator."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def traced(step, folder):
    """A step in a trace as the agent takes it."""
    profiler = Profiler(torch)
    profiler.start()
    step()
    profiler.stop().save(str(folder / "trace.json"))
    return summarize(read_trace(str(folder / "trace.json"))).flops


def counted(step):
    """The same step by torch's counter."""
    with flop_counter.FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def total(found):
    return sum(each.flops for each in found)


def training(model, *inputs):
    def step():
        found = model(*inputs)
        (found[0] if isinstance(found, tuple) else found).float().sum().backward()

    return step


class Block(nn.Module):
    """A transformer block over embeddings."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(64, 50)

    def forward(self, ids):
        return self.head(self.layer(self.embedding(ids)))


@pytest.mark.parametrize("kernel", ["MATH", "FLASH_ATTENTION"])
def test_a_transformer_block(kernel, tmp_path):
    step = training(Block(), torch.randint(50, (3, 20)))
    with attention.sdpa_kernel(attention.SDPBackend.MATH):  # the counter knows no attention of the CPU
        truth = counted(step)
    with attention.sdpa_kernel(getattr(attention.SDPBackend, kernel)):
        found = traced(step, tmp_path)
    assert total(found) == pytest.approx(truth, rel=0.01)
    assert {each.kind for each in found} == {"product", *(["attention"] if kernel != "MATH" else [])}


def test_convolutions_of_all_kinds(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.Conv2d(8, 8, (3, 1), dilation=(2, 1)),
        nn.ConvTranspose2d(8, 6, 2, stride=2),
        nn.Flatten(2),
        nn.Conv1d(6, 5, 5, padding="same"),
        nn.Flatten(),
        nn.LazyLinear(7),
    )
    step = training(model, torch.randn(2, 3, 33, 20))
    step()
    found = traced(step, tmp_path)
    assert total(found) == counted(step)
    assert [each.kind for each in found] == ["convolution", "product"]


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_convolutions_in_groups(kind, tmp_path):
    """Each gradient takes what the forward pass takes; torch's counter takes no account of groups backward."""
    model, images = kind(8, 8, 3, groups=4), torch.randn(2, 8, 9, 9, requires_grad=True)
    assert total(traced(training(model, images), tmp_path)) == 3 * counted(lambda: model(images))


class Recurrent(nn.Module):
    """An LSTM over embeddings."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.lstm = nn.LSTM(24, 32, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, ids):
        return self.lstm(self.embedding(ids))[0]


def test_a_recurrent_layer_in_one_operator_or_in_many(tmp_path):
    step = training(Recurrent(), torch.randint(50, (4, 40)))
    with torch.backends.mkldnn.flags(enabled=False):  # the counter does not know the one of mkldnn
        truth, many = counted(step), traced(step, tmp_path)
    one = traced(step, tmp_path)
    assert total(many) == pytest.approx(truth, rel=0.01)
    assert total(one) == pytest.approx(truth, rel=0.02)
    assert ("recurrent" in {each.kind for each in one}) == torch.backends.mkldnn.is_available()


MATRICES = {"Input Dims": [[4, 8], [8, 16]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
ONE = 2 * 4 * 8 * 16


@pytest.mark.parametrize(
    ("events", "flops"),
    [
        ([event("cpu_op", "aten::mm", 0, 900, **MATRICES)], [TracedFlops("product", "bfloat16", ONE)]),
        (
            [
                event("cpu_op", "aten::mm", 0, 900, **MATRICES),
                event("cpu_op", "aten::mm", 100, 800, **MATRICES),  # within the other
                event("cpu_op", "aten::mm", 100, 800, tid=77, **MATRICES),  # autograd's thread
            ],
            [TracedFlops("product", "bfloat16", 2 * ONE)],
        ),
        ([event("cpu_op", "aten::mm", 0, 900)], None),
        ([event("cpu_op", "aten::relu", 0, 900, **MATRICES)], None),
        (
            [
                event("cpu_op", "aten::mm", 0, 900, **MATRICES),
                call("cudaLaunchKernel", 300, 400, 1),
                kernel("ampere_sgemm_128x64", 500, 800, 1),
                call("cudaLaunchKernel", 1000, 1100, 2),
                kernel("softmax_kernel", 1200, 1300, 2),
            ],
            [TracedFlops("product", "bfloat16", ONE)],
        ),
        (
            [
                event("cpu_op", "aten::mm", 0, 900, **MATRICES),
                call("cudaGraphLaunch", 1000, 1100, 2),
                kernel("ampere_sgemm_128x64", 1200, 1300, 2),
            ],
            None,
        ),
    ],
    ids=["one", "nested", "no shapes", "no product", "launched by it", "launched by a graph"],
)
def test_all_is_counted_once_or_nothing(events, flops, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(contents(events))
    assert summarize(read_trace(str(path))).flops == flops
