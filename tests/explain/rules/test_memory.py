"""Memory that ran out after the budget, in pieces, or soon."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sglang_probe.timeline.model import Later, Remark
from tests.explain.explaining import ARGUMENTS, failed, findings, of, raising, rank, ready, rules, tenant
from tests.timeline.building import build_step, gib

CAPTURE = (
    "CUDA out of memory. Tried to allocate 252.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 154.31 MiB is"
    " free. Including non-PyTorch memory, this process has 139.64 GiB memory in use. Of the allocated memory 138.06 GiB"
    " is allocated by PyTorch, and 10.72 MiB is reserved by PyTorch but unallocated."
)
PIECES = (
    "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 94.97 GiB of which 1.00 GiB is free."
    " Including non-PyTorch memory, this process has 93.97 GiB memory in use. Of the allocated memory 80.00 GiB is"
    " allocated by PyTorch, and 12.00 GiB is reserved by PyTorch but unallocated."
)
IN_SGLANG = """
File "/x/sglang/srt/model_executor/runner_utils/buffers.py", line 130, in create
File "/x/torch/y.py", line 1, in f
"""


def test_a_capture_says_wanted_free_short_and_what_is_outside_torch() -> None:
    run = raising("graph.capture", CAPTURE, stacktrace=IN_SGLANG)
    found = of("graphs", run)

    assert rules(run)[0] == "graphs"
    assert "Wanted 252.00 MiB, free 154.31 MiB: short by 97.69 MiB" in found.says
    outside = 139.64 - 138.06 - 10.72 / 1024
    assert f"{outside:.2f} GiB are outside PyTorch" in found.says
    assert "asked for in srt/model_executor/runner_utils/buffers.py:130 in create" in found.notes


def test_its_first_lever_lowers_the_fraction_by_more_than_was_short() -> None:
    found = of("graphs", raising("graph.capture", CAPTURE))

    assert found.lever is not None
    assert found.lever.flag == "--mem-fraction-static"
    assert (0.9 - found.lever.value) * gib(94.0) >= 97.69 * (1 << 20)
    assert found.levers[0].flag == "--cuda-graph-max-bs"
    assert int(str(ARGUMENTS["cuda_graph_max_bs"])) // 2 == found.levers[0].value


def test_the_size_at_which_a_capture_died_is_said_where_it_was_recorded() -> None:
    run = raising("graph.capture", CAPTURE)
    first = run.processes[0]
    step = replace(first.steps[-1], attributes={"failed_size": 256})
    run = replace(run, processes=(replace(first, steps=(*first.steps[:-1], step)), run.processes[1]))

    assert ", at size 256." in of("graphs", run).says


def test_weights_that_do_not_fit_ask_for_more_devices() -> None:
    found = of("out_of_memory", raising("weights.load", CAPTURE))

    assert found.lever is not None
    assert found.lever.flag == "--tp"


def test_enough_reserved_and_unallocated_memory_is_called_fragmentation() -> None:
    found = of("fragmentation", raising("graph.capture", PIECES))

    assert "12.000 GiB that are reserved and not allocated, more than the 4.000 GiB" in found.says
    assert found.lever is not None
    assert "expandable_segments" in found.lever.says


def test_little_reserved_memory_is_no_fragmentation() -> None:
    assert "fragmentation" not in rules(raising("graph.capture", CAPTURE))


def test_a_ready_server_with_little_left_is_warned_to_lower_not_raise() -> None:
    run = ready(rank(0, 1, available=80.0, weights=14.0, fraction=0.97))
    process = run.processes[0]
    steps = (build_step("scheduler.init", 0, 94.5, 0.7, 9.0), *process.steps[1:])
    found = of("activation_reserve", replace(run, processes=(replace(process, steps=steps),)))

    assert "0.700 GiB are free after the start" in found.says
    assert "do not raise it" in found.says
    assert found.confidence == "possible"
    assert found.lever is not None
    assert found.lever.value < 0.97


def test_where_no_lower_fraction_makes_that_room_none_is_named() -> None:
    run = ready(rank(0, 1, pre_load=10.7, available=6.4, weights=4.2, fraction=0.909))
    process = run.processes[0]
    steps = (build_step("scheduler.init", 0, 12.0, 0.7, 9.0), *process.steps[1:])
    found = of("activation_reserve", replace(run, processes=(replace(process, steps=steps),)))

    assert found.lever is not None
    assert found.lever.flag is None
    assert "no lower fraction makes that room" in found.lever.says


def test_a_server_with_its_reserve_is_not_warned() -> None:
    run = ready(rank(0, 1, available=80.0, weights=14.0))  # 80 GiB are free at the end of this start

    assert "activation_reserve" not in rules(run)


def test_out_of_memory_after_ready_is_a_run_time_shortage() -> None:
    later = Later(
        ts=None, label="TP0", host="a", pid=1, phase="graph.capture", what=f"torch.OutOfMemoryError: {CAPTURE}"
    )
    found = of("out_of_memory", ready(rank(0, 1, available=80.0, weights=14.0), later=(later,)))

    assert found.severity == "error"
    assert "after the server was ready" in found.says
    assert "lower --mem-fraction-static" in found.says


def test_others_that_moved_while_it_started_are_said() -> None:
    gone = tenant(5.0, gone=True)
    found = of("growth", failed(rank(0, 1, tenants=(gone,))))

    assert "moved by 5.000 GiB while the server started (pid 114880 python3)" in found.says


@pytest.mark.parametrize("phase", ["graph.capture", "weights.load"])
@pytest.mark.parametrize("free", ["", " GPU 0 has a total capacity of 94.97 GiB of which 60.00 GiB is free."])
def test_no_shortage_below_nothing_is_said_and_no_flag_is_moved_for_it(phase: str, free: str) -> None:
    run = raising(phase, f"CUDA out of memory. Tried to allocate 1.00 GiB.{free}")
    first = run.processes[0]
    step = replace(first.steps[-1], free_bytes=gib(50.0))
    run = replace(run, processes=(replace(first, steps=(*first.steps[:-1], step)), *run.processes[1:]))
    found = next(one for one in findings(run) if one.rule in {"graphs", "out_of_memory"})

    assert "would have been enough" in found.says
    assert (None, None, ()) == (found.formula, found.lever, found.levers)
    assert found.numbers["short_by_bytes"] is None


def test_an_error_that_was_survived_is_told_and_is_no_cause() -> None:
    lines = Remark(kind="out_of_memory", what="out_of_memory", text=CAPTURE, place="logs/a.log:7", label="TP0", count=3)
    found = of("out_of_memory", replace(ready(rank(0, 1)), remarks=(lines,)))

    assert ("info", ("TP0",), None) == (found.severity, found.ranks, found.lever)
    assert "no process ended of it (a.log:7 and 2 more). Wanted 252.00 MiB" in found.says
