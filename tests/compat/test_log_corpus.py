"""The corpus of memory lines is what SGLang's own sources print."""

from __future__ import annotations

import pytest

from compat.log_corpus import cases_of, missed, unmatched_exclusions, written
from compat.log_families import EXCLUDED, kind_of
from compat.log_templates import Said, Slot, templates_of
from compat.log_values import line_of
from sglang_probe.catalogue.releases import expanded, order
from sglang_probe.catalogue.wheels import kept_wheel

PARTS = [part for case in written() for part in case.releases.split(", ")]
RELEASES = sorted({end for part in PARTS for end in part.split("..")}, key=order)
"""Those with which a line begins or ends: what a wheel has moves there."""
SOURCE = '''
logger = None
def f(a, b, e):
    name = "Special KV Cache" if a else "KV Cache"
    logger.info(f"{name} is allocated. #tokens: {a}, KV size: {b / 2:.2f} GB")
    msg = "The memory capacity is unbalanced. "
    msg += f"{a=}, {b=}"
    raise ValueError(msg)
def g(x):
    logger.warning("Post-capture KV sizing: %d of %.2f GB", x, x.y)
    print("Load weight begin. avail mem={:.2f} GB".format(x))
    assert x > 1, "Memory pool size is too small"
'''


def test_a_source_s_texts_are_found_whatever_they_are_made_of() -> None:
    found = set(templates_of(SOURCE))
    size = (Slot("a"), ", KV size: ", Slot("b / 2", ".2f"), " GB")

    assert {
        Said(False, ("Special KV Cache is allocated. #tokens: ", *size)),
        Said(False, ("KV Cache is allocated. #tokens: ", *size)),
        Said(True, ("The memory capacity is unbalanced. a=", Slot("a", "r"), ", b=", Slot("b", "r"))),
        Said(True, ("The memory capacity is unbalanced. ",)),
        Said(False, ("Post-capture KV sizing: ", Slot("x", "d"), " of ", Slot("x.y", ".2f"), " GB")),
        Said(False, ("Load weight begin. avail mem=", Slot("x", ".2f"), " GB")),
        Said(True, ("Memory pool size is too small",)),
    } == found


def test_a_line_knows_its_figures_and_their_names() -> None:
    line = line_of(("Load weight begin. avail mem=", Slot("x", ".2f"), " GB, elapsed=", Slot("t", ".2f"), " s"))

    assert (line.figures[0],) == line.figures
    assert [("avail", line.figures[0]), "elapsed_s"] == [line.labelled[0], line.labelled[1][0]]
    assert f"avail mem={line.figures[0]} GB" in line.text


def test_a_text_with_a_figure_and_no_row_is_kept_as_figures() -> None:
    assert "figures" == kind_of("Some buffer: \x00 MiB")
    assert kind_of("Some rate: \x00 GB/s") is None
    assert kind_of("Some words") is None


def test_an_exclusion_that_matches_nothing_is_told() -> None:
    assert [pattern for pattern, _ in EXCLUDED] == unmatched_exclusions(["nothing of it"])


@pytest.mark.parametrize("version", [one for one in RELEASES if kept_wheel(one) is not None][::8] or [None])
def test_the_memory_lines_of_a_wheel_are_those_of_the_corpus(version: str | None) -> None:
    if version is None or (wheel := kept_wheel(version)) is None:
        pytest.skip("no wheel is kept here")
    kept = {(case.text, case.raised): case for case in written()}
    found = {case for case in cases_of(wheel) if case.kind != "batch"}

    assert found
    assert [] == [(case.text, said) for case in found if (said := missed(case))]
    assert set() == {case.text for case in found if (case.text, case.raised) not in kept}
    wrong = {case.text for case in found if version not in expanded(kept[case.text, case.raised].releases, RELEASES)}
    assert set() == wrong
