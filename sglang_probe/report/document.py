"""The whole report as one JSON document: `{"schema": "report/1.0", "timeline": ..., "explain": ...}`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sglang_probe.report.material import Material
from sglang_probe.report.plain import printable_json
from sglang_probe.timeline import shown

SCHEMA: Final = "report/1.0"


def write(material: Material, path: Path) -> None:
    """Write what `timeline --format json` and `explain --format json` print, in one file."""
    document = {"schema": SCHEMA, "timeline": shown(material.timeline), "explain": material.explanation}
    with path.open("w", encoding="utf-8") as file:
        file.write(json_text(document))
        file.write("\n")


def json_text(document: object) -> str:
    """Return a document, of structs or plain objects, as indented JSON that may be shown on a terminal."""
    return printable_json(msgspec.json.format(msgspec.json.encode(document)).decode())
