"""In what precision a training computes: the types of its parameters, and whether TF32 may be used."""

import sys
from typing import Any, Dict, List

_PARAMETERS = 4096

_types: List[str] = []


def see(optimizer: Any) -> None:
    """Remember the types of the parameters that an optimizer updates."""
    try:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"][:_PARAMETERS]]
        _types[:] = sorted({str(parameter.dtype).replace("torch.", "") for parameter in parameters[:_PARAMETERS]})
    except Exception:
        return


def facts() -> Dict[str, Any]:
    """What is known of it; without an optimizer nothing."""
    if not _types:
        return {}
    tf32 = _tf32(sys.modules.get("torch"))
    return {"parameter_dtypes": list(_types), **({} if tf32 is None else {"tf32": tf32})}


def _tf32(torch: Any) -> Any:
    """Whether matrix products of float32 may round to TF32; None where torch does not tell.

    torch 2.9 has new names, and raises where a program has set the one and one asks for the other.
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
