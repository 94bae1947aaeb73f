"""The name of a data set."""

import sys
from typing import Any

from ..torch_compat.unobserved import attributes

_NAME_CHARACTERS = 80


def dataset_name(dataset: Any) -> str:
    """Name of the data set's class; of a Subset, that of the whole as well."""
    name = type(dataset).__name__
    if type(dataset) is getattr(sys.modules.get("torch.utils.data.dataset"), "Subset", None):
        name = "Subset of %s" % type(attributes(dataset).get("dataset")).__name__
    return name[:_NAME_CHARACTERS]
