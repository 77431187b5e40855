"""Plans from logs: what was measured with other settings lies within what two decimals allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_probe.explain.log_tokens import seat_token
from sglang_probe.explain.plan.from_log import settled
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import Plan
from sglang_probe.explain.subject import Subject
from sglang_probe.report.plan import plan_text
from tests.explain.plan.making import value
from tests.explain.plan.table import PAGE, change_in_words
from tests.timeline.logs.pairs import CAR, DATA, FIRST, both_of, events_of, told_of

EXPERIMENTS = DATA / "h200-x2-sglang-0.5.14-experiments"
GIB = 1 << 30
PLANNED = ["chunk2k", "context", "first", "fp8kv", "fraction80", "maxbs64", "requests"]
"""Experiments whose one change a log tells all about; others move communication, or who is on the cards."""


def against(one: str, other: str, *, by_log: bool) -> Plan:
    measured = EXPERIMENTS / f"{other}.log"
    return plan(told_of(EXPERIMENTS / f"{one}.log"), against=told_of(measured) if by_log else events_of(measured))


@pytest.mark.parametrize("by_log", [False, True])
@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("back", [False, True])
def test_what_an_experiment_measured_lies_within_the_precision_of_the_plan(
    name: str, back: bool, by_log: bool
) -> None:
    made = against(name, "car", by_log=by_log) if back else against("car", name, by_log=by_log)
    rows = {row.name: row for row in made.against}

    for known in ("tokens", "rest_bytes", "available_bytes", "pre_load_bytes", "weights_bytes"):
        row = rows[known]
        assert row.error is not None, known
        assert abs(row.error) <= (row.precision or 0), known
    for row in rows.values():
        if row.name == "free_bytes" and row.error is not None:
            assert abs(row.error) <= (row.precision or 0)


def test_tokens_at_another_fraction_are_within_a_tenth_of_a_percent() -> None:
    made = plan(told_of(EXPERIMENTS / "car.log"), Inputs(mem_fraction_static=0.8))
    tokens = made.number("tokens")

    assert tokens is not None
    assert tokens.planned is not None
    assert tokens.precision is not None
    assert 0 < tokens.precision < tokens.planned / 1000
    assert f"+- {round(tokens.precision):,} tokens" in made.says[-1]


@pytest.mark.parametrize("name", ["car", "tp1", "straycontext", "fp8kv"])
@pytest.mark.parametrize("fraction", [0.3, 0.7, 0.85, 0.95])
def test_a_plan_from_a_log_is_that_of_its_events_within_its_precision(name: str, fraction: float) -> None:
    """Of tp1 SGLang's pre-load memory is 0.06 GiB more than what the log prints before the weights."""
    path = EXPERIMENTS / f"{name}.log"
    made, exact = (plan(run, Inputs(mem_fraction_static=fraction)) for run in (told_of(path), events_of(path)))

    for known in ("tokens", "rest_bytes", "available_bytes", "pre_load_bytes", "slack_bytes", "free_bytes"):
        number, other = made.number(known), exact.number(known)
        assert number is not None
        assert other is not None
        assert number.planned is not None
        assert other.planned is not None
        assert abs(number.planned - other.planned) <= (number.precision or 0), known


def test_nothing_changed_gives_the_printed_tokens_exactly_and_no_precision() -> None:
    made = plan(told_of(CAR))
    tokens = made.number("tokens")

    assert tokens is not None
    assert (tokens.run, tokens.precision) == (tokens.planned, None)
    assert made.replays
    assert "within what the log's two decimals leave open" in " ".join(plan_text(made).split())


def test_a_log_is_set_to_its_tokens_within_what_it_prints() -> None:
    run = told_of(CAR)
    for before, after in zip(run.processes, settled(run).processes, strict=True):
        for one, other in zip(before.workers, after.workers, strict=True):
            assert one.budget is not None
            assert other.budget is not None
            off = one.budget.precisions
            moved = (other.budget.available_bytes or 0) - (one.budget.available_bytes or 0)
            assert abs(moved) <= off["available_bytes"] + off["pre_load_bytes"]
            assert 32768 == other.budget.bytes_per_token


def test_runs_of_events_are_planned_as_before() -> None:
    assert settled(events_of(CAR)) is events_of(CAR)
    made = plan(events_of(CAR), Inputs(mem_fraction_static=0.8))

    assert all(one.precision is None and one.run_precision is None for one in made.numbers)


def test_a_merged_run_plans_with_the_events_exact_figures() -> None:
    events = plan(events_of(CAR), Inputs(mem_fraction_static=0.8))

    assert events.numbers == plan(both_of(CAR), Inputs(mem_fraction_static=0.8)).numbers


def test_a_wish_is_solved_from_a_log_and_holds_in_its_events_but_for_the_precision() -> None:
    wished = 3_000_000
    made = plan(told_of(CAR), wishes=Wishes(tokens=wished))
    fraction = value(made, "mem_fraction_static")
    real = plan(events_of(CAR), Inputs(mem_fraction_static=fraction))
    tokens = made.number("tokens")

    assert tokens is not None
    assert value(real, "tokens") >= wished - (tokens.precision or 0)


@pytest.mark.parametrize(
    ("inputs", "unknown"),
    [
        (Inputs(custom_all_reduce=False), "what communication would give back is not known"),
        (Inputs(tp=1), "what communication would give back is not known"),
    ],
)
def test_what_the_log_does_not_hold_is_named(inputs: Inputs, unknown: str) -> None:
    made = plan(told_of(CAR), inputs)

    assert any(unknown in said for said in made.assumptions)
    for name in ("custom_allreduce_bytes", "request_pool_bytes", "attention_bytes"):
        number = made.number(name)
        assert number is not None
        assert number.run is None
    assert any("is a log: what communication took" in said for said in made.assumptions)


def test_another_request_pool_leaves_free_memory_unknown_for_a_log_does_not_print_it() -> None:
    made = plan(told_of(CAR), Inputs(max_running_requests=64))
    number = made.number("free_bytes")

    assert number is not None
    assert number.planned is None
    assert "the request pool would be another" in str(number.says)


def test_a_failed_start_is_planned_from_its_log_with_anothers_numbers() -> None:
    low = FIRST / "lowfrac.log"
    made = plan(told_of(low), Inputs(mem_fraction_static=0.909), like=told_of(CAR))

    tokens = made.number("tokens")
    assert tokens is not None
    assert tokens.planned is not None
    measured = value(plan(events_of(CAR)), "tokens")
    assert abs(tokens.planned - measured) <= (tokens.precision or 0)


def test_the_text_says_that_it_is_read_from_a_log(tmp_path: Path) -> None:
    text = " ".join(plan_text(plan(told_of(CAR), Inputs(mem_fraction_static=0.8))).split())

    assert "read from its log" in text
    assert "prints memory to two decimals, that is good to" in text


def _row(name: str) -> str:
    made = against("car", name, by_log=False)
    (tokens,) = [row for row in made.against if row.name == "tokens"]
    assert tokens.predicted is not None
    far = f" +- {round(tokens.precision):,}" if tokens.precision else ""
    changes = ", ".join(map(change_in_words, made.changes))
    return f"| {changes} | {tokens.predicted:,}{far} | {tokens.measured:,} | {tokens.error:,} |"


@pytest.mark.parametrize("name", ["fraction80", "first", "chunk2k", "maxbs64", "fp8kv"])
def test_the_table_of_the_docs_is_what_the_recorded_logs_give(name: str) -> None:
    assert _row(name) in PAGE.read_text()


OOM_CAPTURE = DATA / "h200-x2-sglang-0.5.14-failures" / "oom-capture.log"


def test_near_a_fraction_of_one_the_pre_load_memory_is_as_well_known_as_what_communication_took_allows() -> None:
    run = told_of(OOM_CAPTURE)
    made = plan(run, Inputs(mem_fraction_static=0.5))
    number = made.number("pre_load_bytes")
    (took, *_) = [step for process in run.processes for step in process.steps if step.phase == "dist.init"]

    assert number is not None
    assert number.precision is not None
    assert took.cost_bytes is not None
    assert number.precision <= took.cost_bytes + GIB // 50
    assert abs((number.planned or 0) - value(plan(events_of(OOM_CAPTURE)), "pre_load_bytes")) <= number.precision


@pytest.mark.parametrize("path", [OOM_CAPTURE, CAR])
def test_a_wish_that_has_less_to_spare_than_the_precision_is_not_said_to_hold(path: Path) -> None:
    made = plan(told_of(path), wishes=Wishes(tokens=400_000))
    (wish,) = made.wishes
    tokens = made.number("tokens")

    assert tokens is not None
    assert abs(wish.spare or 0) <= (tokens.precision or 0)
    assert wish.holds is None
    assert " may hold, with " in " ".join(made.says)
    assert " holds, with " not in " ".join(made.says)


def test_a_wish_with_more_to_spare_than_the_precision_holds() -> None:
    made = plan(told_of(CAR), Inputs(mem_fraction_static=0.8), Wishes(tokens=400_000))

    assert [True] == [wish.holds for wish in made.wishes]
    assert "--tokens 400,000 holds, with " in " ".join(made.says)


def without_a_pool(ranks: int) -> Iterator[str]:
    """A start of Llama-3.1-405B in 8 bits, refused for its fraction: no pool is printed."""
    yield f"server_args=ServerArgs(model_path='m', quantization='fp8', mem_fraction_static=0.55, tp_size={ranks})"
    for rank in range(ranks):
        yield f"[14:22:10 TP{rank}] Load weight begin. avail mem=78.33 GB"
    for rank in range(ranks):
        yield f"[14:24:41 TP{rank}] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=28.92 GB"
    yield "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


def test_the_size_of_a_token_that_explain_assumes_is_assumed_by_plan_too(tmp_path: Path) -> None:
    path = tmp_path / "start.log"
    path.write_text("\n".join(without_a_pool(8)))
    run = told_of(path)
    subject = Subject(run)
    assert subject.tightest is not None
    size = seat_token(subject, subject.tightest)
    assert size is not None
    assert "assumed" == size.basis
    made = plan(run, Inputs(mem_fraction_static=0.82))
    number, tokens, rest = made.number("bytes_per_token"), made.number("tokens"), made.number("rest_bytes")

    assert number is not None
    assert tokens is not None
    assert rest is not None
    assert (number.run, number.planned, number.basis) == (None, size.bytes, "assumed")
    assert int(rest.planned or 0) // size.bytes == tokens.planned
    assert any(size.says in said for said in made.assumptions)
