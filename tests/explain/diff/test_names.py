"""One name for a category in sentences and in tables."""

from __future__ import annotations

from sglang_probe.explain.diff.names import CATEGORIES
from sglang_probe.report.ledger import NAMES
from sglang_probe.timeline.ledger_rows import KEYS


def test_sentences_call_the_categories_as_the_tables_do() -> None:
    assert NAMES == CATEGORIES
    assert set(KEYS) == set(CATEGORIES)
