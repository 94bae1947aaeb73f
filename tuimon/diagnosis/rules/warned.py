"""What libraries warn of by themselves, as a remedy beside the findings that it concerns. A warning is a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Warned
from tuimon.text import code_place

_MODEL = ("compute_bound_cpu", "compute_bound", "launch_bound")


class Row(NamedTuple):
    """A warning of a library: how its text begins, what to do, and the findings that it concerns wherever it is."""

    text: str
    action: str
    rules: tuple[str, ...] = ()  # beside those that name its line


ROWS = (
    Row("Using a target size", "give target and output of a loss one shape: it computes each with each", _MODEL),
    Row("Creating a tensor from a list of numpy", "join a list of arrays before it becomes a tensor: np.stack()"),
    Row("To copy construct from a tensor", "take the tensor itself, or its clone(), in the place of torch.tensor()"),
    Row(
        "find_unused_parameters=True was specified",
        "leave out find_unused_parameters=True: all are used, and each step searches the graph",
        (*_MODEL, "comm_bound"),
    ),
    Row(
        "Grad strides do not match bucket view strides",
        "lay the parameters out before DDP is made (memory_format, contiguous()): their gradients are copied",
        (*_MODEL, "comm_bound"),
    ),
    Row("1?Torch was not compiled with flash attention", "use a build of torch with flash attention", _MODEL),
    Row("RNN module weights are not part of single", "call flatten_parameters() of the recurrent layers", _MODEL),
    Row("There is a performance drop because we have not", "leave that operation out of torch.vmap", _MODEL),
    Row("None of the inputs have requires_grad=True", "pass use_reentrant=False to checkpoint()", _MODEL),
    Row(
        "Torchinductor does not support code generation for complex",
        "leave complex numbers out of torch.compile, or hold their two parts in real tensors",
        (*_MODEL, "recompiles"),
    ),
    Row("This DataLoader will create", "lower num_workers to the number of cores", ("cpu_oversubscribed",)),
    Row("DataFrame is highly fragmented", "join the columns at once: pd.concat(axis=1)"),
    Row("Changing the sparsity structure", "build the matrix in another form (lil, dok), and convert it once"),
)


def by_warnings(evidence: Evidence) -> Iterator[tuple[Row, Warned, str]]:
    """The rows of which the process has a warning, the first such, and what to do."""
    warnings = evidence.process.warnings if evidence.process is not None else ()
    for row in ROWS:
        warned = next((each for each in warnings if re.match(row.text, each.text)), None)
        if warned is not None:
            yield row, warned, f"{row.action} (see the warning at {code_place(warned.file, warned.line)})"


def with_warnings(findings: Sequence[Finding], evidence: Evidence) -> list[Finding]:
    """The findings, with what a warning is about beside the first that names its line, or else that it concerns."""
    found = list(findings)
    for row, warned, action in by_warnings(evidence):
        if any(fix.action == action for each in found for fix in each.fixes):
            continue
        named = [n for n, each in enumerate(found) if any(at[:2] == (warned.file, warned.line) for at in each.where)]
        at = next(iter((*named, *(n for n, each in enumerate(found) if each.rule in row.rules))), None)
        if at is not None:
            found[at] = replace(found[at], fixes=(*found[at].fixes, Fix(action)))
    return found
