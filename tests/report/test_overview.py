"""The table of all ranks: what it takes from where, and which columns it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sglang_probe.collect.read import read
from sglang_probe.report.bars import PARTS, bar, legend
from sglang_probe.report.facts import TENANT
from sglang_probe.report.layout import WIDTH, Width
from sglang_probe.report.overview import has_strangers, shares_of, spent
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Timeline
from sglang_probe.timeline.processes import last_ledger, ranks_of

DATA = Path(__file__).parent.parent / "data"
LEFT_OVER = DATA / "h200-x2-sglang-0.5.14-failures" / "leftover"
QUIET = DATA / "h200-x2-sglang-0.5.14" / "car"
LOG = DATA / "cases" / "healthy_tp8.log"


def timeline(path: Path) -> Timeline:
    return build(read([path]), alive=lambda _: None)


def table(path: Path, width: Width = WIDTH, bars: bool = False) -> str:
    """Return the part of a report that is about all ranks."""
    text = timeline_text(timeline(path), width=width, bars=bars)
    return text[text.index("The ranks at the end") :].partition("\n\n")[0]


def test_what_a_log_s_ledger_lacks_is_what_its_pool_step_cost_with_the_log_s_decimals() -> None:
    first = ranks_of(timeline(LOG).runs[0])[0]
    ledger = last_ledger(first)
    assert ledger is not None and ledger.ledger is not None and ledger.ledger.kv_pool is None
    (cost,) = [step.cost_bytes for step in first.steps if step.phase == "kv.pool"]

    assert spent(first).kv == cost
    assert cost is not None and f" {cost / (1 << 30):.2f} " in table(LOG)


def test_strangers_on_the_cards_have_a_column_of_their_own_and_the_parts_still_sum_to_the_card() -> None:
    (run,) = timeline(LEFT_OVER).runs
    for process in ranks_of(run):
        step, one = last_ledger(process), spent(process)
        assert step is not None and step.ledger is not None
        assert one.foreign == step.ledger.foreign
        for foreign in (True, False):
            assert sum(value or 0 for value in shares_of(one, foreign=foreign)) == step.ledger_total_bytes


@pytest.mark.parametrize("width", [WIDTH, None, 50])
def test_the_column_of_strangers_is_there_where_there_are_any(width: Width) -> None:
    assert "foreign" in table(LEFT_OVER, width)
    assert "foreign" not in table(QUIET, width)
    assert all(len(line) <= (width or len(line)) for line in table(LEFT_OVER, width).splitlines())


def test_a_bar_shows_strangers_where_the_table_has_their_column() -> None:
    drawn, quiet = (re.findall(r"\[(\w*\.*)\]", table(path, bars=True)) for path in (LEFT_OVER, QUIET))

    assert all("F" in one for one in drawn) and drawn
    assert not any("F" in one for one in quiet) and quiet
    assert legend(foreign=True) in table(LEFT_OVER, 120, bars=True)


def test_little_of_a_stranger_s_is_other_memory() -> None:
    (rank, *_) = ranks_of(timeline(QUIET).runs[0])
    one = spent(rank)._replace(foreign=TENANT - 1)

    assert not has_strangers([one]) and has_strangers([one._replace(foreign=TENANT)])
    amounts = dict(zip((part.name for part in PARTS), shares_of(one, foreign=False), strict=True))
    assert amounts["foreign"] is None
    assert amounts["other"] == (one.other or 0) + TENANT - 1
    drawn = bar(list(amounts.values()), WIDTH)
    assert drawn is not None and "F" not in drawn.plain
