"""Values that JSON or 64 bits do not hold, lines cut off anywhere, and strange events in great numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.collect import read
from sglang_probe.collect.records import attributes_of
from tests.collect.building import Writer, line_of
from tests.collect.reading import loss_of, losses_of, read_bytes


@pytest.mark.parametrize("half", [b"\\udcff", b"\\uD83D", b"\\ud83d\\ud83d", b"\\ude00\\ud83d"])
def test_half_a_surrogate_pair_is_replaced_and_the_event_is_kept(writer: Writer, tmp_path: Path, half: bytes) -> None:
    lines = writer.lines()
    lines[0] = lines[0].replace(b'"prefix":"env"', b'"prefix":"a' + half + b'"')

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"half_pair": 1} == losses_of(collected)
    assert not loss_of(collected, "half_pair").lost
    expected = "a" + "\ufffd" * half.count(b"u")
    assert expected == attributes_of(collected.runs[0].members[0].process.records[0])["prefix"]


@pytest.mark.parametrize("whole", ["\U0001f600", "\\udcff", "\\\\ud83d"])
def test_a_whole_pair_and_an_escaped_backslash_stay_as_they_are(writer: Writer, tmp_path: Path, whole: str) -> None:
    writer.events[0]["attributes"]["prefix"] = whole
    lines = [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in writer.events]

    collected = read_bytes(b"".join(lines), tmp_path)

    assert collected.report.clean
    assert whole == attributes_of(collected.runs[0].members[0].process.records[0])["prefix"]


def test_a_run_whose_id_was_not_utf8_is_read(writer: Writer, tmp_path: Path) -> None:
    for event in writer.events:
        event["run_id"] = "r\udcff"
    run = tmp_path / "runs" / "r"
    run.mkdir(parents=True)
    lines = [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in writer.events]
    (run / "a.jsonl").write_bytes(b"".join(lines))

    collected = read([run.parent])

    assert ["r\ufffd"] == [found.run_id for found in collected.runs]
    assert {"half_pair": len(lines)} == losses_of(collected)


def test_an_event_is_cut_off_at_any_place_and_is_never_called_anything_else(writer: Writer, tmp_path: Path) -> None:
    line = (
        writer.lines()[3].rstrip(b"\n").replace(b'"attributes":{', b'"attributes":{"a":-1.5e-7,"b":"\\ud83d\\ude00",')
    )

    for end in range(1, len(line)):
        losses = losses_of(read_bytes(line[:end] + b"\n" + writer.lines()[0], tmp_path))
        assert {"torn_line": 1, "half_pair": losses.get("half_pair", 0)} == {"half_pair": 0, **losses}, line[:end]


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda line: line.replace(b'"pid":', b'"pid":nan,"x":'), "broken_line"),
        (lambda line: line + b"}", "broken_line"),
        (lambda line: line.replace(b'"seq":', b'"seq"'), "broken_line"),
        (lambda line: line[50:], "headless_line"),
    ],
)
def test_a_line_that_is_not_cut_off_is_not_called_a_short_write(
    writer: Writer, tmp_path: Path, spoil: Callable[[bytes], bytes], kind: str
) -> None:
    lines = writer.lines()
    lines[3] = spoil(lines[3].rstrip(b"\n")) + b"\n"

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {kind: 1, "seq_gap": 1} == losses_of(collected)
    assert "short write" not in loss_of(collected, kind).says


@pytest.mark.parametrize("field", ["mono_ns", "seq", "pid", "duration_ns", "draft_index"])
@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 10**400])
def test_a_number_that_64_bits_do_not_hold_has_the_wrong_type(
    writer: Writer, tmp_path: Path, field: str, value: int
) -> None:
    lines = writer.lines()
    lines[3] = line_of(writer.events[3] | {field: value})

    assert 1 == losses_of(read_bytes(b"".join(lines), tmp_path))["wrong_shape"]


def test_numbers_that_64_bits_do_not_hold_are_none_in_attributes(writer: Writer, tmp_path: Path) -> None:
    kept = {"most": (1 << 63) - 1, "least": -(1 << 63), "digits": "1" * 40, "real": 1e300}
    lines = writer.lines()
    spoilt = json.dumps(kept | {"over": 1 << 63, "under": [-(1 << 63) - 1], "huge": 10**400})[1:-1].encode()
    lines[0] = lines[0].replace(b'"attributes":{', b'"attributes":{' + spoilt + b',"float":1e400,')

    said = attributes_of(read_bytes(b"".join(lines), tmp_path).runs[0].members[0].process.records[0])

    assert kept == {key: said[key] for key in kept}
    assert (None, [None], None, None) == (said["over"], said["under"], said["huge"], said["float"])


@pytest.mark.parametrize("how", ["same number", "unknown names", "copies"])
def test_many_strange_events_take_time_in_proportion(writer: Writer, tmp_path: Path, how: str) -> None:
    def cost(count: int) -> float:
        begin = writer.events[3]
        if how == "same number":
            events = [begin | {"mono_ns": number, "seq": 0} for number in range(count)]
        elif how == "unknown names":
            events = [begin | {"event": f"sglang.x{number}", "seq": number} for number in range(count)]
        else:
            events = [begin | {"seq": 0, "mono_ns": number // 2} for number in range(count)]
        lines = b"".join(line_of(event) for event in events)
        began = time.process_time()
        read_bytes(lines, tmp_path)
        return time.process_time() - began

    few = cost(1000)

    assert cost(8000) < 30 * few + 0.2  # eight times as many; squared it would be 64 times
