"""Damaged and foreign lines cost themselves alone, and are counted with their place."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.collect import Collected, InputError, Loss, read
from sglang_probe.collect.records import attributes_of
from tests.collect.building import Writer, line_of
from tests.collect.starting import Shape, launch, write


@pytest.fixture
def writer() -> Writer:
    """A rank that started without trouble."""
    return launch([Shape()])[1]


def _read(lines: bytes, tmp_path: Path) -> Collected:
    file = tmp_path / "events.jsonl"
    file.write_bytes(lines)
    return read([file])


def _losses(collected: Collected) -> dict[str, int]:
    return {loss.kind: loss.count for loss in collected.report.losses}


def _loss(collected: Collected, kind: str) -> Loss:
    return next(loss for loss in collected.report.losses if loss.kind == kind)


def _seqs(collected: Collected) -> list[int]:
    return [record.seq for run in collected.runs for member in run.members for record in member.process.records]


def test_a_whole_file_is_read_without_a_loss(writer: Writer, tmp_path: Path) -> None:
    collected = _read(b"".join(writer.lines()), tmp_path)

    assert collected.report.clean
    assert [event["seq"] for event in writer.events] == _seqs(collected)
    assert len(writer.events) == collected.report.events == collected.report.lines


def test_a_last_line_that_is_cut_off_is_a_torn_tail_of_its_process(writer: Writer, tmp_path: Path) -> None:
    *whole, last = writer.lines()

    collected = _read(b"".join(whole) + last[: len(last) // 2], tmp_path)

    assert {"torn_tail": 1} == _losses(collected)
    assert len(whole) + 1 == _loss(collected, "torn_tail").examples[0].line
    assert [member.process.torn_tail for member in collected.runs[0].members] == [True]
    assert list(range(len(whole))) == _seqs(collected)


def test_a_last_line_without_its_newline_is_whole(writer: Writer, tmp_path: Path) -> None:
    collected = _read(b"".join(writer.lines()).rstrip(b"\n"), tmp_path)

    assert collected.report.clean
    assert len(writer.events) == collected.report.events


def test_a_short_write_that_is_followed_by_a_newline_costs_one_event(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[3] = lines[3][:100] + b"\n"

    collected = _read(b"".join(lines), tmp_path)

    assert {"torn_line": 1, "seq_gap": 1} == _losses(collected)
    assert "seq 3" == _loss(collected, "seq_gap").examples[0].text
    assert 1 == collected.runs[0].members[0].process.lost


def test_an_event_glued_to_a_torn_one_is_still_read(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[3] = lines[3][:100]

    collected = _read(b"".join(lines), tmp_path)

    assert {"torn_line": 1, "seq_gap": 1} == _losses(collected)
    assert 4 in _seqs(collected)


@pytest.mark.parametrize(
    ("foreign", "kind"),
    [
        (b"[2026-11-29 18:45:01 TP0] Load weight begin.\n", "foreign_line"),
        (b'{"traceEvents": []}\n', "foreign_line"),
        (b"[1, 2]\n", "foreign_line"),
        (b"null\n", "foreign_line"),
        (b"\n", "blank_line"),
        (b"  \r\n", "blank_line"),
        (b"\0\0\0\n", "nul_bytes"),
        (b'{"schema":"1.0","event":"sglang.memory.kv.pool.end"}\n', "wrong_shape"),
    ],
)
def test_a_foreign_line_is_counted_at_its_place_and_loses_nothing(
    writer: Writer, tmp_path: Path, foreign: bytes, kind: str
) -> None:
    lines = writer.lines()
    lines.insert(2, foreign)

    collected = _read(b"".join(lines), tmp_path)

    assert 1 == _losses(collected)[kind]
    assert 3 == _loss(collected, kind).examples[0].line
    assert list(range(len(writer.events))) == _seqs(collected)


def test_text_in_front_of_an_event_does_not_hide_it(writer: Writer, tmp_path: Path) -> None:
    collected = _read(b"".join(b"server-1  | " + line for line in writer.lines()), tmp_path)

    assert {"foreign_line": len(writer.events)} == _losses(collected)
    assert list(range(len(writer.events))) == _seqs(collected)


def test_carriage_returns_and_a_byte_order_mark_are_no_loss(writer: Writer, tmp_path: Path) -> None:
    collected = _read(b"\xef\xbb\xbf" + b"".join(writer.lines()).replace(b"\n", b"\r\n"), tmp_path)

    assert collected.report.clean
    assert len(writer.events) == collected.report.events


def test_nul_bytes_from_a_power_loss_hide_no_event(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[2] = b"\0" * 512 + lines[2]

    collected = _read(b"".join(lines), tmp_path)

    assert {"nul_bytes": 1} == _losses(collected)
    assert len(writer.events) == collected.report.events


def test_bytes_that_are_not_utf8_are_replaced_and_the_event_is_kept(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[0] = lines[0].replace(b'"prefix":"env"', b'"prefix":"\xff\xfe"')

    collected = _read(b"".join(lines), tmp_path)

    assert {"not_utf8": 1} == _losses(collected)
    assert "\ufffd\ufffd" == attributes_of(collected.runs[0].members[0].process.records[0])["prefix"]


def test_text_beyond_ascii_is_no_loss(writer: Writer, tmp_path: Path) -> None:
    writer.events[0]["attributes"]["prefix"] = "umgebung-ä-環境"

    assert _read(b"".join(writer.lines()), tmp_path).report.clean


def test_unknown_keys_are_ignored_and_unknown_event_names_are_kept(writer: Writer, tmp_path: Path) -> None:
    writer.events[1]["of_a_newer_minor"] = {"a": [1]}
    writer.emit("sglang.memory.serve.oom.sample", kind="sample")

    collected = _read(b"".join(writer.lines()), tmp_path)

    assert {"unknown_event": 1} == _losses(collected)
    assert "sglang.memory.serve.oom.sample" == collected.runs[0].members[0].process.records[-1].event


def test_a_newer_minor_version_is_read_and_counted(writer: Writer, tmp_path: Path) -> None:
    for event in writer.events:
        event["schema"] = "1.7"

    collected = _read(b"".join(writer.lines()), tmp_path)

    assert {"newer_minor": len(writer.events)} == _losses(collected)
    assert len(writer.events) == collected.report.events


@pytest.mark.parametrize("changed", [{}, {"seq": "moved elsewhere"}, {"pid": None}], ids=["same", "retyped", "null"])
def test_a_newer_major_version_is_refused_with_its_value(
    writer: Writer, tmp_path: Path, changed: dict[str, Any]
) -> None:
    lines = writer.lines()
    lines[4] = line_of(writer.events[4] | {"schema": "2.3"} | changed)

    with pytest.raises(InputError, match=r"line 5 has event schema 2\.3.*upgrade"):
        _read(b"".join(lines), tmp_path)


def test_lines_and_files_that_come_twice_count_once(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    (tmp_path / "copy.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "first.jsonl").write_bytes(b"".join([lines[0], *lines]))

    collected = read([tmp_path, tmp_path / "copy.jsonl"])

    assert {"duplicate_line": len(lines) + 1, "duplicate_file": 1} == _losses(collected)
    assert list(range(len(lines))) == _seqs(collected)


def test_lines_out_of_order_are_put_back_and_counted(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[5], lines[6] = lines[6], lines[5]

    collected = _read(b"".join(lines), tmp_path)

    assert {"reordered": 1} == _losses(collected)
    assert 7 == _loss(collected, "reordered").examples[0].line
    assert list(range(len(lines))) == _seqs(collected)


def test_events_of_one_number_that_differ_are_both_kept(writer: Writer, tmp_path: Path) -> None:
    other = writer.events[2] | {"message": "another", "mono_ns": writer.events[2]["mono_ns"] + 1}

    collected = _read(b"".join([*writer.lines(), line_of(other)]), tmp_path)

    assert 1 == _losses(collected)["same_seq"]
    assert 2 == _seqs(collected).count(2)


def _split(event: dict[str, Any], parts: int) -> list[dict[str, Any]]:
    items = list(event["attributes"].items())
    size = -(-len(items) // parts)
    return [
        event | {"attributes": dict(items[index * size : (index + 1) * size]), "part": index + 1, "parts": parts}
        for index in range(parts)
    ]


def test_an_event_in_parts_becomes_one_again_in_any_order(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[0:1] = [line_of(part) for part in reversed(_split(writer.events[0], 3))]

    collected = _read(b"".join(lines), tmp_path)

    records = collected.runs[0].members[0].process.records
    assert writer.events[0]["attributes"] == attributes_of(records[0])
    assert "missing_part" not in _losses(collected)
    assert len(writer.events) == len(records)


def test_a_missing_part_is_reported_and_the_others_are_kept(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    first, _, last = _split(writer.events[0], 3)
    lines[0:1] = [line_of(first), line_of(last)]

    collected = _read(b"".join(lines), tmp_path)

    assert 1 == _losses(collected)["missing_part"]
    assert first["attributes"] | last["attributes"] == attributes_of(collected.runs[0].members[0].process.records[0])


def test_a_line_far_too_long_for_an_event_is_skipped(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines.insert(1, b"x" * (5 << 20) + b"\n")

    collected = _read(b"".join(lines), tmp_path)

    assert {"long_line": 1} == _losses(collected)
    assert 2 == _loss(collected, "long_line").examples[0].line
    assert len(writer.events) == collected.report.events


def test_a_value_of_a_million_brackets_harms_nobody(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    deep = b"[" * 1_000_000 + b"]" * 1_000_000
    lines[1] = lines[1].replace(b'"degraded":[]', b'"degraded":' + deep)

    collected = _read(b"".join(lines), tmp_path)

    assert len(writer.events) - 1 == collected.report.events
    assert 1 == _losses(collected)["seq_gap"]


def test_standard_input_is_read_as_a_stream_of_several_processes(tmp_path: Path) -> None:
    writers = launch([Shape(), Shape()])
    mixed = sorted((event["mono_ns"], line_of(event)) for writer in writers for event in writer.events)

    collected = read(["-"], io.BytesIO(b"".join(line for _, line in mixed)))

    assert collected.report.clean
    assert sorted(len(writer.events) for writer in writers) == sorted(
        len(member.process.records) for member in collected.runs[0].members
    )


def test_events_before_a_process_knew_its_start_time_are_its_own(writer: Writer, tmp_path: Path) -> None:
    writer.events[0]["proc"] = None

    collected = _read(b"".join(writer.lines()), tmp_path)

    assert 1 == len(collected.runs[0].members)
    assert writer.start_ticks == collected.runs[0].members[0].process.key.start_ticks


def test_another_file_in_a_run_directory_is_noted_and_not_read(tmp_path: Path) -> None:
    run = write(tmp_path, launch([Shape()]))
    (run / "README").write_text("notes\n")
    (run / "core").write_bytes(bytes(range(256)) * 1000)
    (run / "empty.jsonl").touch()
    (run / "nested").mkdir()

    losses = _losses(read([run]))

    assert {"foreign_file": 2, "empty_file": 1, "nested_directory": 1} == losses


def test_every_kind_of_loss_says_what_it_is(writer: Writer, tmp_path: Path) -> None:
    collected = _read(b"".join([b"text\n", *writer.lines()]), tmp_path)

    (loss,) = collected.report.losses
    assert "a line is not a probe event" == loss.says
    assert not loss.lost
    assert json.loads(json.dumps(str(loss.examples[0].text))) == "text"


@pytest.mark.parametrize("half", [b"\\udcff", b"\\uD83D", b"\\ud83d\\ud83d", b"\\ude00\\ud83d"])
def test_half_a_surrogate_pair_is_replaced_and_the_event_is_kept(writer: Writer, tmp_path: Path, half: bytes) -> None:
    lines = writer.lines()
    lines[0] = lines[0].replace(b'"prefix":"env"', b'"prefix":"a' + half + b'"')

    collected = _read(b"".join(lines), tmp_path)

    assert {"half_pair": 1} == _losses(collected)
    assert not _loss(collected, "half_pair").lost
    expected = "a" + "\ufffd" * half.count(b"u")
    assert expected == attributes_of(collected.runs[0].members[0].process.records[0])["prefix"]


@pytest.mark.parametrize("whole", ["\U0001f600", "\\udcff", "\\\\ud83d"])
def test_a_whole_pair_and_an_escaped_backslash_stay_as_they_are(writer: Writer, tmp_path: Path, whole: str) -> None:
    writer.events[0]["attributes"]["prefix"] = whole
    lines = [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in writer.events]

    collected = _read(b"".join(lines), tmp_path)

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
    assert {"half_pair": len(lines)} == _losses(collected)


def test_an_event_is_cut_off_at_any_place_and_is_never_called_anything_else(writer: Writer, tmp_path: Path) -> None:
    line = (
        writer.lines()[3].rstrip(b"\n").replace(b'"attributes":{', b'"attributes":{"a":-1.5e-7,"b":"\\ud83d\\ude00",')
    )

    for end in range(1, len(line)):
        losses = _losses(_read(line[:end] + b"\n" + writer.lines()[0], tmp_path))
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

    collected = _read(b"".join(lines), tmp_path)

    assert {kind: 1, "seq_gap": 1} == _losses(collected)
    assert "short write" not in _loss(collected, kind).says


@pytest.mark.parametrize("field", ["mono_ns", "seq", "pid", "duration_ns", "draft_index"])
@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 10**400])
def test_a_number_that_64_bits_do_not_hold_has_the_wrong_type(
    writer: Writer, tmp_path: Path, field: str, value: int
) -> None:
    lines = writer.lines()
    lines[3] = line_of(writer.events[3] | {field: value})

    assert 1 == _losses(_read(b"".join(lines), tmp_path))["wrong_shape"]


def test_numbers_that_64_bits_do_not_hold_are_none_in_attributes(writer: Writer, tmp_path: Path) -> None:
    kept = {"most": (1 << 63) - 1, "least": -(1 << 63), "digits": "1" * 40, "real": 1e300}
    lines = writer.lines()
    spoilt = json.dumps(kept | {"over": 1 << 63, "under": [-(1 << 63) - 1], "huge": 10**400})[1:-1].encode()
    lines[0] = lines[0].replace(b'"attributes":{', b'"attributes":{' + spoilt + b',"float":1e400,')

    said = attributes_of(_read(b"".join(lines), tmp_path).runs[0].members[0].process.records[0])

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
        _read(lines, tmp_path)
        return time.process_time() - began

    few = cost(1000)

    assert cost(8000) < 30 * few + 0.2  # eight times as many; squared it would be 64 times
