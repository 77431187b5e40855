"""Logs compared: with logs, with events, and with the events of the same run."""

from __future__ import annotations

import io
import re
from decimal import Decimal
from pathlib import Path

import pytest

from sglang_probe.collect.logs.read import read_log
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Diff
from sglang_probe.explain.diff.precision import AS_FAR
from sglang_probe.explain.diff.sentences import LOOK
from sglang_probe.explain.diff.values import NO_VARIABLES
from sglang_probe.explain.engine import as_printed
from sglang_probe.figures import GIB
from sglang_probe.report.diff import diff_text
from sglang_probe.timeline.logs import run_of
from sglang_probe.timeline.model import Run
from tests.timeline.logs.pairs import CAR, DATA, FIRST, LOGS, both_of, events_of, name_of, told_of

EXPERIMENTS = DATA / "h200-x2-sglang-0.5.14-experiments"
FAILURES = DATA / "h200-x2-sglang-0.5.14-failures"
NOCAR, LOWFRAC = FIRST / "nocar.log", FIRST / "lowfrac.log"
PLAIN = {path.parent: path.parent / "car.log" for path in LOGS} | {DATA / "h200-x2-sglang-0.5.14-ranks": CAR}
"""The plain start of each set of recordings; one without its own has the first of all."""


def pairs(path: Path) -> tuple[Diff, Diff]:
    """Compare a run with the plain one of its data: by events, and by logs."""
    plain = PLAIN[path.parent]
    return compare([events_of(plain), events_of(path)]), compare([told_of(plain), told_of(path)])


def fields(found: Diff) -> set[str]:
    """Return the arguments in effect that differ."""
    rows = [row for row in found.provenance if row.differs and row.counts and row.group == "arguments effective"]
    given = [row for row in found.provenance if row.differs and row.counts and row.group == "arguments given"]
    return {row.key for row in rows} | {row.key.lstrip("-").replace("-", "_") for row in given}


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_a_log_and_the_events_of_its_run_are_the_same_as_far_as_the_log_tells(path: Path) -> None:
    for runs in ([told_of(path), events_of(path)], [events_of(path), told_of(path)], [told_of(path), both_of(path)]):
        found = compare(runs)

        assert not [row for row in found.provenance if row.differs and row.counts]
        assert not [row for rank in found.ranks for row in (*rank.steps, *rank.ledger, *rank.budget)]
        if runs[0].outcome == runs[1].outcome:
            assert any(AS_FAR in one or "alike" in one for one in found.says), found.says


@pytest.mark.parametrize("path", [one for one in LOGS if one.stem != "car"], ids=name_of)
def test_what_differs_is_by_logs_what_it_is_by_events(path: Path) -> None:
    events, logs = pairs(path)

    for mine, theirs in zip(logs.sides, events.sides, strict=True):
        assert (mine.tokens, mine.mem_fraction_static) == (theirs.tokens, theirs.mem_fraction_static)
        names = ["available_bytes", "rest_bytes", "bytes_per_token"]
        names += ["free_bytes"] if mine.outcome == "ready" else []
        for name in names:
            one, other = getattr(mine, name), getattr(theirs, name)
            assert one is None or other is None or abs(one - other) <= mine.precisions.get(name, 0), name
    assert {"mem_fraction_static", "disable_custom_all_reduce"} & fields(logs) == {
        "mem_fraction_static",
        "disable_custom_all_reduce",
    } & fields(events)


def test_the_custom_all_reduce_off_is_the_same_experiment_with_the_precision_of_the_logs() -> None:
    events, logs = compare([events_of(CAR), events_of(NOCAR)]), compare([told_of(CAR), told_of(NOCAR)])

    assert events.experiment is not None
    assert logs.experiment is not None
    assert events.experiment.delta_tokens == logs.experiment.delta_tokens
    assert "custom all-reduce off: +989 tokens (free at the end on TP0 +0.02 +- 0.01 GiB)" in logs.says[0]


def test_a_fraction_that_failed_the_start_explains_it_by_logs_too() -> None:
    events, logs = compare([events_of(CAR), events_of(LOWFRAC)]), compare([told_of(CAR), told_of(LOWFRAC)])

    for found in (events, logs):
        (cause,) = [one for one in found.causes if one.explains]
        assert "fraction" == cause.part
        assert "explains the outcome (rest" in found.says[0]


def test_differences_carry_their_precision_and_none_is_below_it() -> None:
    for path in LOGS:
        _, logs = pairs(path)
        for rank in logs.ranks:
            rows = [(row.delta_bytes, row.precision_bytes) for row in rank.steps if row.delta_bytes]
            rows += [(row.delta_bytes, row.precision_bytes) for row in rank.ledger if row.delta_bytes]
            assert all(precision and abs(delta or 0) > precision for delta, precision in rows)
            terms = [row for row in rank.budget if row.term.endswith("_bytes") and row.delta is not None]
            assert all(abs(row.delta or 0) > (row.precision or 0) for row in terms)


def test_parts_smaller_than_the_logs_tell_are_none_and_the_rest_re_adds() -> None:
    for path in LOGS:
        work = pairs(path)[1].arithmetic
        if work is None:
            continue
        tops = [piece for piece in work.pieces if piece.of is None]
        assert work.delta_bytes == sum(piece.delta_bytes for piece in tops)
        told = [piece for piece in tops if piece.part != "other" and piece.precision_bytes and piece.delta_bytes]
        assert all(abs(piece.delta_bytes) > (piece.precision_bytes or 0) for piece in told)


def test_what_no_log_has_is_no_difference() -> None:
    found = compare([told_of(CAR), events_of(CAR)])
    rows = {(row.group, row.key): row for row in found.provenance}

    assert not rows["cards", "count"].counts
    assert not any(row.group == "functions" for row in found.provenance)
    assert not any(row.group == "variables" and row.counts for row in found.provenance)


def test_who_holds_a_card_is_not_recorded_by_a_log_and_not_said_to_be_nobody() -> None:
    found = compare([told_of(FAILURES / "car.log"), told_of(FAILURES / "oom-weights.log")])

    assert "who holds the rest of its card was not recorded" in found.says[0]
    assert "0.000 GiB more" not in " ".join(found.says)


def runs_of(path: Path) -> list[Run]:
    return [told_of(path), events_of(path), both_of(path)]


def test_any_mix_of_sources_can_be_printed_and_no_figure_of_a_log_has_a_third_decimal() -> None:
    text = diff_text(compare([*runs_of(CAR), *runs_of(NOCAR)]))
    rows = [line for line in diff_text(compare([told_of(CAR), told_of(NOCAR)])).splitlines() if "last reading" in line]

    assert "READY" in text
    assert rows
    assert all(len(word.partition(".")[2]) <= 2 for line in rows for word in line.split() if "." in word)


def test_a_merged_run_is_compared_as_its_events_are() -> None:
    merged, events = compare([both_of(CAR), both_of(NOCAR)]), compare([events_of(CAR), events_of(NOCAR)])

    assert events.says == merged.says
    assert events.notes == merged.notes
    assert events.arithmetic == merged.arithmetic


def test_less_memory_before_the_weights_is_said_in_gib_with_what_to_look_at() -> None:
    runs = [told_of(FAILURES / "car.log"), told_of(FAILURES / "leftover.log")]
    with as_printed(runs):
        found = compare(runs)
    before, after = (side.pre_load_bytes or 0 for side in found.sides)

    less = f"{(before - after) / GIB:.2f} GiB less were free before the weights"
    assert found.says[0].startswith(f"{less}: that explains")
    assert LOOK in found.says
    with as_printed(runs[::-1]):
        assert "GiB more were free before the weights: that explains" in compare(runs[::-1]).says[0]


@pytest.mark.parametrize("path", LOGS, ids=name_of)
def test_a_change_of_logs_comes_out_of_the_figures_beside_it_and_is_never_nothing(path: Path) -> None:
    runs = [told_of(PLAIN[path.parent]), told_of(path)]
    with as_printed(runs):
        text = diff_text(compare(runs))
    rows = re.findall(r"^ +\S.*?  +(-?\d+\.\d+) +(-?\d+\.\d+) +([+-]\d+\.\d+) \+- (\d+\.\d+)$", text, re.MULTILINE)

    for before, after, changed, off in rows:
        assert Decimal(after) - Decimal(before) == Decimal(changed)
        assert Decimal(changed)
        assert len(changed.partition(".")[2]) <= len(off.partition(".")[2]) <= 2


def test_what_rounds_to_nothing_at_the_decimals_of_a_log_is_left_out() -> None:
    runs = [told_of(NOCAR), told_of(CAR)]
    with as_printed(runs):
        text = diff_text(compare(runs))

    assert "budget: available" in text
    assert "budget: slack" not in text


@pytest.mark.parametrize("path", [CAR, LOWFRAC], ids=name_of)
def test_a_log_beside_events_names_no_variables_in_one_line(path: Path) -> None:
    for runs in ([told_of(CAR), events_of(path)], [events_of(path), told_of(CAR)]):
        found = compare(runs)
        text = diff_text(found)

        assert not [row for row in found.provenance if row.group in {"variables", "arguments given"}]
        assert [one for one in found.notes if one.startswith(NO_VARIABLES)]
        assert 1 == text.count(NO_VARIABLES)
        assert "unset" not in text
        assert "not given" not in text


def test_variables_that_differ_between_events_are_still_named_beside_a_log() -> None:
    told = [told_of(CAR), events_of(CAR), events_of(EXPERIMENTS / "chunk2k.log")]
    rows = [row for row in compare(told).provenance if row.why == NO_VARIABLES]

    assert all(row.values[1] != row.values[2] and not row.counts for row in rows)
    assert any(row.group == "arguments given" for row in rows)


def start(fraction: float, tokens: int, cap: int | None) -> Run:
    """Return the run of a log whose pool has so many tokens of 32 KiB."""
    half = tokens * 16384 / GIB
    lines = (
        f"server_args=ServerArgs(tp_size=1, mem_fraction_static={fraction}, max_total_tokens={cap})",
        "Load weight begin. avail mem=138.28 GB",
        "Load weight end. type=LlamaForCausalLM, avail mem=134.03 GB, mem usage=4.25 GB.",
        f"KV Cache is allocated. #tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB",
        f"Memory pool end. avail mem={134.03 - 2 * half:.2f} GB",
        "The server is fired up and ready to roll!",
    )
    text = "".join(f"[2030-01-01 00:00:{second:02}] {line}\n" for second, line in enumerate(lines))
    (log,) = read_log(io.BytesIO(text.encode()), "server.log")
    return run_of(log)


def test_the_fraction_explains_the_rest_and_not_tokens_that_a_cap_gave() -> None:
    capped, whole = start(0.9, 1_220_000, 1_220_000), start(0.909, 3_979_547, None)
    for runs in ([capped, whole], [whole, capped]):
        (cause,) = [one for one in compare(runs).causes if one.part == "fraction"]
        assert "tokens" not in cause.says
        assert "explains rest" in cause.says
