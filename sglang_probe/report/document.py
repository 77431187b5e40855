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
    with path.open("wb") as file:
        file.write(json_bytes(document))
        file.write(b"\n")


def json_bytes(document: object) -> bytes:
    """Return a document, of structs or plain objects, as indented JSON (UTF-8) that may be shown on a terminal."""
    encoded = msgspec.json.format(msgspec.json.encode(document))
    if encoded.isascii() and DELETE not in encoded:  # nothing acts: no search through half a gigabyte
        return encoded
    return printable_json(encoded.decode()).encode()


DELETE: Final = b"\x7f"
"""The one ASCII character that JSON may hold unescaped and terminals obey."""
