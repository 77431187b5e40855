"""The picture of a run: what is in it, that nothing from outside acts, and that it degrades to words."""

from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.figures import gib
from sglang_probe.report.image.draw import DPI, WIDTH, draw
from sglang_probe.report.image.picture import MOST_RANKS, Picture, picture_of
from sglang_probe.report.palette import LOOKS
from sglang_probe.timeline import Timeline, build
from sglang_probe.timeline.ledger_rows import KEYS, NAMES
from sglang_probe.timeline.model import Ledger, Process
from sglang_probe.timeline.processes import last_ledger
from tests.timeline.building import build_rank, build_run, build_step
from tests.timeline.building import gib as of_gib

DATA = Path(__file__).parents[2] / "data"
CAR = DATA / "h200-x2-sglang-0.5.14" / "car"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</text><script>alert(1)</script>",
    '"><svg onload="alert(1)">',
    "$\\frac{1}{0}$ and $unclosed",
    "nul \x00 bell \x07 line\nbreak",
    "lone \ud800 surrogate",
    "\u202eright to left",
    "漢字 " * 4,
    "x" * 30_000,
]


def timeline_of(path: Path) -> Timeline:
    return build(read([path]), alive=lambda _: None)


def picture(timeline: Timeline) -> Picture:
    return picture_of(timeline, explain(timeline))


def words_of(path: Path) -> list[str]:
    """Every text of a drawing."""
    return ["".join(one.itertext()) for one in ET.parse(path).iter(f"{SVG}text")]


def test_the_categories_of_the_shown_rank_stand_beside_the_chart_with_what_they_hold(tmp_path: Path) -> None:
    timeline = timeline_of(CAR)
    shown = picture(timeline)
    draw(shown, tmp_path / "run.svg")

    rank = next(one for one in timeline.runs[0].processes if one.label and shown.rank.startswith(one.label))
    step = last_ledger(rank)
    assert step is not None
    ledger = step.ledger
    words = words_of(tmp_path / "run.svg")
    held = {key: getattr(ledger, key) for key in KEYS}
    assert sum(1 for amount in held.values() if amount) > 5
    for key, amount in held.items():
        if amount:
            assert f"{NAMES[key]}  {gib(amount)}" in words
    assert f"total {gib(sum(amount or 0 for amount in held.values()))} GiB" in words


def test_the_story_of_a_failed_start_is_settled_by_the_words_above_the_chart(
    story: Timeline, tmp_path: Path
) -> None:
    draw(picture(story), tmp_path / "run.svg")

    words = " ".join(words_of(tmp_path / "run.svg"))
    assert "21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB" in words
    assert "minimum viable fraction 0.7692" in words


@pytest.mark.parametrize(
    ("run", "shown", "says"),
    [
        ("tenant", "TP1", ["CAUSE: another process on the cards, TP1", "do: "]),
        ("leftover", "TP0", ["WARNING: "]),
        ("sigkill", "TP1", ["CAUSE: not memory, TP1", "DIED"]),
    ],
)
def test_the_rank_of_the_leading_finding_is_drawn_with_what_it_says(
    run: str, shown: str, says: list[str], tmp_path: Path
) -> None:
    found = picture(timeline_of(DATA / "h200-x2-sglang-0.5.14-failures" / run))
    draw(found, tmp_path / "run.svg")

    words = " ".join(words_of(tmp_path / "run.svg"))
    assert found.label == shown
    assert [part for part in says if part not in words] == []


def test_a_category_that_other_ranks_alone_have_is_in_the_legend(tmp_path: Path) -> None:
    frees = {position: of_gib(20) for position in range(3)}
    run = build_run(tuple(rank_with(position, free) for position, free in frees.items()), "ready")
    (step,) = run.processes[2].steps
    assert step.ledger is not None
    foreign = msgspec.structs.replace(step.ledger, weights_target=of_gib(45), foreign=of_gib(30))
    odd = msgspec.structs.replace(run.processes[2], steps=(msgspec.structs.replace(step, ledger=foreign),))
    run = msgspec.structs.replace(run, processes=(*run.processes[:2], odd))
    draw(picture(Timeline(runs=(run,), read=timeline_of(CAR).read)), tmp_path / "run.svg")

    assert f"{NAMES['foreign']}  on other ranks" in words_of(tmp_path / "run.svg")


def test_what_a_log_does_not_tell_apart_is_drawn_for_every_rank() -> None:
    found = picture(timeline_of(DATA / "cases" / "healthy_tp8.log"))

    assert len(found.bars) == 8
    for bar in found.bars:
        assert sum(bar.amounts.values()) > 2 * (bar.amounts["weights_target"] + bar.amounts["free"])


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, ending: str) -> None:
    shown = picture(timeline_of(CAR))
    for name in ("a", "b"):
        draw(shown, tmp_path / f"{name}.{ending}")

    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_a_png_is_as_wide_as_a_ticket_shows_it(tmp_path: Path) -> None:
    draw(picture(timeline_of(CAR)), tmp_path / "run.png")

    data = (tmp_path / "run.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG")
    assert (width, height > 600) == (round(WIDTH * DPI), True)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_from_outside_are_text_and_nothing_else(tmp_path: Path, hostile: str) -> None:
    run = timeline_of(CAR).runs[0]
    ranks = tuple(
        msgspec.structs.replace(one, label=one.label and hostile, host=hostile) for one in run.processes
    )
    timeline = msgspec.structs.replace(
        timeline_of(CAR), runs=(msgspec.structs.replace(run, run_id=hostile, processes=ranks),)
    )

    draw(picture(timeline), tmp_path / "run.svg")

    drawing = ET.parse(tmp_path / "run.svg")
    assert not list(drawing.iter(f"{SVG}script"))
    assert not [name for one in drawing.iter() for name in one.attrib if name.lower().startswith("on")]
    assert drawing.getroot().tag == f"{SVG}svg"


def rank_with(position: int, free: int) -> Process:
    """One of 40 ranks, with so many bytes free at its end."""
    total = of_gib(95.0)
    step = build_step(
        "scheduler.init",
        0,
        90.0,
        free / of_gib(1),
        5.0,
        ts="2026-11-29T18:45:02.500000000Z",
        ledger=Ledger(weights_target=total - free, free=free),
        ledger_total_bytes=total,
    )
    return build_rank(position, 40, (step,))


def bars_of(frees: dict[int, int]) -> Picture:
    run = build_run(tuple(rank_with(position, free) for position, free in frees.items()), "ready")
    return picture(Timeline(runs=(run,), read=timeline_of(CAR).read))


def test_ranks_that_agree_are_one_bar_where_there_are_many() -> None:
    shown = bars_of({position: of_gib(10 if position == 37 else 20) for position in range(40)})

    assert {bar.label: bar.says for bar in shown.bars} == {"39 ranks, as TP0": "20.000 free", "TP37": "10.000 free"}


def test_of_more_groups_than_fit_those_with_the_least_free_are_shown() -> None:
    frees = {position: of_gib(10 + position * 7 % 40) for position in range(40)}
    shown = bars_of(frees)

    least = sorted(frees, key=lambda position: frees[position])[:MOST_RANKS]
    assert {bar.label for bar in shown.bars} == {f"TP{position}" for position in least}
    assert f"the {MOST_RANKS} of 40 groups" in shown.bars_title


@pytest.mark.parametrize("path", sorted((DATA / "cases").glob("*.log")), ids=lambda path: path.stem)
def test_a_log_is_drawn_or_says_why_not(path: Path, tmp_path: Path) -> None:
    shown = picture(timeline_of(path))
    draw(shown, tmp_path / "run.svg")

    words = " ".join(words_of(tmp_path / "run.svg"))
    assert "read from a log" in words
    assert shown.nothing in words if shown.nothing else bool(shown.bands)


def test_nothing_read_is_a_sentence(tmp_path: Path) -> None:
    timeline = Timeline(runs=(), read=timeline_of(CAR).read)
    draw(picture(timeline), tmp_path / "run.svg")

    assert any("Nothing was read" in words for words in words_of(tmp_path / "run.svg"))


def test_a_rank_without_readings_is_a_sentence(tmp_path: Path) -> None:
    run = build_run((build_rank(0, 1, (build_step("scheduler.init", 0, None, None, None, state="open"),)),), "unknown")
    draw(picture(Timeline(runs=(run,), read=timeline_of(CAR).read)), tmp_path / "run.svg")

    assert any("No rank of this run recorded any memory" in words for words in words_of(tmp_path / "run.svg"))


def test_every_category_has_a_look_and_no_two_look_alike() -> None:
    assert set(KEYS) <= set(LOOKS)
    assert len(set(LOOKS.values())) == len(LOOKS)
