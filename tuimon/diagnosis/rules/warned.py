"""Warnings of libraries, added as remedies to the findings that they concern; never findings of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Place
from tuimon.text import code_place

_MODEL = "compute_bound_cpu compute_bound launch_bound"
#: By a part of the warning's text: what to do, and the rules whose findings it concerns, whatever its line.
ROWS = {
    "Using a target size": ("give target and output of a loss one shape: it computes each with each", _MODEL),
    "Creating a tensor from a list of numpy": ("join a list of arrays before it becomes a tensor", "input_bound"),
    "To copy construct from a tensor": ("use a tensor's clone() in the place of torch.tensor()", "input_bound"),
    "This DataLoader will create": ("lower num_workers to the number of cores", "cpu_oversubscribed"),
    "TensorFloat32 tensor cores": ("call torch.set_float32_matmul_precision('high')", "compute_bound"),
    "Torch was not compiled with flash attention": ("use a build of torch with flash attention", _MODEL),
    "RNN module weights are not part of": ("call flatten_parameters() of the recurrent layers", _MODEL),
    "There is a performance drop because": ("leave the operation that it names out of torch.vmap", _MODEL),
    "None of the inputs have requires_grad=True": ("pass use_reentrant=False to checkpoint()", _MODEL),
    "does not support code generation for complex": (
        "leave complex numbers out of torch.compile, or hold their two parts in real tensors",
        f"{_MODEL} recompiles",
    ),
    "DataFrame is highly fragmented": ("join the columns at once: pd.concat(axis=1)", "input_bound side_work"),
}


def warned_of(evidence: Evidence) -> Iterator[tuple[str, list[str], Place]]:
    """For each warning of the process: what to do, the rules that it concerns, and its line."""
    for warned in evidence.process.warnings if evidence.process is not None else ():
        if warned.text in ROWS:
            action, rules = ROWS[warned.text]
            see = f"{action} (see the warning at {code_place(warned.file, warned.line)})"
            yield see, rules.split(), Place(warned.file, warned.line, "")


def with_warnings(findings: Sequence[Finding], evidence: Evidence) -> list[Finding]:
    """The findings; the remedy of each warning is added to the first finding at its line, or else that it concerns."""
    found = list(findings)
    for action, rules, place in warned_of(evidence):
        if any(fix.action == action for each in found for fix in each.fixes):
            continue
        of_line = (n for n, each in enumerate(found) if any(at[:2] == place[:2] for at in each.where))
        at = next(of_line, next((n for n, each in enumerate(found) if each.rule in rules), None))
        if at is not None:
            found[at] = replace(found[at], fixes=(*found[at].fixes, Fix(action)))
    return found
