"""The whole report as one JSON document: `{"schema": "report/1.0", "timeline": ..., "explain": ...}`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sglang_probe.explain.engine import to_json as findings_json
from sglang_probe.report.material import Material
from sglang_probe.report.plain import printable_json
from sglang_probe.timeline import to_json as timeline_json

SCHEMA: Final = "report/1.0"


def write(material: Material, path: Path) -> None:
    """Write what `timeline --format json` and `explain --format json` print, in one file."""
    document = {
        "schema": SCHEMA,
        "timeline": timeline_json(material.timeline),
        "explain": findings_json(material.explanation),
    }
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    path.write_text(f"{printable_json(text)}\n", encoding="utf-8")
