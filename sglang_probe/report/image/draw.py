"""Draws the picture with matplotlib, without a screen, a browser or a font beyond those it brings."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache; stderr is for what went wrong

from sglang_probe.report.image.defaults import looks, without_settings  # noqa: E402

with without_settings():
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

from sglang_probe.figures import GIB  # noqa: E402
from sglang_probe.report.image.picture import Bar, Picture, picture_of  # noqa: E402
from sglang_probe.report.layout import folded  # noqa: E402
from sglang_probe.report.material import Material  # noqa: E402
from sglang_probe.report.palette import LOOKS  # noqa: E402
from sglang_probe.report.series import FREE  # noqa: E402
from sglang_probe.timeline.ledger_rows import NAMES  # noqa: E402

WIDTH: Final = 12.0
"""Inches; with `DPI` 1,800 pixels."""
DPI: Final = 150
SVG: Final = ".svg"
"""The ending of a drawing; all else is a PNG."""
TITLE_COLUMNS: Final = 118
LEFT: Final = 0.07
"""Where the charts begin, as a part of the width, and where they end."""
RIGHT: Final = 0.76
ROOM_OF_A_LETTER: Final = 0.0068
LONGEST: Final = 600
"""Characters of a title; SGLang's errors can be pages long."""
EDGE: Final = "#404040"
FAILED: Final = "#a63c00"
STYLE: Final[Any] = {  # matplotlib's own type names every key that it has
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "svg.hashsalt": "sglang-probe",  # the same picture, the same bytes
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def write(material: Material, path: Path) -> None:
    """Write the picture of the newest run; the ending of `path` says whether as PNG or as SVG."""
    draw(picture_of(material.timeline, material.explanation), path)


def draw(picture: Picture, path: Path) -> None:
    """Draw a picture into a file."""
    is_svg = path.name.lower().endswith(SVG)
    metadata = {"Title": picture.title, **({"Date": None} if is_svg else {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a character that the font lacks a box is drawn
        with mpl.rc_context(looks(mpl.rcParamsDefault, STYLE)):
            figure = _figure(picture)
            figure.savefig(path, format="svg" if is_svg else "png", dpi=DPI, metadata=metadata, facecolor="white")


def _figure(picture: Picture) -> Figure:
    title = folded(picture.title[:LONGEST], TITLE_COLUMNS, "", "", break_words=True)
    says = [
        (line, said.bold)
        for said in picture.says
        for line in folded(said.text[:LONGEST], TITLE_COLUMNS, "", "  ", break_words=True)
    ]
    head = 0.25 * len(title) + 0.19 * len(says) + 0.35
    bars = 0.24 * len(picture.bars) + 0.85 if picture.bars else 0.0
    chart = 4.6
    height = head + chart + bars
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(0.02, 1 - 0.12 / height, "\n".join(title), va="top", fontsize=12, fontweight="bold")
    for number, (line, bold) in enumerate(says):
        place = 1 - (0.2 + 0.25 * len(title) + 0.19 * number) / height
        figure.text(0.02, place, line, va="top", color="black" if bold else EDGE, fontweight="bold" if bold else None)
    if picture.nothing:
        figure.text(0.5, 0.4, picture.nothing, ha="center", fontsize=12)
        return figure
    left = max(LEFT, ROOM_OF_A_LETTER * max((len(bar.label) for bar in picture.bars), default=0))
    width = RIGHT - left
    top = figure.add_axes((left, (bars + 0.7) / height, width, (chart - 0.95) / height))
    _phases(top, picture)
    _legend(figure, picture, (left + width + 0.015, (bars + chart - 0.3) / height))
    if picture.bars:
        below = figure.add_axes((left, 0.5 / height, width, (bars - 0.8) / height))
        _ranks(below, picture.bars, picture.bars_title)
    return figure


def _phases(axes: Axes, picture: Picture) -> None:
    """Draw the stacked areas over the phases, each step as wide as another: their seconds stand below."""
    steps = len(picture.bands[0].amounts)
    edges = list(range(steps + 1))
    floor = [0.0] * steps
    for band in picture.bands:
        amounts = [max(amount, 0) / GIB for amount in band.amounts]  # what is negative is named in the legend
        ceiling = [low + amount for low, amount in zip(floor, amounts, strict=True)]
        look = LOOKS[band.key]
        axes.fill_between(
            edges,
            [*floor, floor[-1]],
            [*ceiling, ceiling[-1]],
            step="post",
            **_drawn(band.key),
            edgecolor=EDGE if look.pattern else look.colour,
            linewidth=0.3,
        )
        floor = ceiling
    if picture.total_bytes is not None:
        axes.axhline(picture.total_bytes / GIB, color="black", linewidth=1.2)
        axes.text(
            0.002 * steps, picture.total_bytes / GIB, f"total {picture.total} GiB", va="bottom", fontsize=8
        )
    for stretch in picture.stretches:
        axes.axvline(stretch.begin, color=EDGE, linewidth=0.6, linestyle=":")
        if stretch.failed:
            axes.axvspan(stretch.begin, stretch.end, facecolor="none", edgecolor=FAILED, linewidth=2)
    axes.set_xticks([(one.begin + one.end) / 2 for one in picture.stretches], [one.says for one in picture.stretches])
    axes.tick_params(axis="x", length=0, labelsize=8)
    for label in axes.get_xticklabels() if len(picture.stretches) > 7 else ():
        label.set(rotation=25, ha="right")
    axes.set_xlim(0, steps)
    axes.set_ylim(0, 1.06 * max(*floor, (picture.total_bytes or 0) / GIB))
    axes.set_ylabel("GiB")
    axes.set_title(f"Memory of {picture.rank} after each step", loc="left", fontsize=10)


def _legend(figure: Figure, picture: Picture, place: tuple[float, float]) -> None:
    """Name the categories in the order of the areas, with what they hold at the end, and those of other ranks alone."""
    words = {band.key: f"{band.name}  {band.at_end}" for band in reversed(picture.bands)}
    elsewhere = {key for bar in picture.bars for key, amount in bar.amounts.items() if amount > 0 and key not in words}
    words |= {key: f"{NAMES.get(key, key)}  on other ranks" for key in LOOKS if key in elsewhere}
    handles = [Patch(**_drawn(key), edgecolor=EDGE, linewidth=0.5, label=said) for key, said in words.items()]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=place,
        frameon=False,
        title=f"at the end of {picture.label}, GiB",
        alignment="left",
        borderaxespad=0,
    )


def _drawn(key: str) -> dict[str, Any]:
    look = LOOKS[key]
    return {"facecolor": look.colour, "hatch": look.pattern * 2 or None}


def _ranks(axes: Axes, bars: Sequence[Bar], title: str) -> None:
    """Draw a stacked bar for each rank, with what is free in figures."""
    places = range(len(bars))
    left = [0.0] * len(bars)
    for key in (*(key for key in LOOKS if key != FREE), FREE):
        amounts = [max(bar.amounts.get(key, 0), 0) / GIB for bar in bars]
        if any(amounts):
            axes.barh(places, amounts, left=left, height=0.8, **_drawn(key), edgecolor=EDGE, linewidth=0.3)
            left = [before + amount for before, amount in zip(left, amounts, strict=True)]
    for place, bar, end in zip(places, bars, left, strict=True):
        colour, weight = (FAILED, "bold") if bar.failed else ("black", None)
        axes.text(end, place, f" {bar.says}", va="center", fontsize=8, color=colour, fontweight=weight)
    axes.set_yticks(places, [bar.label for bar in bars])
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max(left) * 1.001)
    axes.set_xlabel("GiB")
    axes.set_title(title, loc="left", fontsize=10)
