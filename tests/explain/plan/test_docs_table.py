"""The errors that docs/plan.md states are those of the recorded runs."""

from __future__ import annotations

import os
import re

from tests.explain.plan.making import recorded
from tests.explain.plan.table import BEGIN, END, HEAD, PAGE, pairs, rows


def test_the_table_of_the_page_is_the_one_computed_from_the_recordings() -> None:
    table = list(rows())
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    stated, _, after = rest.partition(END)
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}\n" + "".join(f"{line}\n" for line in table) + END + after, encoding="utf-8")
        return

    assert len(table) > len(HEAD)
    assert stated.splitlines() == table


def test_the_errors_of_the_table_re_add() -> None:
    for line in rows():
        for predicted, measured, error in re.findall(r"(?<= )(-?[\d,.]+) \| (-?[\d,.]+) \| (-?[\d,.]+)(?= \()", line):
            made, seen, off = (round(float(figure.replace(",", "")) * 1000) for figure in (predicted, measured, error))
            assert off == made - seen, line


def test_both_ways_of_each_pair_are_in_it() -> None:
    found = list(pairs())

    assert sorted(found) == sorted((other, one) for one, other in found)
    assert all(recorded(one).outcome for one, _ in found)
