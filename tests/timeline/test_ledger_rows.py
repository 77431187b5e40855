"""The ledger's rows: each has one name for tables and sentences."""

from __future__ import annotations

from sglang_probe.timeline.ledger_rows import KEYS, NAMES


def test_every_row_has_a_name_and_no_two_share_one() -> None:
    assert tuple(sorted(NAMES)) == tuple(sorted(KEYS))
    assert len(set(NAMES.values())) == len(NAMES)
