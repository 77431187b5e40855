"""What terminals, collectors, editors and two writers at once do to a log costs no record."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_probe.collect.logs import Entry, formats
from sglang_probe.collect.logs.entries import entries
from sglang_probe.collect.logs.wraps import width_of
from sglang_probe.collect.report import Tally
from tests.collect.logs.carrying import CARRIERS, FAILED, HEALTHY, NEEDLES, is_whole, lines_of, read, said

STAMP = "2026-11-29 19:52:40"
END = "Memory pool end. avail mem=12.37 GB"
CAPACITY = (
    "max_total_num_tokens=3979547, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, "
    "context_len=8192, available_gpu_mem=12.22 GB"
)
BAR = "Capturing batches (bs={} avail_mem=12.{}8 GB):  25%|##        | 1/4 [01:11<03:33, 71.27s/it]"


def _texts(found: list[Entry]) -> list[str]:
    return [entry.text for entry in found]


@pytest.mark.parametrize(
    ("line", "stamp", "ranks"),
    [
        (END, None, ()),
        (f"[gpu_id=1] {END}", None, (("TP", 1),)),
        (f"[gpu=3] {END}", None, (("TP", 3),)),
        (f"[19:52:40 TP0] {END}", "19:52:40", (("TP", 0),)),
        (f"[19:52:40] {END}", "19:52:40", ()),
        (f"[{STAMP}] {END}", STAMP, ()),
        (f"[{STAMP}.123 TP1] {END}", f"{STAMP}.123", (("TP", 1),)),
        (f"[{STAMP} DP2 TP1] {END}", STAMP, (("DP", 2), ("TP", 1))),
        (f"[{STAMP} TP1 EP3 PP0] {END}", STAMP, (("PP", 0), ("TP", 1), ("EP", 3))),
        (
            f"[{STAMP} DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5] {END}",
            STAMP,
            (("DP", 0), ("PP", 1), ("ATTN_CP", 2), ("MOE_DP", 3), ("TP", 4), ("EP", 5)),
        ),
        (f"[{STAMP} tp1] {END}", STAMP, (("TP", 1),)),
        (f"[{STAMP} encode_dp_worker[0]] {END}", STAMP, ()),
    ],
)
def test_sglang_s_prefix_of_every_era_is_read(line: str, stamp: str | None, ranks: tuple[tuple[str, int], ...]) -> None:
    (entry,) = read(line)
    assert (END, stamp, ranks, line != END) == (entry.text, entry.stamp, entry.ranks, entry.prefixed)


def test_colours_and_cursor_codes_are_taken_off() -> None:
    (entry,) = read(f"\x1b[1;33m[{STAMP} TP0]\x1b[0m Memory pool end.\x1b[39m avail mem=\x1b[1m12.37\x1b[0m GB\x1b[K\n")
    assert END == entry.text


def test_of_a_bar_that_a_record_is_glued_to_the_last_state_is_kept() -> None:
    bars = "\r".join(BAR.format(size, number) for number, size in enumerate((8, 4, 2)))
    found = read(f"\r  0%|          | 0/4 [00:00<?, ?it/s]\r{bars}[{STAMP} TP1] {END}\n")
    assert [BAR.format(2, 2), END] == _texts(found)
    assert [(), (("TP", 1),)] == [entry.ranks for entry in found]


def test_records_on_one_line_are_told_apart() -> None:
    found = read(f"[{STAMP} TP0] {END}[{STAMP} TP1] {END}[{STAMP} DP1 TP3] {END}\n")
    assert [END] * 3 == _texts(found)
    assert [(("TP", 0),), (("TP", 1),), (("DP", 1), ("TP", 3))] == [entry.ranks for entry in found]


def test_a_record_that_another_broke_into_is_put_together() -> None:
    found = read(f"[{STAMP} TP0] {END[:20]}[{STAMP} TP1] {END}\n{END[20:]}\n")
    assert [(END, (("TP", 0),)), (END, (("TP", 1),))] == [one[:2] for one in said(found)]


def test_a_prefix_inside_a_logged_request_is_its_user_s() -> None:
    assert not [
        entry
        for entry in read(f"[{STAMP}] Receive: obj=GenerateReqInput(text='why? [{STAMP} TP0] {END}')\n")
        if entry.text.startswith("Memory")
    ]


@pytest.mark.parametrize("width", [64, 80, 120, 200])
@pytest.mark.parametrize("log", [HEALTHY, FAILED], ids=["healthy", "failed"])
def test_a_log_wrapped_by_a_terminal_says_the_same(log: Path, width: int) -> None:
    lines = [line for line in lines_of(log) if is_whole(line[line.find("]") + 2 :])]
    wrapped = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    notes = Tally()
    assert said(read("\n".join(lines))) == said(read("\n".join(wrapped), notes))
    assert notes.count("wrapped_log_line") > 0


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "cut"])
@pytest.mark.parametrize("log", [HEALTHY, FAILED], ids=["healthy", "failed"])
def test_the_facts_of_a_whole_log_cut_at_a_width_are_the_same(log: Path, copied: bool, width: int) -> None:
    cuts = [line[at : at + width] for line in lines_of(log) for at in range(0, max(1, len(line)), width)]
    wrapped = "\n".join(cut.rstrip() if copied else cut for cut in cuts) + "\n"
    plain, found = (
        [
            (fact.kind, fact.label, fact.values)
            for entry in entries(
                io.BytesIO(text.encode()), "a", needles=formats.NEEDLES, is_whole=formats.is_whole, notes=Tally()
            )
            for fact in formats.facts_of(entry)
            if fact.kind != "server_args" or not copied
        ]
        for text in (log.read_text(), wrapped)
    )
    assert plain == found
    assert len(plain) > 15


def test_ranks_that_say_the_same_are_no_wrapped_text() -> None:
    text = "Use sliding window memory pool. full_layer_tokens=75360"
    lines = [f"3: [{STAMP} TP{rank}] {text}{rank}" for rank in range(8)]
    assert width_of("\n".join(lines).encode()) is None


def test_an_exception_alone_that_was_cut_at_a_width_is_one_line() -> None:
    whole = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 672.00 MiB. GPU 0 has a total capacity of "
        "140.06 GiB of which 200.75 MiB is free. Process 1000 has 139.86 GiB memory in use. That is all."
    )
    (entry,) = read("\n".join(whole[at : at + 80] for at in range(0, len(whole), 80)) + "\n")
    assert whole == entry.text


@pytest.mark.parametrize("mark", ["> ", ">> ", "    ", ""])
def test_a_record_wrapped_at_blanks_by_a_mail_is_put_together(mark: str) -> None:
    cut = CAPACITY.index("max_running")
    (entry,) = read(f"{mark}[{STAMP} TP0] {CAPACITY[: cut - 1]}\n{mark}{CAPACITY[cut:]}\n")
    assert CAPACITY == entry.text


@given(st.integers(len("max_total_num_tokens="), len(CAPACITY) - 1))
def test_no_figure_is_cut_short_wherever_a_line_was_wrapped(cut: int) -> None:
    (entry,) = read(f"[{STAMP} TP0] {CAPACITY[:cut]}\n{CAPACITY[cut:]}\n[{STAMP} TP0] The end.\n")
    assert CAPACITY == entry.text


def test_a_whole_record_takes_nothing_from_the_line_below() -> None:
    (entry,) = read(f"[{STAMP} TP0] {END}\nflashinfer is not available\n")
    assert END == entry.text


def test_a_last_figure_that_may_be_cut_off_is_noted() -> None:
    notes = Tally()
    read(f"[{STAMP} TP0] {CAPACITY[: CAPACITY.index(', available') - 2]}", notes)
    assert notes.count("cut_log") == 1


@pytest.mark.parametrize("carrier", ["plain", "docker logs -t", "cloud logging", "logcli", "cloud logging, a list"])
def test_a_log_with_its_newest_line_first_is_turned_round(carrier: str) -> None:
    lines = [line for line in lines_of(HEALTHY) if line.startswith("[2")]
    notes = Tally()
    rendered = CARRIERS[carrier](lines).rstrip("\n")
    if carrier.endswith("list"):
        found = read(json.dumps([*reversed(json.loads(rendered))], indent=2), notes)
    else:
        found = read("\n".join(reversed(rendered.split("\n"))) + "\n", notes)
    assert said(read("\n".join(lines))) == said(found)
    assert notes.count("reversed_log") == 1
    if carrier == "plain":
        assert {entry.text: len(lines) + 1 - entry.line for entry in found if not entry.ranks} == {
            entry.text: entry.line for entry in read("\n".join(lines)) if not entry.ranks
        }


@pytest.mark.parametrize("ended", [True, False])
def test_a_reversed_file_is_read_in_blocks(tmp_path: Path, ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang_probe.collect.logs.blocks.BLOCK_BYTES", 4000)
    lines = [line for line in lines_of(FAILED) if line.startswith("[2")]
    file = tmp_path / "a.log"
    file.write_text("\n".join(reversed([*lines, "", ""])) + "\n" * ended)
    with file.open("rb") as stream:
        found = list(entries(stream, "a.log", needles=NEEDLES, is_whole=is_whole, notes=Tally()))
    plain = read("\n".join(lines))
    assert said(plain) == said(found)
    assert [len(lines) + 3 - entry.line for entry in found] == [entry.line for entry in plain]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings_are_read(encoding: str) -> None:
    lines = lines_of(HEALTHY)
    assert said(read("\n".join(lines))) == said(read("\r\n".join(lines).encode(encoding)))


def test_nul_bytes_are_skipped_and_counted() -> None:
    notes = Tally()
    found = read(b"\0" * 5000 + f"[{STAMP} TP0] {END}\n".encode(), notes)
    assert ([END], 5000) == (_texts(found), notes.count("nul_bytes"))


def test_bytes_that_are_not_utf_8_are_replaced_and_counted() -> None:
    notes = Tally()
    (entry,) = read(f"[{STAMP} TP0] {END}".encode() + b" \xff\xfe\n", notes)
    assert (f"{END} \ufffd\ufffd", 2) == (entry.text, notes.count("not_utf8"))


def test_progress_is_told_every_byte() -> None:
    data = HEALTHY.read_bytes()
    told: list[int] = []
    list(entries(io.BytesIO(data), "a", needles=NEEDLES, is_whole=is_whole, notes=Tally(), progress=told.append))
    assert len(data) == sum(told)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_log_is_read_to_its_end_and_says_nothing_that_is_not_in_it(data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from([HEALTHY, FAILED])).read_bytes())
    for _ in range(data.draw(st.integers(0, 12))):
        at = data.draw(st.integers(0, len(text) - 1))
        size = data.draw(st.integers(0, 300))
        kind = data.draw(st.sampled_from(["cut", "twice", "bytes", "newline", "cr", "bar"]))
        if kind == "cut":
            del text[at : at + size]
        elif kind == "twice":
            text[at:at] = text[at : at + size]
        else:
            other = data.draw(st.binary(max_size=6)) if kind == "bytes" else b"\r" if kind == "cr" else b"\n"
            text[at:at] = other if kind != "bar" else b"\r 25%|##  | 1/4 [01:11<03:33, 71.27s/it]"
        if not text:
            return
    whole = "".join(bytes(text).decode("utf-8", "replace").replace("\0", "").split())
    notes = Tally()
    for entry in read(bytes(text), notes):
        line = entry.text.split("\n")[0]
        assert len(entry.text) <= len(text)
        assert "\x1b" in whole or "".join(line.split())[:40] in "".join(one for one in whole if one.isprintable())
    assert len(text) == notes.bytes
    assert bytes(text).count(b"\n") <= notes.lines


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_to_their_end(text: bytes) -> None:
    notes = Tally()
    assert len(read(text, notes)) <= text.count(b"\n") * 50 + 50
    assert len(text) == notes.bytes


@pytest.mark.parametrize("byte", ["\0", "\x01", "\x7f", "\ufeff", "\u200b", "\x1b", "\x9b", "\x08"])
def test_a_digit_that_was_damaged_leaves_no_other_number(byte: str) -> None:
    (entry,) = read(f"[{STAMP} TP0] Memory pool end. avail mem=1{byte}.37 GB\n" * 1 + "hay\n" * 9)
    assert "1.37" not in entry.text


def test_of_two_records_that_were_both_torn_neither_takes_the_rest() -> None:
    torn = [f"[{STAMP} TP{rank}] {END[:22]}" for rank in range(2)]
    assert [END[:22]] * 2 == _texts(read("\n".join([*torn, END[22:], END[22:]]) + "\n"))[:2]


def test_half_a_figure_is_not_joined_over_another_s_record() -> None:
    cut = END.index("37")
    found = read(f"[{STAMP} TP0] {END[:cut]}\n[{STAMP} TP1] {END}\n{END[cut:]}\n")
    assert [END[:cut].strip(), END] == _texts(found)


def test_a_figure_behind_a_carriage_return_on_an_indented_line_keeps_its_digits() -> None:
    line = b"  noise [2030-01-01 00:00:03 TP1] max_total_num_tokens=1\r6384, chunked_prefill_size=8192,"
    line += b" max_prefill_tokens=16384, max_running_requests=2048, context_len=32768\n"
    found = entries(io.BytesIO(line), "x", needles=formats.NEEDLES, is_whole=formats.is_whole, notes=Tally())
    texts = [entry.text for entry in found if "chunked" in entry.text]
    assert [True] == ["max_total_num_tokens=16384, " in text for text in texts]
