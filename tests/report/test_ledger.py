"""The ledger and the way to the pre-load memory as a person reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sglang_probe.report.fold import alone
from sglang_probe.report.layout import WIDTH
from sglang_probe.report.ledger import REASONS, ledger_lines, pre_load_lines
from sglang_probe.report.rank import rank_block
from sglang_probe.timeline import ledger_account, ledger_others
from sglang_probe.timeline.ledger import NO_NVML_TOTAL, TOTALS_DISAGREE
from sglang_probe.timeline.ledger_rows import KEYS, NAMES
from sglang_probe.timeline.model import Device, Ledger, Neighbour, PreLoad, Process, Step

GIB = 1 << 30
CUDA = Device(index=0, kind="cuda")


def process(amounts: dict[str, float], total: int = 100, device: Device = CUDA, **more: Any) -> Process:
    """Return a rank whose root ended with these rows, in GiB; what is left is unexplained."""
    rows = {key: round(value * GIB) for key, value in amounts.items()}
    rows["unexplained"] = total * GIB - sum(rows.values())
    known: dict[str, Any] = {"ledger_total_bytes": total * GIB, "ledger_total_source": "nvml_total_bytes"}
    known |= {"ledger": Ledger(**dict.fromkeys(KEYS, 0) | rows), "ledger_as_of": "after", **more}
    steps = (
        Step(id="1", parent=None, phase="scheduler.init", depth=0, state="ok", **known),
        Step(id="2", parent="1", phase="weights.load", depth=1, state="ok", ledger=Ledger(free=1)),
    )
    return Process(host="node-a", pid=1, label="TP0", device=device, steps=steps)


def told(process: Process, width: int = WIDTH) -> list[str]:
    return [line.plain for line in ledger_lines(process, width, "  ")]


def test_rows_that_hold_something_stand_in_two_columns_with_gib_and_share() -> None:
    assert [
        "Memory at the end (GiB of 100.000, NVML's total)",
        "  weights               40.000   40.0%   free                  10.000   10.0%",
        "  KV pool               49.500   49.5%   unexplained            0.500    0.5%",
    ] == told(process({"weights_target": 40, "kv_pool": 49.5, "free": 10}))


def test_an_odd_number_of_rows_leaves_the_last_place_empty() -> None:
    assert "  KV pool               50.000   50.0%   unexplained            0.000    0.0%" in told(
        process({"weights_target": 40, "kv_pool": 50, "free": 10})
    )
    assert told(process({"kv_pool": 50, "free": 50}))[-1].startswith("  free ")


def test_what_is_unexplained_is_shown_with_its_sign() -> None:
    assert "unexplained           -5.000   -5.0%" in "\n".join(told(process({"kv_pool": 50, "free": 55})))


def test_the_total_is_named_by_its_source_and_the_moment_by_its_reading() -> None:
    sourced = process({"free": 10}, ledger_total_source="device_total_bytes", ledger_as_of="last_known")

    assert "Memory at the last reading (GiB of 100.000, CUDA's total)" == told(sourced)[0]


def test_unknown_rows_are_said_once_for_each_reason() -> None:
    rank = process({"free": 10}, ledger_reasons={"cuda_context": "pid_namespace", "foreign": "pid_namespace"})

    assert [
        "  unknown, so in unexplained: CUDA context, foreign (NVML's list does not have",
        "    this process: pids of a container are not the host's)",
    ] == told(rank)[-2:]


def test_a_reason_from_outside_cannot_act_on_the_terminal() -> None:
    text = "\n".join(told(process({"free": 10}, ledger_reasons={"lora": "\x1b[31mred"})))

    assert "\x1b" not in text


def test_a_cpu_has_no_rows_to_show() -> None:
    assert [] == told(process({"free": 10}, device=Device(kind="cpu")))


def test_a_rank_without_a_ledger_has_no_such_block() -> None:
    bare = Process(host="node-a", pid=1, steps=(Step(id="1", parent=None, phase="weights.load"),))

    assert ([], []) == (told(bare), pre_load_lines(bare, WIDTH, "  "))


def test_every_row_and_every_reason_has_its_words() -> None:
    codes = {
        ledger_others.PID_NAMESPACE, ledger_others.NO_LIST, ledger_others.UNREAD_BYTES, ledger_others.MOVED,
        ledger_others.NO_BASE, ledger_account.NOT_READ, ledger_account.NOT_APART, NO_NVML_TOTAL, TOTALS_DISAGREE,
    }  # fmt: skip

    assert (KEYS, codes) == (tuple(NAMES), set(REASONS))
    assert max(map(len, NAMES.values())) <= 17


WAY = PreLoad(
    nvml_total_bytes=100 * GIB,
    driver_reserved_bytes=GIB,
    unlisted_bytes=0,
    idle_free_bytes=99 * GIB,
    context_bytes=GIB // 2,
    world_group_bytes=GIB // 8,
    communicators_bytes=GIB,
    custom_allreduce_bytes=GIB // 4,
    other_bytes=-GIB // 4,
    pre_load_bytes=99 * GIB - GIB // 2 - GIB // 8 - GIB,
    custom_allreduce_tokens=988.992,
)


def way(**changed: Any) -> str:
    rank = msgspec.structs.replace(process({}), pre_load=msgspec.structs.replace(WAY, **changed))
    return " ".join(line.plain.strip() for line in pre_load_lines(rank, WIDTH, "  "))


def test_the_way_from_the_idle_card_is_a_sum_that_a_reader_can_check() -> None:
    assert (
        "99.000 idle free - 0.500 context - 0.125 world group - 1.000 communicators -"
        " 0.250 custom all-reduce + 0.250 given back = 97.375"
    ) in way()


def test_the_drivers_reserve_is_no_part_of_it_and_said_so() -> None:
    assert "NVML's total 100.000 - 99.000 free = 1.000 reserved" in way()
    assert "= 1.000 reserved, and 0.125 in use" in way(unlisted_bytes=GIB // 8)


def test_what_the_custom_all_reduce_costs_is_a_line_in_gib_and_tokens() -> None:
    assert way().endswith("the custom all-reduce costs 0.250 GiB, or 989 KV tokens")
    assert "custom all-reduce" not in way(custom_allreduce_bytes=None)
    without = way(custom_allreduce_tokens=None, custom_allreduce_tokens_reason="no budget was recorded")
    assert without.endswith("in KV tokens: - (no budget was recorded)")


def test_an_unknown_start_of_the_way_is_said() -> None:
    text = way(idle_free_bytes=None, other_bytes=None, unlisted_bytes=None, idle_free_reason="no reading")

    assert "context 0.500, world group 0.125, communicators 1.000, custom all-reduce 0.250; then 97.375 free" in text
    assert "idle free: - (no reading)" in text


def test_figures_that_may_hold_memory_of_others_say_so() -> None:
    assert "another process's share in it cannot be ruled out" in way(not_separable="pid_namespace")


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_of_the_block_is_wider_than_the_page(width: int) -> None:
    full = process(dict.fromkeys(KEYS[:-1], 123456), ledger_reasons=dict.fromkeys(KEYS[:-1], "not_apart"))
    full = msgspec.structs.replace(full, pre_load=WAY)

    lines = ledger_lines(full, width, "  ") + pre_load_lines(full, width, "  ")
    assert [line.plain for line in lines if len(line.plain) > width or line.plain != line.plain.rstrip()] == []


def test_both_stand_in_the_block_of_a_rank() -> None:
    rank = msgspec.structs.replace(process({"free": 10}), pre_load=WAY)
    titles = [str(part) for part in rank_block(alone(rank), WIDTH)]

    assert titles.index("From an idle card to the pre-load memory (GiB)") < titles.index(
        "Memory at the end (GiB of 100.000, NVML's total)"
    )


def test_foreign_processes_are_named_the_largest_first() -> None:
    neighbours = (
        Neighbour(pid=7, name="a\x1b", kind="foreign", peak_bytes=GIB, gone=True),
        Neighbour(pid=8, name="sglang::scheduler", kind="foreign", peak_bytes=30 * GIB),
        Neighbour(pid=9, kind="run", peak_bytes=GIB),
    )

    text = " ".join(line.strip() for line in told(msgspec.structs.replace(process({}), neighbours=neighbours)))
    assert "foreign on this device: pid 8 sglang::scheduler 30.000 GiB, pid 7 a\\x1b 1.000 GiB (gone since)" in text
    assert "pid 9" not in text
