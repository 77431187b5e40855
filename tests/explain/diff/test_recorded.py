"""What the comparison says of the recorded runs of two H200s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sglang_probe.collect import read
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Diff, Row
from sglang_probe.explain.diff.sentences import NOTHING_COUNTS
from sglang_probe.explain.diff.wording import is_default_fraction
from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import GIB, fraction, gib, number
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Device, Kv, Run
from tests.explain.diff.pairs import EXPERIMENTS, FIRST, RECORDED, SECOND, recorded, with_workers
from tests.timeline.making import unknowable


def diff(first: Path, second: Path) -> Diff:
    return compare((recorded(first), recorded(second)))


def real(found: Diff) -> list[Row]:
    return [row for row in found.provenance if row.differs and row.counts]


def test_the_controlled_experiment_is_stated_in_one_line() -> None:
    there, back = diff(FIRST / "nocar", FIRST / "car"), diff(FIRST / "car", FIRST / "nocar")

    assert there.says[0].startswith("custom all-reduce on: +0.033 GiB, -989 tokens")
    assert back.says[0].startswith("custom all-reduce off: -0.033 GiB, +989 tokens")
    assert "custom all-reduce on: +0.033 GiB, -989 tokens" in back.says[0]


def test_the_experiments_numbers_are_those_of_the_two_runs() -> None:
    found = diff(FIRST / "nocar", FIRST / "car")
    assert found.experiment is not None

    before, after = found.sides
    assert before.tokens is not None and after.tokens is not None
    assert after.tokens - before.tokens == found.experiment.delta_tokens
    way = recorded(FIRST / "car").processes[1].pre_load
    assert way is not None
    assert way.custom_allreduce_bytes == found.experiment.category_delta_bytes
    assert ("arguments given", "--disable-custom-all-reduce") == (found.experiment.group, found.experiment.key)


def test_a_lower_fraction_explains_a_failed_budget_with_its_arithmetic() -> None:
    found = diff(FIRST / "car", FIRST / "lowfrac")
    before, after = found.sides
    (cause,) = found.causes
    assert after.available_bytes is not None and after.pre_load_bytes is not None
    assert before.mem_fraction_static is not None

    alone = after.available_bytes - after.pre_load_bytes * (1 - before.mem_fraction_static)
    assert ("fraction", True) == (cause.part, cause.explains)
    assert f"x (1 - {before.mem_fraction_static}), about {gib(round(alone))} GiB" in cause.says
    assert ("arguments given: --mem-fraction-static",) == cause.differences


def test_tenants_that_explain_nothing_are_named_before_their_arithmetic_without_a_comma() -> None:
    found = diff(SECOND / "oom-capture", EXPERIMENTS / "twoservers")
    (others,) = [cause for cause in found.causes if cause.part == "others"]
    assert others.explains is False
    assert re.match(r"pid [\d/]+, [\d.]+ GiB: by the device's own count", others.says)


def test_left_over_schedulers_explain_the_tokens_that_are_gone() -> None:
    found = diff(SECOND / "car", SECOND / "leftover")
    (cause,) = found.causes
    before, after = found.sides

    assert "the left-over pid 6832/6833, 127.574 GiB, explains" in cause.says
    assert f"{number(before.tokens)} -> {number(after.tokens)} tokens" in cause.says
    assert ("others", True) == (cause.part, cause.explains)
    assert found.experiment is None


def test_two_starts_of_one_server_differ_in_nothing_that_counts() -> None:
    found = diff(FIRST / "car", SECOND / "car")

    assert (NOTHING_COUNTS,) == found.says
    assert [] == real(found)
    assert () == found.ranks


@pytest.mark.parametrize("run", ["tenant", "oom-weights"])
def test_a_tenant_explains_a_failure_that_is_not_of_the_budget(run: str) -> None:
    found = diff(SECOND / "car", SECOND / run)
    leading = found.causes[0]

    assert ("phase", True) == (leading.part, leading.explains)
    assert {"tenants"} == {row.group for row in real(found)}
    assert leading.says.endswith("explains it")


def test_a_killed_rank_has_no_recorded_cause() -> None:
    found = diff(SECOND / "car", SECOND / "sigkill")
    (cause,) = found.causes

    assert cause.explains is False
    assert "dies there on TP1" in cause.says
    assert "was not recorded" in cause.says


def test_the_only_recorded_difference_is_named_and_not_sold_as_proof() -> None:
    found = diff(SECOND / "car", SECOND / "poisoned")
    (cause,) = found.causes

    assert cause.explains is None
    assert "the only recorded difference that counts: SGLANG_SABOTAGE unset -> poison" in cause.says


@pytest.mark.parametrize("run", [SECOND / "oom-capture", EXPERIMENTS / "oom-capture-size"])
def test_a_fraction_explains_what_is_short_in_the_graphs_if_the_other_frees_more(run: Path) -> None:
    there, back = diff(run.parent / "car", run), diff(run, run.parent / "car")
    car, failed = there.sides
    assert failed.tokens is not None and car.tokens is not None and failed.bytes_per_token is not None

    freed = gib((failed.tokens - car.tokens) * failed.bytes_per_token)
    short = shortage_of(Subject(recorded(run)))
    assert short is not None and short.short_bytes is not None
    for found in (there, back):
        assert ("phase", True) == (found.causes[0].part, found.causes[0].explains)
        assert ("arguments given: --mem-fraction-static",) == found.causes[0].differences
        assert f"= {freed} GiB more, and {mib(short.short_bytes)} were short on {short.label}" in found.causes[0].says


def capped(run: Run) -> Run:
    """Return a run whose pool was as large by --max-total-tokens, which both sides were given."""
    return with_workers(run, lambda worker: msgspec.structs.replace(worker, kv=_capped(worker.kv)))


def _capped(kv: Kv | None) -> Kv | None:
    return None if kv is None else msgspec.structs.replace(kv, tokens=1000, max_total_tokens_given=1000)


def test_a_fraction_does_not_explain_a_pool_that_is_capped_on_both_sides() -> None:
    car, failed = (capped(recorded(EXPERIMENTS / name)) for name in ("car", "oom-capture-size"))
    found = compare((car, failed))

    assert found.causes[0].explains is None
    assert "cannot be told" in found.causes[0].says


def test_the_graphs_settings_that_follow_from_a_flag_do_not_count() -> None:
    for name, flag in (("oom-capture-size", "--cuda-graph-max-bs"), ("chunk2k", "--chunked-prefill-size")):
        rows = {row.key: row for row in diff(EXPERIMENTS / "car", EXPERIMENTS / name).provenance}
        assert (False, f"follows from {flag}") == (rows["cuda_graph_config"].counts, rows["cuda_graph_config"].why)


@pytest.mark.parametrize("name", ["maxbs64", "chunk2k"])
def test_tokens_that_fell_by_sglangs_default_fraction_are_said_to(name: str) -> None:
    found = diff(EXPERIMENTS / "car", EXPERIMENTS / name)
    before, after = (fraction(side.mem_fraction_static) for side in found.sides)

    assert f" tokens, since SGLang's default fraction went {before} -> {after} (" in found.says[0]
    assert "ready" not in found.says[0]
    assert found.says[1].startswith(f"SGLang's default fraction {before} -> {after} explains")


def test_two_starts_that_were_short_of_memory_alike_have_no_cause_in_one_difference() -> None:
    found = diff(EXPERIMENTS / "oom-capture-size", SECOND / "oom-capture")

    assert found.says[0].startswith("both fail alike in graph.capture")
    assert "is not the cause of either failure" in found.says[0]
    assert found.causes[0].explains is False


def test_one_of_several_differences_may_explain_one_of_two_failures() -> None:
    found = diff(EXPERIMENTS / "oom-capture-later", SECOND / "oom-capture")

    assert found.causes[0].explains is True
    assert ("arguments given: --mem-fraction-static",) == found.causes[0].differences


def on_cpu(run: Run) -> Run:
    """Return a run as if its memory were the host's."""
    host = Device(index=0, kind="cpu", total_bytes=64 * GIB)
    return msgspec.structs.replace(
        run, processes=tuple(msgspec.structs.replace(one, device=host, pre_load=None) for one in run.processes)
    )


def test_on_a_cpu_no_memory_is_compared_and_one_note_says_so() -> None:
    found = compare((on_cpu(recorded(FIRST / "nocar")), on_cpu(recorded(FIRST / "car"))))

    assert not any(rank.ledger for rank in found.ranks)
    assert not any(row.delta_bytes for rank in found.ranks for row in rank.steps)
    assert found.arithmetic is None
    assert found.experiment is not None and found.experiment.delta_tokens is None
    assert 1 == sum("on a CPU" in note for note in found.notes)


def test_ranks_that_are_missing_on_a_side_are_said_and_not_compared() -> None:
    whole = recorded(FIRST / "car")
    cut = msgspec.structs.replace(whole, processes=tuple(one for one in whole.processes if one.label != "TP1"))
    found = compare((whole, cut))

    assert any("TP1 of baseline" in note for note in found.notes)


def test_memory_is_told_apart_to_the_gib() -> None:
    found = diff(SECOND / "car", SECOND / "leftover")
    (tp0, _) = found.ranks

    foreign = next(row for row in tp0.ledger if row.category == "foreign")
    assert foreign.delta_bytes is not None
    assert 127 < foreign.delta_bytes / GIB < 128


def test_two_figures_of_one_tenant_are_told_apart() -> None:
    (cause,) = diff(SECOND / "car", SECOND / "leftover").causes

    assert "127.574 GiB, explains" in cause.says
    assert "by the device's own count of what was in use before, (0.003 - 127.584) x 0.909" in cause.says


def test_what_stays_free_is_told_by_who_has_more_or_less_to_the_last_decimal() -> None:
    said = diff(EXPERIMENTS / "car", EXPERIMENTS / "maxbs64").says[-1]
    parts = re.findall(r"([\d.]+) GiB (more|less)", said)
    rounding = re.search(r"([\d.]+) of rounding", said)

    taken = sum(round(float(size) * 1000) * (1 if way == "more" else -1) for size, way in parts)
    (changed,) = re.findall(r"GiB, ([+-][\d.]+) GiB:", said)
    assert abs(round(float(changed) * 1000) + taken) == (0 if rounding is None else round(float(rounding[1]) * 1000))
    assert "KV pool" in said and "torch's cache" in said


def test_a_rank_alone_is_not_compared_with_a_launcher() -> None:
    car = recorded(EXPERIMENTS / "car")
    (rank,) = build(read([str(next(file_of(EXPERIMENTS / "car", "TP1")))]), alive=unknowable).runs
    for found, lacking in ((compare((car, rank)), "candidate"), (compare((rank, car)), "baseline")):
        assert not {"arguments given", "variables"} & {row.group for row in found.provenance}
        assert [] == real(found)
        assert (f"{NOTHING_COUNTS}, as far as both were recorded",) == found.says
        assert any(f"not compared: {lacking} lacks its launcher" in note for note in found.notes)


def test_what_is_in_effect_is_compared_without_a_launcher() -> None:
    (rank,) = build(read([str(next(file_of(EXPERIMENTS / "fraction80", "TP0")))]), alive=unknowable).runs
    found = compare((recorded(EXPERIMENTS / "car"), rank))

    assert ["arguments effective"] == [row.group for row in real(found)]
    assert ["mem_fraction_static"] == [row.key for row in real(found)]


def test_a_launchers_file_alone_differs_from_its_own_run_in_nothing_that_counts() -> None:
    found = compare((alone(SECOND / "car", None), recorded(SECOND / "car")))

    assert [] == real(found)
    assert (f"{NOTHING_COUNTS}, as far as both were recorded",) == found.says


def test_a_launchers_file_alone_differs_in_what_was_given_otherwise_and_nothing_else() -> None:
    found = compare((alone(FIRST / "car", None), recorded(FIRST / "lowfrac")))

    assert ["--mem-fraction-static"] == [row.key for row in real(found)]
    assert "the only recorded difference that counts: --mem-fraction-static not given -> 0.03" in found.says[0]


def test_two_ranks_alone_say_no_variables_and_what_the_budget_proves_is_said_first() -> None:
    found = compare((alone(FIRST / "car", "TP0"), alone(FIRST / "lowfrac", "TP0")))

    assert ["mem_fraction_static"] == [row.key for row in real(found)]
    assert found.says[0].startswith("mem_fraction_static 0.909 -> 0.030 explains the outcome")
    assert not any("cannot be told" in said or "default" in said for said in found.says)
    assert any("not compared: no side has its launcher's file" in note for note in found.notes)


def test_sglangs_default_fraction_is_one_that_is_known_not_to_have_been_given() -> None:
    car, nocar = recorded(FIRST / "car"), recorded(FIRST / "nocar")
    other = msgspec.structs.replace(
        nocar.provenance, effective={**(nocar.provenance.effective or {}), "mem_fraction_static": 0.8}
    )
    unsaid = msgspec.structs.replace(other, given=None)

    (known,) = _fractions(compare((car, msgspec.structs.replace(nocar, provenance=other))))
    (unknown,) = _fractions(compare((car, msgspec.structs.replace(nocar, provenance=unsaid))))
    assert [True, False] == [is_default_fraction(known), is_default_fraction(unknown)]


def test_a_proof_stands_above_where_two_failures_part() -> None:
    found = diff(FIRST / "lowfrac", SECOND / "oom-capture")

    assert "explains the outcome" in found.says[0]
    assert any(said.startswith("they part in kv.profile") for said in found.says[1:])
    assert not any("cannot be told" in said for said in found.says)


def test_a_matrix_calls_its_sides_by_their_letters() -> None:
    found = compare([recorded(path) for path in (SECOND / "car", *RECORDED)])
    said = [*found.says, *(cause.says for cause in found.causes)]

    assert any("with A's value" in one for one in said)
    assert [] == [one for one in said if re.search("baseline|candidate", one)]


def _fractions(found: Diff) -> list[Row]:
    return [row for row in found.provenance if row.key == "mem_fraction_static"]


def alone(directory: Path, label: str | None) -> Run:
    """Return what one file of a run says: that of a rank, or of the launcher where no label is given."""
    (run,) = build(read([str(next(file_of(directory, label)))]), alive=unknowable).runs
    return run


def file_of(directory: Path, label: str | None) -> Iterator[Path]:
    """Yield the files of one rank; of the launcher where no label is given."""
    for file in directory.glob("*.jsonl"):
        (run,) = build(read([str(file)]), alive=unknowable).runs
        if any(process.label == label and (label or process.role == "launcher") for process in run.processes):
            yield file
