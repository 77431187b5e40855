"""SGLang's lines of every release, and what is read from them."""

from __future__ import annotations

from collections import Counter

import pytest

from compat.log_corpus import Case, entry_of, missed, written
from sglang_probe.collect.logs.formats import NEEDLES, facts_of, is_whole
from sglang_probe.collect.logs.kinds import KINDS
from sglang_probe.collect.logs.model import Amount
from tests.collect.logs.reading_lines import kinds, values

CORPUS = written()
BY_KIND = {kind: [case for case in CORPUS if case.kind == kind] for kind in sorted({case.kind for case in CORPUS})}


@pytest.mark.parametrize("cases", BY_KIND.values(), ids=BY_KIND)
def test_every_memory_line_of_every_release_is_read_with_its_own_numbers(cases: list[Case]) -> None:
    assert [] == [(case.text, said) for case in cases if (said := missed(case))]


def test_every_line_that_says_something_holds_a_needle() -> None:
    texts = [(case, entry_of(case)) for case in CORPUS]

    assert [] == [
        case.text
        for case, entry in texts
        if facts_of(entry) and not any(needle in entry.text.encode() for needle in NEEDLES)
    ]
    assert len(NEEDLES) < 100  # more make each byte of a serving log slower to pass over: measured, 59 to 85 take 5 %


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     127.0.0.1:53978 - "POST /generate HTTP/1.1" 200 OK',
        'INFO:     10.0.0.1:53978 - "GET /health_generate HTTP/1.1" 200 OK',
        "Cache flushed successfully!",
        "Finish: obj=GenerateReqInput(rid='4f', text='hello')",
    ],
)
def test_a_line_of_serving_holds_no_needle(line: str) -> None:
    assert [] == [needle for needle in NEEDLES if needle in line.encode()]


def test_every_kind_that_is_read_is_in_the_table_of_kinds() -> None:
    read = Counter(fact.kind for case in CORPUS for fact in facts_of(entry_of(case)))

    assert set() == set(read) - set(KINDS)


WHOLE = [case.text for case in CORPUS if not case.raised and case.kind in {"weights_end", "kv_alloc", "graph_end"}]


@pytest.mark.parametrize("text", WHOLE)
def test_a_known_line_is_whole_and_its_beginning_is_not(text: str) -> None:
    assert is_whole(text)
    assert not is_whole(text[: len(text) // 2])


def test_a_rank_inside_the_message_is_no_part_of_the_line() -> None:
    assert ["weights_begin"] == kinds("[gpu_id=1] Load weight begin. avail mem=78.58 GB")
    assert ["pool_end"] == kinds("[gpu=1] Memory pool end. avail mem=9.01 GB")


def test_a_negative_profiled_value_is_read_as_such() -> None:
    line = "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead."

    assert {"asked": 131072, "profiled": -561981} == values(line, "kv_cap")


def test_a_figure_that_was_not_rounded_is_read_to_its_last_digit() -> None:
    line = "SWAKVPool mem usage: 12.345678901234567 GB, swa size: 300288, full size: 375360"
    size = values(line, "swa_mem")["size"]

    assert isinstance(size, Amount)
    assert ("12.345678901234567", 1) == (size.printed, size.precision_bytes)


@pytest.mark.parametrize(
    ("what", "graph"),
    [
        ("target decode CUDA graph", "decode"), ("target verify npu graph", "decode"), ("cuda graph", "decode"),
        ("piecewise CUDA graph", "prefill"), ("draft prefill CUDA graph", "draft"),
        ("UNO tree draft CUDA graph", "draft"),
        ("Frozen-KV MTP draft cuda graph", "draft"), ("single-CG draft extend", "draft"), ("cpu graph", "decode"),
    ],
)  # fmt: skip
def test_a_capture_is_of_the_graph_that_its_words_name(what: str, graph: str) -> None:
    begin = values(f"Capture {what} begin. backend=full, bs=[1, 2, 4], avail mem=12.28 GB", "graph_begin")
    end = values(f"Capture {what} end. elapsed=1.00 s, mem usage=0.06 GB, avail mem=12.22 GB.", "graph_end")

    assert (graph, what, [1, 2, 4], "12.28") == (begin["graph"], begin["what"], begin["sizes"], begin["avail"].printed)
    assert (graph, what, 1.0, "0.06") == (end["graph"], end["what"], end["elapsed_s"], end["mem_usage"].printed)


def test_a_bar_is_read_with_the_batch_that_it_stands_at() -> None:
    bar = "Capturing batches (bs=8 avail_mem=12.28 GB):  25%|##5       | 1/4 [01:07<03:22, 67.64s/it]"
    read = values(bar, "graph_progress", prefixed=False)

    assert (8, "12.28", "decode") == (read["size"], read["avail"].printed, read["graph"])


def test_a_line_that_advises_how_to_avoid_it_says_of_no_failure() -> None:
    line = "Available memory 8GB is less than required memory 9GB for warmup, so as to avoid out of memory"

    assert ["figures"] == kinds(line)


def test_figures_of_a_line_that_is_not_sglangs_are_not_kept() -> None:
    assert [] == kinds("Downloading torch (900.1 MB)", prefixed=False)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Subprocess scheduler_0 (pid=12) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
         {"how": "killed", "signal": "SIGKILL", "exit_code": -9, "pid": 12}),
        ("Child process unexpectedly failed with an exit code 131. pid=77",
         {"how": "crash", "signal": "SIGQUIT", "exit_code": 131, "pid": 77}),
        ("Received sigquit from a child process. It usually means the child failed.",
         {"how": "child", "signal": "SIGQUIT"}),
        ("Gracefully exiting... Remaining number of requests 3.", {"how": "shutdown"}),
        ("Killed", {"how": "killed", "signal": "SIGKILL"}),
        ("./start.sh: line 3: 4711 Killed                  python -m sglang.launch_server",
         {"how": "killed", "signal": "SIGKILL", "pid": 4711}),
    ],
)  # fmt: skip
def test_how_a_server_ended_is_read(line: str, expected: dict[str, object]) -> None:
    assert expected == values(line, "ended", prefixed=False)
