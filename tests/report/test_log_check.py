"""How a log agrees with its run's events, in the text report."""

from __future__ import annotations

from pathlib import Path

from sglang_probe.report.text import timeline_text
from tests.timeline.logs.pairs import CAR, both_of, changed, check_of, events_of, replaced, timeline_of

EVENTS = CAR.with_suffix("")


def flat(text: str) -> str:
    return " ".join(text.split())


def test_agreement_is_one_line_of_the_head() -> None:
    check = check_of(both_of(CAR))
    text = flat(timeline_text(timeline_of(CAR, EVENTS)))

    figures, arguments = f"{check.compared} of {check.compared}", check.arguments_compared
    assert f"the log agrees with the events in {figures} figures and {arguments} of {arguments} arguments" in text
    assert "DISAGREE" not in text


def test_a_disagreement_is_loud_with_both_figures_and_the_line_of_the_log(tmp_path: Path) -> None:
    made = changed(tmp_path, CAR, replaced("Memory pool end. avail mem=12.37", "Memory pool end. avail mem=13.37"))
    text = flat(timeline_text(timeline_of(made, EVENTS)))

    assert "2 DISAGREEMENTs" in text
    assert "LOG: TP0: kv.pool: free after it: events 12.371 GiB, log 13.37 GiB, +0.999 GiB (car.log:" in text


def test_a_run_without_a_log_says_nothing_of_one() -> None:
    assert events_of(CAR).log_check is None
    assert "the log agrees" not in flat(timeline_text(timeline_of(EVENTS)))
