"""Write the JSON Schemas beside this file: ``make schema``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuimon.views.schemas import schemas

FOLDER = Path(__file__).parent / "schema"


def texts() -> dict[Path, str]:
    """What each file has to hold."""
    return {
        FOLDER / f"{name}.schema.json": msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() + "\n"
        for name, schema in schemas().items()
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
