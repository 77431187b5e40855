"""The scanner finds each line with a needle, and its number, however bytes are cut, and holds no more than a line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.lines import LONGEST_LINE_BYTES
from sglang_probe.collect.logs.formats import NEEDLES
from sglang_probe.collect.logs.scan import RawLine, Scanner, finder
from sglang_probe.collect.report import Tally
from tests.collect.logs.carrying import read

BATCH = "[2026-11-29 19:52:40 TP0] Decode batch, #running-req: 1, token usage: 0.0{}"
LINES = st.lists(st.sampled_from([b"needle", b"a needle, and a needle", b"", b"hay", b"\r", b"x token usage: 1"]))


def _scan(blocks: list[bytes], *, context: bool = False, notes: Tally | None = None) -> list[RawLine]:
    scanner = Scanner(blocks, "a.log", finder=finder([b"needle"]), notes=notes or Tally())
    found = []
    while (line := scanner.take(context=context)) is not None:
        found.append(line)
    return found


@given(LINES, st.integers(1, 40), st.booleans())
def test_lines_with_a_needle_come_with_their_numbers_however_blocks_are_cut(
    lines: list[bytes], size: int, ended: bool
) -> None:
    data = b"\n".join(lines) + b"\n" * ended
    notes = Tally()
    found = _scan([data[at : at + size] for at in range(0, len(data), size)], notes=notes)
    expected = [(number, line) for number, line in enumerate(lines, 1) if b"needle" in line]
    assert expected == [(line.number, line.data) for line in found if b"needle" in line.data]
    assert data.count(b"\n") + (not data.endswith(b"\n") and data != b"") == notes.lines


@given(LINES, st.integers(1, 40))
def test_every_line_comes_when_asked_for(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    found = _scan([data[at : at + size] for at in range(0, len(data), size)], context=True)
    seen = dict.fromkeys((line.number, line.data) for line in found)
    assert list(enumerate(lines, 1)) == sorted(seen)


@given(LINES)
def test_of_the_batches_between_two_needles_the_last_is_kept(lines: list[bytes]) -> None:
    kept = [line.data for line in _scan([b"\n".join(lines)])]
    batches = [number for number, line in enumerate(lines) if b"token usage" in line]
    needles = [number for number, line in enumerate(lines) if b"needle" in line]
    stretches = [*zip([-1, *needles], [*needles, len(lines)], strict=True)]
    expected = sum(any(start < batch < end for batch in batches) for start, end in stretches)
    assert expected == sum(b"token usage" in line for line in kept)


@pytest.mark.parametrize(
    "line",
    [
        BATCH.format(0) + ", cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 0, ",
        BATCH.format(1) + ", #retracted-req: 0, pre-allocated usage: 0.10, #transfer-req: 1",
        "[2026-11-29 19:52:40] Prefill batch. #new-seq: 1, #new-token: 1, token usage: 0.00, #running-req: 0",
        '[2026-11-29 19:52:42] INFO:     127.0.0.1:48754 - "POST /generate HTTP/1.1" 200 OK',
    ],
)
def test_what_a_server_writes_all_day_holds_no_needle(line: str) -> None:
    assert finder(NEEDLES)(line.encode()) == []


def test_needles_stand_in_json_as_in_a_plain_log() -> None:
    assert [needle for needle in NEEDLES if json.dumps(needle.decode())[1:-1].encode()[-len(needle) :] != needle] == []


def test_of_a_thousand_batches_two_are_entries() -> None:
    batches = [BATCH.format(number % 10) for number in range(1000)]
    text = "\n".join([*batches, "[2026-11-29 19:52:41 TP0] Memory pool end. avail mem=1.00 GB", *batches])
    found = read(text)
    assert [1000, 1001, 2001] == [entry.line for entry in found]
    assert ["Decode batch", "Memory pool ", "Decode batch"] == [entry.text[:12] for entry in found]


@pytest.mark.parametrize("after", [b"", b"\nneedle\n"])
def test_a_line_over_the_longest_is_left_out_and_noted(after: bytes) -> None:
    notes = Tally()
    long = b"needle" + b"x" * (LONGEST_LINE_BYTES + 1)
    found = _scan([*(long[at : at + (1 << 20)] for at in range(0, len(long), 1 << 20)), after], notes=notes)
    assert [line.number for line in found] == ([2] if after else [])
    assert (notes.count("long_log_line"), notes.lines) == (1, 2 if after else 1)


def test_bars_of_hours_without_a_newline_are_read() -> None:
    bar = b"Capturing batches (bs=8 avail_mem=12.28 GB):  25%|##  | 1/4 [01:11<03:33, 71.27s/it]\r"
    end = b"[2026-11-29 19:52:40 TP0] Memory pool end. avail mem=1.00 GB\n"
    notes = Tally()
    found = read(bar * (2 * LONGEST_LINE_BYTES // len(bar)) + end, notes)
    assert ["Capturing bat", "Memory pool e"] == [entry.text[:13] for entry in found]
    assert (notes.count("long_log_line"), notes.lines) == (0, 1)
