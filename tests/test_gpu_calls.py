"""Which calls on a line wait for the GPU: literal lines, held against what torch and its documentation say."""

import inspect
import math

import pytest

from tuimon.gpu_calls import sync_calls

LATER = "every 50 to 100 steps"
ON_GPU = "torch.where instead of the branch, or check every 100 steps"


def found(line):
    return [(call.kind, call.what, call.is_certain) for call in sync_calls(line)]


#: A line; the kind and the text of what certainly waits on it.
CERTAIN = [
    ("total += loss.item()", "read", "loss.item()"),
    ("rows = x.tolist()", "read", "x.tolist()"),
    ("losses.append(loss.detach().cpu().numpy())", "read", "loss.detach().cpu()"),
    ('y = x.to("cpu", torch.float32)', "read", 'x.to("cpu", torch.float32)'),
    ('y = x.to(device=torch.device("cpu"))', "read", 'x.to(device=torch.device("cpu"))'),
    ("y = x.numpy(force=True)", "read", "x.numpy(force=True)"),
    ("y = float(x.mean())", "read", "float(x.mean())"),
    ("done = bool((x > 0).all())", "read", "bool((x > 0).all())"),
    ("y = torch.tensor([x.mean(), x.std()])", "read", "torch.tensor([x.mean(), x.std()])"),
    (
        "y = torch.as_tensor([loss.mean() for loss in losses])",
        "read",
        "torch.as_tensor([loss.mean() for loss in losses])",
    ),
    ("best = x[scores.argmax()]", "read", "x[scores.argmax()]"),
    ("y = math.sqrt(x.sum())", "read", "math.sqrt(x.sum())"),
    ("loss = errors[mask].mean()", "mask", "errors[mask]"),
    ("y = x[x > 0]", "mask", "x[x > 0]"),
    ("y = x[~pad]", "mask", "x[~pad]"),
    ("y = x[valid & keep]", "mask", "x[valid & keep]"),
    ("y = x[labels != ignore]", "mask", "x[labels != ignore]"),
    ("y = out[data.train_mask]", "mask", "out[data.train_mask]"),
    ('y = x[batch["mask"]]', "mask", 'x[batch["mask"]]'),
    ("y = x[mask.view(-1)]", "mask", "x[mask.view(-1)]"),
    ("y = x[torch.isfinite(x)]", "mask", "x[torch.isfinite(x)]"),
    ("y = x[attention_mask.bool()]", "mask", "x[attention_mask.bool()]"),
    ("y = x[mask, 0]", "mask", "x[mask, 0]"),
    ("x[mask] = y[mask]", "mask", "x[mask] = y[mask]"),
    ("x[mask] = y.mean()", "mask", "x[mask] = y.mean()"),
    ("x[mask] += 1", "mask", "x[mask] += 1"),
    ("i = mask.nonzero()", "shape", "mask.nonzero()"),
    ("n = len(torch.nonzero(mask))", "shape", "torch.nonzero(mask)"),
    ("i = torch.argwhere(mask)", "shape", "torch.argwhere(mask)"),
    ("i, j = torch.where(cond)", "shape", "torch.where(cond)"),
    ("u = torch.unique(ids)", "shape", "torch.unique(ids)"),
    ("u = ids.unique_consecutive()", "shape", "ids.unique_consecutive()"),
    ("y = torch.masked_select(x, mask)", "shape", "torch.masked_select(x, mask)"),
    ("n = torch.bincount(ids, minlength=10)", "shape", "torch.bincount(ids, minlength=10)"),
    ("y = x.repeat_interleave(counts.long(), dim=0)", "shape", "x.repeat_interleave(counts.long(), dim=0)"),
    ("y = F.one_hot(labels)", "shape", "F.one_hot(labels)"),
    ("h = torch.histc(x, 100)", "shape", "torch.histc(x, 100)"),
    ("for i in range(lengths.max()):", "shape", "range(lengths.max())"),
    ("y = x[: lengths.max()]", "shape", "x[: lengths.max()]"),
    ("t = torch.arange(lengths.max(), device=device)", "shape", "torch.arange(lengths.max(), device=device)"),
    ("if x.abs().max() > 1e4:", "branch", "x.abs().max() > 1e4"),
    ("elif torch.isnan(loss).any() or flag:", "branch", "torch.isnan(loss).any()"),
    ("while (a - b).norm() > tol:", "branch", "(a - b).norm() > tol"),
    ('assert (x > 0).all(), "negative"', "branch", "(x > 0).all()"),
    ("y = a if x.sum() > 0 else b", "branch", "x.sum() > 0"),
    ("ys = [y for y in ys if y.sum() > 0]", "branch", "y.sum() > 0"),
    ("if torch.equal(a, b):", "branch", "torch.equal(a, b)"),
    ("same = torch.allclose(a, b)", "branch", "torch.allclose(a, b)"),
    ("bad = any(torch.isnan(p).any() for p in ps)", "branch", "any(torch.isnan(p).any() for p in ps)"),
    ("best = max(best, x.mean())", "branch", "max(best, x.mean())"),
    ("print(x.mean())", "print", "print(x.mean())"),
    ('print(f"step {step} loss {x.mean():.3f}")', "print", 'f"step {step} loss {x.mean():.3f}"'),
    ('log.info("%f", x.mean())', "print", 'log.info("%f", x.mean())'),
    ('text = "%.3f" % x.mean()', "print", '"%.3f" % x.mean()'),
    ("x = x.to(DEVICE)", "copy", "x.to(DEVICE)"),
    ("x = x.to(other.device)", "copy", "x.to(other.device)"),
    ('x = x.long().to("cuda:0")', "copy", 'x.long().to("cuda:0")'),
    ("x = x.cuda()", "copy", "x.cuda()"),
    ("t = torch.tensor(0.5, device=device)", "copy", "torch.tensor(0.5, device=device)"),
    ("torch.cuda.synchronize()", "synchronise", "torch.cuda.synchronize()"),
    ("stream.synchronize()", "synchronise", "stream.synchronize()"),
    ("self.end_event.synchronize()", "synchronise", "self.end_event.synchronize()"),
    ("scale = scaler.get_scale()", "scaler", "scaler.get_scale()"),
    ("clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)", "clip", "clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)"),
    ("y = torch.linalg.inv_ex(a, check_errors=True)", "check", "torch.linalg.inv_ex(a, check_errors=True)"),
    ("p = Categorical(logits=logits)", "check", "Categorical(logits=logits)"),
    ("p = torch.distributions.Normal(mu, std)", "check", "torch.distributions.Normal(mu, std)"),
]


@pytest.mark.parametrize(("line", "kind", "what"), CERTAIN)
def test_what_waits_is_found(line, kind, what):
    assert found(line)[0] == (kind, what, True)


#: Lines on which the same words may as well stand for plain values.
UNCERTAIN = [
    ("y = float(loss)", "read", "float(loss)"),
    ("n = int(t)", "read", "int(t)"),
    ("y = math.log(loss)", "read", "math.log(loss)"),
    ("y = torch.tensor([a, b])", "read", "torch.tensor([a, b])"),
    ("p = torch.rand(1).item()", "read", "torch.rand(1).item()"),  # in the CPU's memory
    ("boxes = boxes[keep]", "mask", "boxes[keep]"),  # or positions
    ("x[mask] = value", "mask", "x[mask] = value"),
    ("y = x[:n]", "shape", "x[:n]"),
    ("y = x[: lengths[i]]", "shape", "x[: lengths[i]]"),
    ("for i in range(n):", "shape", "range(n)"),
    ("y = torch.repeat_interleave(x, repeats, dim=0)", "shape", "torch.repeat_interleave(x, repeats, dim=0)"),
    ("while err > tol:", "branch", "err > tol"),
    ("if done:", "branch", "done"),
    ("best = max(best, acc)", "branch", "max(best, acc)"),
    ("print(loss)", "print", "print(loss)"),
    ('print(f"{loss:.4f}")', "print", 'f"{loss:.4f}"'),
    ('logging.info("%f", loss)', "print", 'logging.info("%f", loss)'),
    ("bar.set_postfix(loss=loss)", "print", "bar.set_postfix(loss=loss)"),
    ('writer.add_scalar("loss", loss, step)', "print", 'writer.add_scalar("loss", loss, step)'),
    ("x = x.to(device, non_blocking=True)", "copy", "x.to(device, non_blocking=True)"),  # memory may not be pinned
    ("scaler.step(optimizer)", "scaler", "scaler.step(optimizer)"),  # not of a fused one
    ("y = torch.multinomial(p, 1)", "check", "torch.multinomial(p, 1)"),  # by the version
    ("y = policy.log_prob(action)", "check", "policy.log_prob(action)"),
]


@pytest.mark.parametrize(("line", "kind", "what"), UNCERTAIN)
def test_what_plain_values_would_fit_as_well_is_uncertain(line, kind, what):
    assert found(line) == [(kind, what, False)]


NOTHING = """
x[mask] = 0
x[mask] = float("-inf")
x[mask, :] = -1.0
x[mask] = torch.finfo(x.dtype).min
x.masked_fill_(mask, 0.0)
y = x[idx]
y = x[perm]
y = x[labels]
y = x[mask_ids]
y = x[i, 0]
y = x[:, None, ...]
y = x[i : i + batch_size]
y = batch["mask"]
y = np.array([0.1, 0.9])[mask]
y = x.shape[0]
y = float("inf")
y = int(len(x)) + int(x.shape[0]) + float(args.lr)
y = x.to(torch.float16).to(y.dtype).to(memory_format=torch.channels_last)
y = x.to("cpu", non_blocking=True)
y = x.numpy()
y = np.asarray(t)
y = np.unique(ids)
y = np.float32(a).item()
y = self.item(3)
y = metrics.items()
y = torch.where(cond, a, b)
y = torch.count_nonzero(mask)
y = torch.nonzero_static(mask, size=4)
y = x.repeat_interleave(2, dim=0)
y = torch.repeat_interleave(x, repeats, output_size=n)
y = F.one_hot(labels, 10)
y = torch.histc(x, 100, 0, 1)
y = torch.tensor(loss)
y = torch.tensor([1, 2, 3])
y = torch.stack([a, b])
y = torch.zeros(n, device=device)
y = random.choice(tensor)
y = itertools.combinations(xs, 2)
for row in tensor:
if step % 100 == 0:
if self.training and args.amp:
if mode == "train":
if x is not None:
if isinstance(x, list):
if torch.cuda.is_available():
if random.random() < 0.5:
if should_stop(loss):
assert x.shape == y.shape
print("epoch", step)
print(f"epoch {epoch}/{EPOCHS}")
print(x.shape)
torch.cpu.synchronize()
scaler.update()
scaler.unscale_(optimizer)
scaler.scale(loss).backward()
optimizer.step()
clip_grad_norm_(model.parameters(), 1.0)
y = torch.linalg.inv_ex(a)
y = np.linalg.inv(a)
y = torch.multinomial(p, 100, replacement=True)
p = Normal(mu, std, validate_args=False)
out = model(images)
loss.backward()
# loss.item()
y = "call loss.item() later"
"""


@pytest.mark.parametrize("line", NOTHING.strip().splitlines())
def test_what_does_not_wait_is_not_found(line):
    assert found(line) == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('"loss": loss.item(),', "loss.item()"),
        ("loss=loss.item(),", "loss.item()"),
        ("loss = F.cross_entropy(logits[mask],", "logits[mask]"),
        (".mean().item())", ".mean().item()"),
        ("+ x[mask].sum()) / n", "x[mask]"),
        ("and (x > 0).any()):", "(x > 0).any()"),
        ("if (x.abs().max() > 3", "x.abs().max() > 3"),
        ("if x.max() > 3:  # too large", "x.max() > 3"),
        ("else: total += loss.item()", "loss.item()"),
        ("x.sum().item() + \\", "x.sum().item()"),
        ('log("loss", loss.item(), "and a text that is c', "loss.item()"),
        ("values, = rows.tolist() otherwise 'no python", "rows.tolist()"),
    ],
)
def test_a_part_of_a_statement_is_enough(line, what):
    assert (what, True) in [(text, certain) for _, text, certain in found(line)]


HOSTILE = [
    *(text * 10_000 for text in ("(", ")", "[", "{", "-", "not ", "'", '"""', "f'{", "lambda:", "x[", "a.", "\\", "#")),
    "x" + "[0]" * 5_000,
    "\0x.item()",
    "\ud800.item()",
    "x[" * 90 + "mask" + "]" * 90,
    f"f'{{x}}' {'+ y' * 160}",
    "",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_raises_anything(text):
    for call in sync_calls(text):
        assert len(call.what) <= 60


def test_a_long_call_is_cut():
    (call,) = sync_calls(f"y = ({' + '.join(['loss'] * 20)}).item()")
    assert len(call.what) == 60 and call.what.endswith("…")
    assert call.instead == f"add x.detach() to a tensor and read it {LATER}"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("total += loss.item()", f"add loss.detach() to a tensor and read it {LATER}"),
        ("y = float(a + b)", f"add (a + b).detach() to a tensor and read it {LATER}"),
        ("print(step, loss)", f"add loss.detach() to a tensor and print it {LATER}"),
        (
            "y = x.detach().cpu()",
            f"collect on the GPU, and copy once {LATER}, with non_blocking=True into pinned memory",
        ),
        (
            "x = x.to(device)",
            "pin the memory once (pin_memory=True in the DataLoader, or the tensor that batches are cut from) and"
            " non_blocking=True",
        ),
        ("errors[mask].mean()", "torch.where(mask, errors, 0).sum() / mask.sum(), which keeps the size fixed"),
        ("y = x[mask]", "multiply by mask, or torch.where(mask, x, 0): the size then does not depend on values"),
        ("y = f(x[~pad])", "multiply by ~pad, or torch.where(~pad, x, 0): the size then does not depend on values"),
        (
            "loss = criterion(out[y > 0], y[y > 0])",
            'reduction="none", then (loss * (y > 0)).sum() / (y > 0).sum(), which keeps the size fixed',
        ),
        ("if x.abs().max() > 1e4:", ON_GPU),
        ("if loss.item() > 5:", ON_GPU),
        ("while err.item() > 5:", "a fixed number of steps with torch.where, or check every 100 steps"),
        ("assert not x.isnan().any()", "torch._assert_async(~x.isnan().any()), which checks on the GPU"),
        ("y = x[: n.item()]", "a fixed size and a mask: the size then does not depend on values"),
        ("y = torch.linalg.solve(a, b)", "torch.linalg.solve_ex, which leaves the check for errors on the GPU"),
        (
            "stream.synchronize()",
            "torch.cuda.current_stream().wait_stream(stream), which makes the GPU wait and not the CPU",
        ),
        ("torch.cuda.synchronize()", "leave it out, except where time is measured"),
    ],
)
def test_what_does_not_wait_fits_the_call(line, instead):
    assert sync_calls(line)[0].instead == instead


def test_what_a_cross_entropy_ignores_needs_no_mask():
    (logits, labels) = sync_calls("loss = F.cross_entropy(logits[mask], labels[mask])")
    assert "ignore_index" in logits.instead == labels.instead


def test_clipping_is_never_to_be_done_less_often():
    (call,) = sync_calls("norm = clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)")
    assert call.instead == "error_if_nonfinite=False, and check the norm that it returns every 100 steps"


# ---- against torch itself


@pytest.fixture(scope="module")
def names():
    """What the lines below speak of, in memory; on the device "meta" it has no values, and what needs one fails."""
    torch = pytest.importorskip("torch")

    def of(device):
        x = torch.tensor([0.5, -1.0, 2.0, 0.25], device=device)
        ids = torch.tensor([0, 2, 2, 1], device=device)
        return {
            **{"torch": torch, "F": torch.nn.functional, "math": math, "device": device},
            **dict.fromkeys(("x", "a", "errors", "scores", "logits", "mu"), x),
            **{"y": x * 2, "b": x + 1, "std": x.exp(), "best": x.mean(), "losses": [x, x], "ys": [x]},
            **dict.fromkeys(("ids", "labels", "lengths", "counts", "repeats", "attention_mask"), ids),
            **dict.fromkeys(("n", "t"), ids.sum()),
            **dict.fromkeys(("loss", "total"), x.sum()),
            **dict.fromkeys(("mask", "cond", "valid"), x > 0),
            **{"keep": x < 1, "pad": x < 0, "ignore": 1, "flag": False, "tol": 0.1},
            "ps": [torch.nn.Parameter(x)],
            "clip_grad_norm_": lambda ps, most, **how: torch.nn.utils.clip_grad_norm_(with_gradients(ps), most, **how),
        }

    def with_gradients(parameters):
        for parameter in parameters:
            parameter.grad = parameter.detach()
        return parameters

    return of


NEEDS_VALUES = [
    line
    for line, kind, _ in CERTAIN
    if kind in ("read", "shape", "branch", "clip", "mask")
    # on a GPU alone: histc reads the range, and a value there is no number to fill in
    and not any(word in line for word in ("histc", "= y.mean()", "data.", "batch", "[mask, 0]"))
]


@pytest.mark.parametrize("line", NEEDS_VALUES)
def test_torch_needs_values_for_what_is_certain(line, names):
    code = f"if 0: pass\n{line}" if line.startswith("elif") else line
    with pytest.raises((NotImplementedError, RuntimeError)):
        exec(f"{code} pass" if code.endswith(":") else code, names("meta"))


NEEDS_NONE = [
    *("x[mask] = 0", "y = torch.where(cond, a, b)", "y = torch.count_nonzero(mask)", "y = torch.as_tensor(loss)"),
    *("for row in x: pass", "y = torch.nonzero_static(mask, size=4)", "y = x.repeat_interleave(2, dim=0)"),
    *("y = torch.repeat_interleave(x, repeats, output_size=5)", "y = F.one_hot(labels, 10)", "y = torch.stack([a, b])"),
    *("clip_grad_norm_(ps, 1.0)", "x.masked_fill_(mask, 0.0)"),
]


@pytest.mark.parametrize("line", NEEDS_NONE)
def test_torch_needs_no_values_for_what_does_not_wait(line, names):
    assert found(line) == []
    exec(line, names("meta"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("got = errors[mask].mean()", "got = torch.where(mask, errors, 0).sum() / mask.sum()"),
        ("got = errors[errors > 0].mean()", "got = torch.where(errors > 0, errors, 0).sum() / (errors > 0).sum()"),
        ("got = torch.mean(errors[~pad])", "got = torch.where(~pad, errors, 0).sum() / (~pad).sum()"),
        ("got = x[mask].sum()", "got = torch.where(mask, x, 0).sum()"),
        ("got = x[mask].max()", "got = torch.where(mask, x, -torch.inf).max()"),
        ("got = x[pad].amin()", "got = torch.where(pad, x, torch.inf).amin()"),
        ("got = len(x[mask])", "got = mask.sum()"),
        ("got = x[mask].shape[0]", "got = mask.sum()"),
        ("x[mask] = y[mask]", "x = torch.where(mask, y, x)"),
        ("x[mask] += 1", "x = torch.where(mask, x + 1, x)"),
        ("x[mask] *= y[mask]", "x = torch.where(mask, x * y, x)"),
        ("got = x[scores.argmax()]", "got = x[scores.argmax().view(1)]"),
    ],
)
def test_what_replaces_a_call_computes_the_same_and_needs_no_values(line, code, names):
    (call,) = sync_calls(line)
    instead = code.removeprefix("got = ").replace("x[scores.argmax().view(1)]", "scores.argmax().view(1)")
    assert call.instead.startswith(instead)
    before, after = names("cpu"), names("cpu")
    exec(line, before)
    exec(code, after)
    exec(code, names("meta"))
    name = "got" if "got" in line else "x"
    assert before["torch"].equal(*(before["torch"].as_tensor(one[name]).flatten().float() for one in (before, after)))


def test_what_torch_documents_to_synchronise_is_certain():
    torch = pytest.importorskip("torch")
    documented = {
        f"{module.__name__}.{name}(a, b)"
        for module in (torch, torch.linalg)
        for name, function in inspect.getmembers(module, callable)
        for text in [" ".join(str(function.__doc__).split())]
        if "causes host-device synchronization" in text or "synchronizes that device with the CPU" in text
    }
    assert len(documented) > 15
    assert [line for line in documented if not any(call.is_certain for call in sync_calls(line))] == []
