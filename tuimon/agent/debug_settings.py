"""Settings meant for debugging that slow every step down, and are easily left on."""

import os
import sys
from typing import Any, Dict, List, Mapping


def facts() -> Dict[str, Any]:
    """Those in force; nothing rather than an empty list."""
    is_anomaly_enabled = getattr(sys.modules.get("torch"), "is_anomaly_enabled", None)
    settings = ["anomaly_detection"] if is_anomaly_enabled is not None and is_anomaly_enabled() else []
    settings += of_environment(os.environ)
    return {"debug_settings": settings} if settings else {}


def of_environment(environ: Mapping[str, str]) -> List[str]:
    """Those that environment variables set."""
    settings = ["launch_blocking"] if environ.get("CUDA_LAUNCH_BLOCKING") == "1" else []
    return settings + (["distributed_debug"] if environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL" else [])
