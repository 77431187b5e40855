"""A traceback is one entry from its first line to the end of its message, and never another rank's."""

from __future__ import annotations

import pytest

from sglang_probe.collect.report import Tally
from tests.collect.logs.carrying import FAILED, lines_of, read

STAMP = "2026-11-29 19:52:40"
HEAD = "Traceback (most recent call last):"
BODY = ['  File "a.py", line 1, in f', "    g()", "    ^^^"]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
END = "Memory pool end. avail mem=12.37 GB"
CHAIN = ["", "During handling of the above exception, another exception occurred:", ""]


def _log(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def test_a_recorded_traceback_is_one_entry_with_its_chain_and_its_message() -> None:
    lines = lines_of(FAILED)
    first = next(number for number, line in enumerate(lines) if HEAD in line)
    last = next(number for number, line in enumerate(lines) if line.startswith("Open an issue"))
    (entry,) = (entry for entry in read(_log(*lines)) if HEAD in entry.text)
    assert lines[first + 1 : last + 1] == (entry.text + " ").split("\n")[1:]
    assert (first + 1, (("TP", 1),)) == (entry.line, entry.ranks)


@pytest.mark.parametrize("head", [HEAD, f"[{STAMP} TP1] Scheduler hit an exception: {HEAD}", f"[rank1]: {HEAD}"])
def test_a_chained_traceback_is_one_entry(head: str) -> None:
    lead = "[rank1]: " if head.startswith("[rank") else ""
    rest = [*BODY, OOM, *CHAIN, HEAD, *BODY, "RuntimeError: no"]
    (entry,) = read(_log(head, *(lead + line for line in rest)))
    assert rest == entry.text.split("\n")[1:]


def test_a_message_of_several_lines_ends_where_a_record_begins() -> None:
    message = ["Exception: Capture failed", "Possible solutions:", "1. set --mem-fraction-static to 0.8"]
    found = read(_log(HEAD, *BODY, *message, f"[{STAMP} TP0] {END}"))
    assert [[HEAD, *BODY, *message], [END]] == [entry.text.split("\n") for entry in found]


def test_a_message_ends_at_a_blank_line_that_no_chain_follows() -> None:
    (entry,) = read(_log(HEAD, *BODY, OOM, "", "some warning"))
    assert OOM == entry.text.split("\n")[-1]


def test_a_record_between_the_lines_of_a_traceback_is_an_entry_of_its_own() -> None:
    first, second = read(_log(HEAD, BODY[0], f"[{STAMP} TP0] {END}", *BODY[1:], OOM))
    assert ([HEAD, *BODY, OOM], (END, (("TP", 0),))) == (first.text.split("\n"), (second.text, second.ranks))


def test_tracebacks_through_each_other_give_their_exceptions_to_no_rank() -> None:
    notes = Tally()
    heads = [f"[{STAMP} TP{rank}] Scheduler hit an exception: {HEAD}" for rank in range(8)]
    mixed = [line for line in [*BODY, OOM] for _ in range(8)]
    found = read(_log(*heads, *mixed, f"[{STAMP} TP0] {END}"), notes)
    assert [OOM] * 8 == [entry.text for entry in found if entry.text.startswith("torch")]
    assert {()} == {entry.ranks for entry in found if entry.text.startswith("torch")}
    assert [heads[0].partition("] ")[2]] * 8 == [entry.text for entry in found if HEAD in entry.text]
    assert END == found[-1].text
    assert notes.count("tangled_traceback") == 1


def test_tracebacks_through_each_other_that_a_carrier_tells_apart_are_whole() -> None:
    mixed = [f"(Worker pid={pid}) {line}" for line in [HEAD, *BODY, OOM] for pid in (1, 2)]
    found = read(_log(*mixed))
    assert [(1, OOM), (2, OOM)] == [(entry.pid, entry.text.split("\n")[-1]) for entry in found]
    assert [[HEAD, *BODY, OOM]] * 2 == [entry.text.split("\n") for entry in found]


def test_an_exception_without_its_traceback_has_its_message() -> None:
    (entry,) = read(_log("RuntimeError: Capture failed", "Possible solutions:", "1. less"))
    assert ["RuntimeError: Capture failed", "Possible solutions:", "1. less"] == entry.text.split("\n")


def test_a_traceback_that_the_end_of_the_file_cuts_off_keeps_what_is_there() -> None:
    (entry,) = read(_log(HEAD, *BODY)[:-1])
    assert [HEAD, *BODY] == entry.text.split("\n")
