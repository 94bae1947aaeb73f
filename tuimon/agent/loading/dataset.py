"""The name of a data set."""

from typing import Any

_NAME_CHARACTERS = 80


def dataset_name(dataset: Any) -> str:
    """Name of the data set's class; of a Subset, that of the whole as well."""
    name = type(dataset).__name__
    inner = getattr(dataset, "__dict__", {}).get("dataset")
    if name == "Subset" and inner is not None:
        name = "Subset of %s" % type(inner).__name__
    return name[:_NAME_CHARACTERS]
