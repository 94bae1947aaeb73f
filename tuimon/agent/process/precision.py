"""The precision a training computes in: the types of its parameters, and whether TF32 may be used."""

import sys
from typing import Any, Dict, List

#: Most parameters whose type is read.
_PARAMETERS_LIMIT = 4096

_types: List[str] = []


def read_dtypes(optimizer: Any) -> None:
    """Remember the types of the parameters that an optimizer updates."""
    try:
        parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"][:_PARAMETERS_LIMIT]
        ]
        _types[:] = sorted({str(parameter.dtype).replace("torch.", "") for parameter in parameters[:_PARAMETERS_LIMIT]})
    except Exception:
        return


def facts() -> Dict[str, Any]:
    """The precision's facts; none before an optimizer has been seen."""
    if not _types:
        return {}
    tf32 = _tf32(sys.modules.get("torch"))
    return {"parameter_dtypes": list(_types), **({} if tf32 is None else {"tf32": tf32})}


def _tf32(torch: Any) -> Any:
    """Whether matrix products of float32 may round to TF32; None where torch has no such setting.

    torch 2.9 has new names, and raises where a program has set the one and the other is read.
    """
    try:
        new = torch.backends.cuda.matmul.fp32_precision
        if new != "none":
            return bool(new == "tf32")
    except Exception:
        new = None
    try:
        return bool(torch.get_float32_matmul_precision() != "highest")
    except Exception:
        return None
