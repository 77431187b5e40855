"""Whatever carries a log, its entries are those of the plain one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_probe.collect.logs.carriers import Carried, uncarry, utc
from sglang_probe.collect.report import Tally
from tests.collect.logs.carrying import CARRIERS, FAILED, HEALTHY, lines_of, read, said


@pytest.mark.parametrize("log", [HEALTHY, FAILED], ids=["healthy", "failed"])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_carried_log_says_what_the_plain_one_says(carrier: str, log: Path) -> None:
    lines = lines_of(log)
    plain = read("\n".join(lines) + "\n")
    carried = read(CARRIERS[carrier](lines))
    local = "time" in carrier and "python" in carrier  # gives lines without a stamp of SGLang's its own
    assert [one[:2] for one in said(plain)] == [one[:2] for one in said(carried)]
    assert local or said(plain) == said(carried)
    assert len(plain) > 15


@pytest.mark.parametrize("carrier", ["docker json-file", "kubernetes CRI"])
def test_arguments_that_docker_and_kubernetes_cut_up_are_one_entry(carrier: str) -> None:
    lines = lines_of(HEALTHY)
    place = next(number for number, line in enumerate(lines) if "server_args=" in line)
    lines[place] = lines[place].replace("ServerArgs(", f"ServerArgs(chat_template='{'x' * 30000}', ")
    assert said(read("\n".join(lines))) == said(read(CARRIERS[carrier](lines)))


def test_a_cut_up_record_without_its_end_does_not_hold_up_the_rest() -> None:
    text = "[2025-06-01 12:00:00 TP1] Memory pool end. avail mem=1.00 GB"
    found = read(f"2025-06-01T12:00:00Z stderr P {text}\n" + "2025-06-01T12:00:00Z stdout F hay\n" * 5000 + text)
    assert [(1, text[26:]), (5002, text[26:])] == [(entry.line, entry.text) for entry in found]


def test_lines_of_several_carriers_in_one_file_are_told_line_by_line() -> None:
    lines = lines_of(HEALTHY)
    plain = [carrier for carrier in CARRIERS if "list" not in carrier and "json-file" not in carrier]
    ways = [CARRIERS[plain[number % 20]] for number in range(len(lines))]
    ways = [way if line.startswith("[2") else CARRIERS["plain"] for way, line in zip(ways, lines, strict=True)]
    mixed = "".join(way([line]).removesuffix("\n") + "\n" for way, line in zip(ways, lines, strict=True))
    assert said(read("\n".join(lines) + "\n")) == said(read(mixed))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sglang-1  | {}", {"source": "sglang-1"}),
        ("[pod/sglang-0/server] {}", {"source": "pod/sglang-0/server"}),
        ("(Actor pid=7, ip=10.0.0.1) {}", {"source": "Actor", "pid": 7, "host": "10.0.0.1"}),
        ("Jun 01 12:00:00 node-1 sglang[123]: {}", {"source": "sglang", "pid": 123, "host": "node-1", "ts": None}),
        ("2025-06-01T12:00:00+0200 node-1 sglang[1]: {}", {"host": "node-1", "ts": "2025-06-01T10:00:00Z"}),
        ("2025-06-01T12:00:00.123456789Z stderr F {}", {"stream": "stderr", "ts": "2025-06-01T12:00:00.123456789Z"}),
        ("2025-06-01 12:00:00,123 INFO {}", {"ts": None, "stamp": "2025-06-01 12:00:00.123"}),
        ("1750000000.123456 node-1 sglang[1]: {}", {"ts": "2025-06-15T15:06:40.123456Z"}),
        ('2025-06-01T12:00:00Z {{pod="a", container="b"}} {}', {"source": "a/b"}),
    ],
)
def test_a_carrier_says_who_wrote_and_when(line: str, expected: dict[str, object]) -> None:
    carried = uncarry(Carried(line.format("Memory pool end. avail mem=1.00 GB")))
    assert carried.text == "Memory pool end. avail mem=1.00 GB"
    assert {name: getattr(carried, name) for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "  0%|          | 0/4 [00:00<?, ?it/s]",
        "Capturing batches (bs=8 avail_mem=12.28 GB):  25%|##        | 1/4 [01:11<03:33, 71.27s/it]",
        "    first | second",
        "INFO:     Started server process [567]",
        "server_args=ServerArgs(model_path='a')",
        "[gpu=0] Load weight begin. avail mem=1.00 GB",
    ],
)
def test_what_no_carrier_wrote_is_left_as_it_is(text: str) -> None:
    assert uncarry(Carried(text)).text == text


@pytest.mark.parametrize("text", ["2025-13-01T00:00:00Z", "2025-06-01T12:00:00", "0001-01-01T00:00:00+23:00", ""])
def test_a_time_without_zone_or_sense_is_none(text: str) -> None:
    assert utc(text) is None


def test_a_cut_off_object_still_says_its_message() -> None:
    whole = json.dumps({"log": "[2025-06-01 12:00:00 TP1] Memory pool end. avail mem=1.00 GB\n", "stream": "stderr"})
    (entry,) = read(whole[: whole.index("stream")])
    assert ("Memory pool end. avail mem=1.00 GB", (("TP", 1),)) == (entry.text, entry.ranks)


def test_a_cloud_s_object_says_its_pod() -> None:
    (*_, entry) = read(CARRIERS["cloud logging"](["Memory pool end. avail mem=1.00 GB"]))
    assert ("sglang-0/server", "2026-11-29T19:00:00.000000000Z") == (entry.source, entry.ts)


def test_what_ray_printed_once_for_several_actors_is_counted() -> None:
    notes = Tally()
    (entry,) = read("(A pid=1) Memory pool end. avail mem=1.00 GB [repeated 7x across cluster]", notes)
    assert entry.text == "Memory pool end. avail mem=1.00 GB"
    assert notes.count("repeated_log_line") == 1
