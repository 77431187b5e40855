"""Damaged and foreign lines cost themselves alone, and are counted with their place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.collect import InputError, read
from sglang_probe.collect.records import attributes_of
from tests.collect.building import Writer, line_of
from tests.collect.reading import loss_of, losses_of, read_bytes, seqs_of
from tests.collect.starting import Shape, launch, write


def test_a_whole_file_is_read_without_a_loss(writer: Writer, tmp_path: Path) -> None:
    collected = read_bytes(b"".join(writer.lines()), tmp_path)

    assert collected.report.clean
    assert [event["seq"] for event in writer.events] == seqs_of(collected)
    assert len(writer.events) == collected.report.events == collected.report.lines


def test_a_last_line_that_is_cut_off_is_a_torn_tail_of_its_process(writer: Writer, tmp_path: Path) -> None:
    *whole, last = writer.lines()

    collected = read_bytes(b"".join(whole) + last[: len(last) // 2], tmp_path)

    assert {"torn_tail": 1} == losses_of(collected)
    assert len(whole) + 1 == loss_of(collected, "torn_tail").examples[0].line
    assert [member.process.torn_tail for member in collected.runs[0].members] == [True]
    assert list(range(len(whole))) == seqs_of(collected)


def test_a_last_line_without_its_newline_is_whole(writer: Writer, tmp_path: Path) -> None:
    collected = read_bytes(b"".join(writer.lines()).rstrip(b"\n"), tmp_path)

    assert collected.report.clean
    assert len(writer.events) == collected.report.events


def test_a_short_write_that_is_followed_by_a_newline_costs_one_event(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[3] = lines[3][:100] + b"\n"

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"torn_line": 1, "seq_gap": 1} == losses_of(collected)
    assert "seq 3" == loss_of(collected, "seq_gap").examples[0].text
    assert 1 == collected.runs[0].members[0].process.lost


def test_an_event_glued_to_a_torn_one_is_still_read(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[3] = lines[3][:100]

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"torn_line": 1, "seq_gap": 1} == losses_of(collected)
    assert 4 in seqs_of(collected)


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

    collected = read_bytes(b"".join(lines), tmp_path)

    assert 1 == losses_of(collected)[kind]
    assert 3 == loss_of(collected, kind).examples[0].line
    assert list(range(len(writer.events))) == seqs_of(collected)


def test_text_in_front_of_an_event_does_not_hide_it(writer: Writer, tmp_path: Path) -> None:
    collected = read_bytes(b"".join(b"server-1  | " + line for line in writer.lines()), tmp_path)

    assert {"foreign_line": len(writer.events)} == losses_of(collected)
    assert list(range(len(writer.events))) == seqs_of(collected)


def test_carriage_returns_and_a_byte_order_mark_are_no_loss(writer: Writer, tmp_path: Path) -> None:
    collected = read_bytes(b"\xef\xbb\xbf" + b"".join(writer.lines()).replace(b"\n", b"\r\n"), tmp_path)

    assert collected.report.clean
    assert len(writer.events) == collected.report.events


def test_nul_bytes_from_a_power_loss_hide_no_event(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[2] = b"\0" * 512 + lines[2]

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"nul_bytes": 1} == losses_of(collected)
    assert len(writer.events) == collected.report.events


def test_bytes_that_are_not_utf8_are_replaced_and_the_event_is_kept(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[0] = lines[0].replace(b'"prefix":"env"', b'"prefix":"\xff\xfe"')

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"not_utf8": 1} == losses_of(collected)
    assert "\ufffd\ufffd" == attributes_of(collected.runs[0].members[0].process.records[0])["prefix"]


def test_text_beyond_ascii_is_no_loss(writer: Writer, tmp_path: Path) -> None:
    writer.events[0]["attributes"]["prefix"] = "umgebung-ä-環境"

    assert read_bytes(b"".join(writer.lines()), tmp_path).report.clean


def test_unknown_keys_are_ignored_and_unknown_event_names_are_kept(writer: Writer, tmp_path: Path) -> None:
    writer.events[1]["of_a_newer_minor"] = {"a": [1]}
    writer.emit("sglang.memory.serve.oom.sample", kind="sample")

    collected = read_bytes(b"".join(writer.lines()), tmp_path)

    assert {"unknown_event": 1} == losses_of(collected)
    assert "sglang.memory.serve.oom.sample" == collected.runs[0].members[0].process.records[-1].event


def test_a_newer_minor_version_is_read_and_counted(writer: Writer, tmp_path: Path) -> None:
    for event in writer.events:
        event["schema"] = "1.7"

    collected = read_bytes(b"".join(writer.lines()), tmp_path)

    assert {"newer_minor": len(writer.events)} == losses_of(collected)
    assert len(writer.events) == collected.report.events


@pytest.mark.parametrize("changed", [{}, {"seq": "moved elsewhere"}, {"pid": None}], ids=["same", "retyped", "null"])
def test_a_newer_major_version_is_refused_with_its_value(
    writer: Writer, tmp_path: Path, changed: dict[str, Any]
) -> None:
    lines = writer.lines()
    lines[4] = line_of(writer.events[4] | {"schema": "2.3"} | changed)

    with pytest.raises(InputError, match=r"line 5 has event schema 2\.3.*upgrade"):
        read_bytes(b"".join(lines), tmp_path)


def test_lines_and_files_that_come_twice_count_once(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    (tmp_path / "copy.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "first.jsonl").write_bytes(b"".join([lines[0], *lines]))

    collected = read([tmp_path, tmp_path / "copy.jsonl"])

    assert {"duplicate_line": len(lines) + 1, "duplicate_file": 1} == losses_of(collected)
    assert list(range(len(lines))) == seqs_of(collected)


def test_lines_out_of_order_are_put_back_and_counted(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines[5], lines[6] = lines[6], lines[5]

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"reordered": 1} == losses_of(collected)
    assert 7 == loss_of(collected, "reordered").examples[0].line
    assert list(range(len(lines))) == seqs_of(collected)


def test_events_of_one_number_that_differ_are_both_kept(writer: Writer, tmp_path: Path) -> None:
    other = writer.events[2] | {"message": "another", "mono_ns": writer.events[2]["mono_ns"] + 1}

    collected = read_bytes(b"".join([*writer.lines(), line_of(other)]), tmp_path)

    assert 1 == losses_of(collected)["same_seq"]
    assert 2 == seqs_of(collected).count(2)


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

    collected = read_bytes(b"".join(lines), tmp_path)

    records = collected.runs[0].members[0].process.records
    assert writer.events[0]["attributes"] == attributes_of(records[0])
    assert "missing_part" not in losses_of(collected)
    assert len(writer.events) == len(records)


def test_a_missing_part_is_reported_and_the_others_are_kept(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    first, _, last = _split(writer.events[0], 3)
    lines[0:1] = [line_of(first), line_of(last)]

    collected = read_bytes(b"".join(lines), tmp_path)

    assert 1 == losses_of(collected)["missing_part"]
    assert first["attributes"] | last["attributes"] == attributes_of(collected.runs[0].members[0].process.records[0])


def test_a_line_far_too_long_for_an_event_is_skipped(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    lines.insert(1, b"x" * (5 << 20) + b"\n")

    collected = read_bytes(b"".join(lines), tmp_path)

    assert {"long_line": 1} == losses_of(collected)
    assert 2 == loss_of(collected, "long_line").examples[0].line
    assert len(writer.events) == collected.report.events


def test_a_value_of_a_million_brackets_harms_nobody(writer: Writer, tmp_path: Path) -> None:
    lines = writer.lines()
    deep = b"[" * 1_000_000 + b"]" * 1_000_000
    lines[1] = lines[1].replace(b'"degraded":[]', b'"degraded":' + deep)

    collected = read_bytes(b"".join(lines), tmp_path)

    assert len(writer.events) - 1 == collected.report.events
    assert 1 == losses_of(collected)["seq_gap"]


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

    collected = read_bytes(b"".join(writer.lines()), tmp_path)

    assert 1 == len(collected.runs[0].members)
    assert writer.start_ticks == collected.runs[0].members[0].process.key.start_ticks


def test_another_file_in_a_run_directory_is_noted_and_not_read(tmp_path: Path) -> None:
    run = write(tmp_path, launch([Shape()]))
    (run / "README").write_text("notes\n")
    (run / "core").write_bytes(bytes(range(256)) * 1000)
    (run / "empty.jsonl").touch()
    (run / "nested").mkdir()

    losses = losses_of(read([run]))

    assert {"foreign_file": 2, "empty_file": 1, "nested_directory": 1} == losses


def test_every_kind_of_loss_says_what_it_is(writer: Writer, tmp_path: Path) -> None:
    collected = read_bytes(b"".join([b"text\n", *writer.lines()]), tmp_path)

    (loss,) = collected.report.losses
    assert "a line is not a probe event" == loss.says
    assert not loss.lost
    assert json.loads(json.dumps(str(loss.examples[0].text))) == "text"
