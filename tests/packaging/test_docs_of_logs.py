"""The table of docs/logs.md is that of the kept corpus."""

from __future__ import annotations

import re
from pathlib import Path

from compat.log_corpus import Case, written
from sglang_probe.catalogue.releases import order

ROW = re.compile(
    r"^\| (?P<releases>[\d.post, to]+) \| (?P<recognised>\d+) \| (?P<total>\d+) \| (?P<bare>\d+) \|$", re.MULTILINE
)


def _has(case: Case, release: str) -> bool:
    spans = (part.partition("..") for part in case.releases.split(", "))
    return any(order(first) <= order(release) <= order(last or first) for first, _, last in spans)


def test_every_row_of_the_table_counts_the_lines_of_the_corpus_in_its_releases(root: Path) -> None:
    rows = list(ROW.finditer((root / "docs/logs.md").read_text(encoding="utf-8")))
    cases = written()
    assert len(rows) > 40
    for row in rows:
        release = re.split(r" to |, ", row["releases"])[0]
        own = [case for case in cases if _has(case, release)]
        assert int(row["recognised"]) == int(row["total"]) == len(own), release
        assert int(row["bare"]) == sum(case.kind == "figures" for case in own), release
