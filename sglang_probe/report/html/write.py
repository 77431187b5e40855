"""Write the report that opens in a browser."""

from __future__ import annotations

from pathlib import Path

from sglang_probe.report.html.data import page_data
from sglang_probe.report.html.fallback import text_of
from sglang_probe.report.html.page import page_html
from sglang_probe.report.material import Material


def write(material: Material, path: Path) -> None:
    """Write one HTML file about everything that was read."""
    timeline, explanation = material.timeline, material.explanation
    document = page_data(timeline, explanation, material.where, material.now)
    page = page_html(document, title_of(document), text_of(timeline, explanation, material.where, material.now))
    path.write_text(page, encoding="utf-8")


def title_of(document: dict[str, object]) -> str:
    """Return what the browser's tab says: the run and how it ended."""
    runs = document["runs"]
    names = [f"{run['name']} {run['ended'].upper()}" for run in runs] if isinstance(runs, list) else []
    return f"{names[0] if len(names) == 1 else f'{len(names)} runs'} - SGLang Probe"
