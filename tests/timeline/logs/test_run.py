"""A start read out of a log, as a run: outcome, steps, ledger, what is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs import run_of
from sglang_probe.timeline.model import Kv, Process, Run
from tests.timeline.logs.making import GIB, HUNDREDTH, amount, fact, healthy, log

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 672.00 MiB. GPU 0 has a total capacity of 140.06 GiB"
    " of which 200.75 MiB is free."
)


def _args(**arguments: Any) -> Fact:
    return fact("", "server_args", arguments=arguments)


def _rank(run: Run, label: str = "TP0") -> Process:
    return next(process for process in run.processes if process.label == label)


def _kv(run: Run, label: str = "TP0") -> Kv:
    kv = _rank(run, label).workers[0].kv
    assert kv is not None
    return kv


def test_a_log_that_says_so_is_ready_whatever_its_ranks_print() -> None:
    run = run_of(log(*healthy("TP0")[:4], fact("", "ready")))
    assert (run.outcome, run.source) == ("ready", "log")


def test_whole_lines_of_every_rank_of_the_arguments_are_ready_without_the_word() -> None:
    facts = [_args(tp_size=2), *healthy("TP0"), *healthy("TP1")]
    assert run_of(log(*facts)).outcome == "ready"


def test_a_rank_of_the_arguments_that_printed_nothing_leaves_the_outcome_unknown_and_is_missing() -> None:
    run = run_of(log(_args(tp_size=2), *healthy("TP0")))
    assert run.outcome == "unknown"
    assert [one.world_rank for one in run.missing] == [1]
    assert any("unknown, not zero" in note for note in run.notes)


def test_an_excerpt_without_arguments_is_unknown_even_where_all_ranks_serve() -> None:
    run = run_of(log(*healthy("TP0")[5:], *healthy("TP1")))
    assert run.outcome == "unknown"


def test_a_text_that_just_ends_says_where_and_with_what_free() -> None:
    run = run_of(log(*healthy("DP0 TP0")[:7]))
    assert run.outcome == "unknown"
    assert "graph.capture" in (run.outcome_reason or "")
    assert "9.50 GiB" in (run.outcome_reason or "")
    capture = next(step for step in _rank(run, "DP0 TP0").steps if step.phase == "graph.capture")
    assert (capture.state, capture.free_before_bytes, capture.free_bytes) == ("open", amount("9.50").bytes, None)


def test_an_error_is_on_the_rank_and_phase_that_printed_it_and_its_peers_were_interrupted() -> None:
    facts = [*healthy("TP0")[:7], *healthy("TP1")[:7]]
    facts.append(fact("TP1", "exception", text=OOM, type="torch.OutOfMemoryError", message=OOM))
    run = run_of(log(*facts))
    assert (run.outcome, run.failed_phase, run.failed_label) == ("failed", "graph.capture", "TP1")
    states = {label: _rank(run, label).steps[-1].state for label in ("TP0", "TP1")}
    assert states == {"TP0": "interrupted", "TP1": "error"}


def test_an_error_that_sglang_caught_is_no_failure() -> None:
    facts = healthy("TP0")
    facts.insert(4, fact("TP0", "exception", type="ImportError", message="no module", caught=True))
    assert run_of(log(*facts)).outcome == "ready"


def test_an_error_after_ready_leaves_it_ready_and_comes_later() -> None:
    run = run_of(log(*healthy("TP0"), fact("", "ready"), fact("TP0", "exception", type="RuntimeError", message="x")))
    assert run.outcome == "ready"
    assert [(one.label, one.what.split(" ")[0]) for one in run.later] == [("TP0", "RuntimeError")]


def test_a_killed_process_without_an_error_died() -> None:
    run = run_of(log(*healthy("TP0")[:7], fact("", "ended", how="crash", exit_code=-9, text="crashed with -9")))
    assert (run.outcome, run.failed_phase) == ("died", "graph.capture")
    assert "crashed with -9" in (run.outcome_reason or "")


def test_no_number_is_zero_where_the_log_does_not_print_it() -> None:
    run = run_of(log(*healthy("TP0")[3:4]))
    step = next(step for step in _rank(run).steps if step.phase == "weights.load")
    assert (step.free_before_bytes, step.free_bytes, step.cost_bytes) == (80 * GIB, 60 * GIB, 20 * GIB)
    assert step.precision_bytes == 2 * HUNDREDTH
    worker = _rank(run).workers[0]
    assert worker.kv is None
    assert _rank(run).device is None


def test_weights_without_a_usage_are_the_difference_of_two_lines_and_twice_as_uncertain() -> None:
    facts = healthy("TP0")
    facts[3] = fact("TP0", "weights_end", model_class="Qwen2ForCausalLM", avail="60.00")
    worker = _rank(run_of(log(*facts))).workers[0]
    assert (worker.weights_bytes, worker.weights_precision_bytes) == (20 * GIB, 2 * HUNDREDTH)


def test_the_ledger_has_the_rows_that_were_printed_and_a_reason_for_each_that_was_not() -> None:
    root = _rank(run_of(log(*healthy("TP0")))).steps[0]
    ledger = root.ledger
    assert ledger is not None
    assert (ledger.weights_target, ledger.kv_pool, ledger.graphs) == (20 * GIB, 50 * GIB, GIB)
    assert ledger.free == amount("8.50").bytes
    unknown = {name for name in ledger.__struct_fields__ if getattr(ledger, name) is None}
    assert unknown == set(root.ledger_reasons)
    assert root.ledger_total_bytes is None
    assert root.ledger_precision_bytes["kv_pool"] == 2 * HUNDREDTH


def test_a_total_that_torch_names_closes_the_ledger() -> None:
    facts = [*healthy("TP0")[:7], fact("TP0", "out_of_memory", text=OOM)]
    run = run_of(log(*facts))
    step = next(step for step in reversed(_rank(run).steps) if step.ledger is not None)
    assert step.ledger is not None
    rows = [getattr(step.ledger, name) for name in step.ledger.__struct_fields__]
    assert sum(row for row in rows if row is not None) == step.ledger_total_bytes == amount("140.06").bytes


def test_ranks_that_did_not_print_a_figure_are_said_to_be_unknown() -> None:
    run = run_of(log(*healthy("DP0 TP0"), *healthy("DP1 TP1")[4:5]))
    assert any(note.startswith("only DP0 TP0 reports weights") for note in run.notes)


def test_tokens_that_rank_0_alone_prints_are_those_of_all() -> None:
    silent = [one for one in healthy("TP1") if one.kind not in {"kv_alloc", "capacity"}]
    run = run_of(log(*healthy("TP0", tokens=4096), *silent))
    assert _kv(run, "TP1").tokens == 4096


@pytest.mark.parametrize(
    ("assumed", "limited_by"),
    [({"max_total_tokens": 16384}, "max_total_tokens"), ({"max_total_tokens": None}, "memory"), ({}, None)],
)
def test_what_limited_the_cache_is_said_only_where_the_log_or_the_user_tells(
    assumed: dict[str, Any], limited_by: str | None
) -> None:
    run = run_of(log(*healthy("TP0", tokens=16384)), assumed)
    assert _kv(run).limited_by == limited_by


def test_a_window_pool_is_told_from_the_full_one_by_its_tokens_and_both_are_summed() -> None:
    facts = healthy("TP0")[:4]
    facts += [
        fact("TP0", "swa_tokens", full=375360, swa=300288),
        fact("TP0", "kv_alloc", cache="KV Cache", tokens=300288, k="8.38", v="5.59", bound=False),
        fact("TP0", "kv_alloc", cache="KV Cache", tokens=375360, k="4.00", v="4.00", bound=False),
    ]
    kv = _kv(run_of(log(*facts)))
    assert [pool.kind for pool in kv.pools] == ["SWA", "MHA"]
    assert kv.bytes == sum(amount(figure).bytes for figure in ("8.38", "5.59", "4.00", "4.00"))
    assert kv.precision_bytes == 4 * HUNDREDTH


def test_a_pool_that_only_reserves_addresses_holds_nothing_yet() -> None:
    facts = healthy("TP0")[:4]
    facts.append(fact("TP0", "kv_alloc", cache="KV Cache", tokens=9_000_000, k="70.00", v="70.00", bound=True))
    facts.append(fact("TP0", "kv_post_capture", what="allocated", tokens=1_000_000, kv="40.00", avail="5.00"))
    kv = _kv(run_of(log(*facts)))
    assert (kv.bytes, kv.tokens) == (40 * GIB, 1_000_000)


def test_lines_that_come_again_and_again_are_one_remark_that_counts_them() -> None:
    retractions = [fact("TP0", "retract", text=f"#retracted_reqs: {count}", retracted=count) for count in (2, 3, 5)]
    (remark,) = run_of(log(*healthy("TP0"), fact("", "ready"), *retractions)).remarks
    assert (remark.count, remark.values["retracted"], remark.place) == (3, 2 + 3 + 5, "server.log:11")


@pytest.mark.parametrize(
    "after",
    [fact("TP0", "exception", type="ValueError", message="bad cache"), fact("", "ended", how="child", text="sigquit")],
    ids=["an exception", "an end"],
)
def test_a_rank_that_serves_is_not_ready_where_the_server_failed_before_it_said_so(after: Fact) -> None:
    assert run_of(log(*healthy("TP0"), after)).outcome in {"failed", "died"}
    assert run_of(log(*healthy("TP0"), fact("", "ready"), after)).outcome == "ready"


def test_slots_of_recurrent_states_are_no_tokens() -> None:
    facts = healthy("TP0")
    facts.insert(4, fact("TP0", "mamba_alloc", slots=151, conv="1.00", ssm="2.00"))
    mamba, kv = _kv(run_of(log(*facts))).pools
    assert (mamba.kind, mamba.tokens, kv.tokens) == ("mamba", None, 1000)


def test_the_rank_that_failed_is_blamed_and_not_the_one_that_reports_it_gone() -> None:
    lost = fact("TP0", "exception", type="RuntimeError", message="Connection closed by peer [127.0.0.1]:1")
    oom = fact("TP1", "exception", text=OOM, type="torch.OutOfMemoryError", message=OOM)
    run = run_of(log(*healthy("TP0")[:7], *healthy("TP1")[:7], lost, oom))
    assert (run.failed_label, run.lost_peer) == ("TP1", False)


def test_a_child_that_was_killed_is_blamed_and_not_the_launcher_s_end_of_file() -> None:
    killed = fact("", "ended", how="crash", exit_code=-9, text="Rank 1 died, exit code -9")
    run = run_of(log(*healthy("TP0")[:7], killed, fact("", "exception", type="EOFError", message="")))
    assert run.outcome == "died"
    assert "-9" in (run.outcome_reason or "")


def test_an_error_after_a_rank_s_last_line_of_the_start_is_of_no_step_of_it() -> None:
    oom = fact("TP0", "exception", text=OOM, type="torch.OutOfMemoryError", message=OOM)
    run = run_of(log(*healthy("TP0"), oom))
    assert (run.outcome, run.failed_label) == ("failed", "TP0")
    assert {step.state for step in _rank(run).steps} == {"ok"}
    assert run.failure is not None


def test_what_the_arguments_say_was_not_given_is_not_taken_from_the_user() -> None:
    arguments = _args(tp_size=1, max_total_tokens=None)
    kv = _kv(run_of(log(arguments, *healthy("TP0")), {"max_total_tokens": 100}))
    assert (kv.limited_by, kv.max_total_tokens_given) == ("memory", None)
