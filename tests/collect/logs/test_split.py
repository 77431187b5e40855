"""One text is cut where a server was started anew, and nowhere else; every cut is said."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.logs import start
from sglang_probe.collect.logs.read import read_log
from sglang_probe.collect.logs.split import MOST_STARTS
from sglang_probe.collect.logs.start import KEPT, most_of
from sglang_probe.collect.report import Tally
from tests.collect.logs.telling import BATCH, DRAFT, GROUP, READY, TOTALS, Teller, kinds, runs_of


def _extents(lines: list[str]) -> list[tuple[str, int, int, int]]:
    return [(run.name, run.first_line, run.last_line, run.starts) for run in runs_of(lines)]


def test_one_start_is_one_run_of_all_lines() -> None:
    lines = Teller().start()

    (run,) = runs_of(lines)

    assert ("server.log", 1, len(lines), len(lines), 1, ()) == (
        run.name, run.first_line, run.last_line, run.lines, run.starts, run.notes
    )
    assert ("server.log",) == run.files


def test_a_second_start_in_a_file_is_a_run_of_its_own_and_the_cut_is_said() -> None:
    teller = Teller()
    first = teller.start()
    second = teller.start()

    runs = runs_of(first + second)

    cut = len(first)
    assert [("server.log", 1, cut, 2), ("server.log#2", cut + 1, cut + len(second), 2)] == _extents(first + second)
    assert all(
        f"server.log holds 2 starts: lines 1-{cut}, lines {cut + 1}-{cut + len(second)}"
        f" (line {cut + 1} prints server_args again)" in run.notes
        for run in runs
    )
    assert kinds(runs[0]) == kinds(runs[1])


def test_a_draft_model_repeats_a_rank_s_lines_within_one_start() -> None:
    teller = Teller()
    lines = [*teller.arguments(speculative_algorithm="EAGLE"), *teller.group(), *teller.group(DRAFT), *teller.totals()]

    assert 1 == len(runs_of(lines))


@pytest.mark.parametrize("layers", [2, 4])
def test_each_layer_of_a_draft_that_has_several_is_of_the_same_start(layers: int) -> None:
    teller = Teller()
    groups = [line for _ in range(layers) for line in teller.group(DRAFT)]
    lines = [*teller.arguments(speculative_algorithm="EAGLE"), *teller.group(), *groups, *teller.totals()]

    assert 1 == len(runs_of(lines))


@pytest.mark.parametrize(("pause_s", "starts"), [(2, 1), (40, 2)])
def test_without_arguments_a_draft_is_told_from_a_restart_by_the_time_between(pause_s: float, starts: int) -> None:
    teller = Teller()
    lines = [*teller.group(), *teller.group(DRAFT, seconds=pause_s)]

    assert starts == len(runs_of(lines))


def test_without_arguments_ranks_that_begin_after_the_totals_are_a_restart() -> None:
    teller = Teller()
    lines = [*teller.group(), *teller.totals(), *teller.group(), *teller.totals()]

    assert ["server.log", "server.log#2"] == [run.name for run in runs_of(lines)]


def test_a_start_that_was_killed_while_it_loaded_ends_where_the_next_begins() -> None:
    teller = Teller()
    lines = [*teller.group(GROUP[:3]), *teller.group(), *teller.totals()]

    first, second = runs_of(lines)

    assert {"dist_init_begin", "dist_init_end", "weights_begin"} == set(kinds(first))
    assert "ready" in kinds(second)


def test_arguments_that_are_printed_twice_before_any_rank_are_one_start() -> None:
    teller = Teller()
    lines = [*teller.arguments(), *teller.arguments(), *teller.group(), *teller.totals()]

    assert 1 == len(runs_of(lines))


def test_a_time_that_jumps_back_is_a_cut() -> None:
    late, early = Teller(hours=9), Teller()

    first, second = runs_of([*late.group(), *early.group(GROUP[3:])])

    assert "at line 13 the time jumps back" in second.notes[0]
    assert 12 == first.last_line


def test_the_end_of_summer_time_is_no_cut() -> None:
    teller = Teller()
    lines = teller.start()
    teller.now -= timedelta(hours=1)
    lines += [teller.line(BATCH, "TP0")]

    assert 1 == len(runs_of(lines))


def test_ranks_whose_lines_are_a_little_out_of_order_are_no_cut() -> None:
    teller = Teller()
    lines = teller.arguments()
    for message in GROUP:
        lines += [teller.line(message, "TP0"), teller.line(message, "TP1", seconds=-20)]
        teller.now += timedelta(seconds=21)

    assert 1 == len(runs_of(lines))


def test_two_nodes_whose_lines_were_put_into_one_text_are_one_start() -> None:
    one, other = Teller(ranks=["TP0", "TP1"]), Teller(ranks=["TP2", "TP3"])
    nodes = [
        teller.arguments(dist_init_addr="10.0.0.1:5000", nnodes=2, node_rank=rank, tp_size=4)
        for rank, teller in enumerate((one, other))
    ]
    lines = [*nodes[0], *nodes[1], *one.group(), *other.group(), *one.totals()]

    (run,) = runs_of(lines)

    assert {"TP0", "TP1", "TP2", "TP3"} <= {fact.label for fact in run.facts}


def test_two_servers_that_write_at_once_under_the_same_names_are_not_guessed_at() -> None:
    one, other = Teller(), Teller()
    lines = [*one.arguments(port=30000), *other.arguments(port=30001)]
    for pair in zip(one.group(), other.group(), strict=True):
        lines += pair

    with pytest.raises(InputError, match="at line 1 and line 2"):
        runs_of(lines)


def test_a_server_that_serves_while_another_starts_keeps_its_batches() -> None:
    one, other = Teller(), Teller(hours=1)
    first, second = one.start(), other.start(port=30001)
    one.now = other.now
    middle = len(second) - 4

    runs = runs_of([*first, *second[:middle], one.line(BATCH, "TP0"), *second[middle:]])

    assert "batch" in kinds(runs[0])
    assert "batch" not in kinds(runs[1])


def test_what_a_server_repeats_for_months_is_kept_from_both_ends() -> None:
    teller = Teller()
    lines = teller.start()
    retract = "KV cache pool is full. Retract requests. #retracted_reqs: {}, #new_token_ratio: 0.5000 -> 0.6000"
    lines += [teller.line(retract.format(number), "TP0") for number in range(1, 3 * KEPT + 1)]

    (run,) = runs_of(lines)

    kept = [fact for fact in run.facts if fact.kind == "retract"]
    assert 2 * KEPT == len(kept)
    assert [len(lines) - 3 * KEPT + 1, len(lines)] == [kept[0].entry.line, kept[-1].entry.line]
    assert any(f"{3 * KEPT:,} lines of the kind retract" in note for note in run.notes)


def test_of_a_server_that_was_started_for_months_the_last_starts_are_kept() -> None:
    teller = Teller()
    lines = []
    for _ in range(MOST_STARTS + 7):
        lines += [*teller.arguments(), *teller.group(GROUP[:1], seconds=12)]

    runs = runs_of(lines)

    assert MOST_STARTS == len(runs)
    assert {MOST_STARTS + 7} == {run.starts for run in runs}
    assert f"of server.log the last {MOST_STARTS} starts are kept, 7 before are not" in runs[0].notes


def test_a_text_without_the_server_s_arguments_says_that_its_beginning_is_missing() -> None:
    (run,) = runs_of([Teller().line(TOTALS, "TP0"), Teller().line(READY)])

    assert ("server.log does not hold the server's beginning: no server_args",) == run.notes


def _by_turns(one: list[str], other: list[str]) -> list[str]:
    return [line for pair in zip(one, other, strict=True) for line in pair]


@pytest.mark.parametrize("hours", [0, 0.1, 5, -5])
def test_two_servers_that_write_line_by_line_are_refused_whatever_their_clocks_say(hours: float) -> None:
    one = Teller().start(port=30000)
    other = Teller(hours).start(port=30001)

    with pytest.raises(InputError, match="was written by two servers at once"):
        runs_of(_by_turns(one, other))


def test_starts_after_mixed_lines_are_mixed_until_a_server_says_its_arguments() -> None:
    teller = Teller()
    mixed = _by_turns(Teller().start(port=30000), Teller().start(port=30001))
    teller.now += timedelta(hours=1)
    after = teller.start()

    (run,) = runs_of(mixed + after)

    assert len(mixed) + 1 == run.first_line


def test_files_put_together_the_newest_first_are_not_taken_for_servers_by_turns() -> None:
    starts = [Teller(hours).start() for hours in (6, 5, 4, 3, 2, 1)]

    assert len(starts) == len(runs_of([line for start in starts for line in start]))


@pytest.mark.parametrize("cut", [1, 30, 80])
def test_a_text_that_ends_inside_the_arguments_says_so(cut: int) -> None:
    (line,) = Teller().arguments()
    notes = Tally()

    (run,) = read_log(io.BytesIO(line.rstrip("\n")[:-cut].encode()), "server.log", notes)

    assert "the text ends inside the server's arguments" in run.notes
    assert 1 == notes.count("cut_log")


def test_a_text_that_ends_behind_the_arguments_is_not_cut() -> None:
    (run,) = runs_of([line.rstrip("\n") for line in Teller().arguments()])

    assert () == run.notes


def test_arguments_printed_again_and_again_are_kept_a_few_times_and_shared() -> None:
    (line,) = Teller().arguments()
    (run,) = runs_of([line] * (2 * most_of("server_args") + 1))
    kept = [fact.values["arguments"] for fact in run.facts]

    assert 2 * most_of("server_args") == len(kept)
    assert {id(kept[0])} == {id(one) for one in kept}
    assert any(f"the last {most_of('server_args')} are kept" in note for note in run.notes)


def test_however_many_ranks_write_the_facts_of_a_start_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "MOST", 10)
    monkeypatch.setattr(start, "KEPT", 3)
    teller = Teller(ranks=[f"TP{number}" for number in range(50)])
    (run,) = runs_of(teller.group([GROUP[2]]))

    assert [*range(1, 11), 48, 49, 50] == [fact.entry.line for fact in run.facts]
    assert any("of 40 lines of the kind weights_begin the last 3 are kept" in note for note in run.notes)
