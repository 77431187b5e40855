"""The matrix of targets as text for a person: a head, a summary of the roles, the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from sglang_probe.catalogue.bodies import formulas, known_in, releases
from sglang_probe.catalogue.releases import phrase
from sglang_probe.catalogue.resolve import Row, homeless, homes
from sglang_probe.catalogue.sources import Source
from sglang_probe.events.names import ROLES
from sglang_probe.figures import counted, listed
from sglang_probe.report.layout import field, page, paragraph

OBSERVED = "observed only"
"""The heading over rows that write no memory event of their own."""
STYLES = {"unknown body": "yellow", "failed": "bold red", "NO HOME": "bold red"}
_ROLE = max(map(len, ROLES)) + 2
_STATE = len("unknown body") + 2


def matrix_text(source: Source, rows: Sequence[Row], width: int, *, everything: bool, colour: bool = False) -> str:
    """Return head and summary, and the rows that a person should know of in short; `everything`: every row."""
    parts = [_head(source, rows, width), _summary(rows, width)]
    if everything:
        return page([*parts, *_blocks(rows, lambda row: _row(row, width), width)], colour)
    notable = [row for row in rows if _is_notable(row)]
    parts += _blocks(notable, lambda row: _in_short(row, width), width)
    return page([*parts, paragraph("rows and fingerprints: --all", width)], colour)


def changes_text(
    source: Source, rows: Sequence[Row], base: Source, before: Sequence[Row], width: int, *, colour: bool = False
) -> str:
    """Return what differs between two SGLangs: rows whose state or body is another."""
    old = {row.target.name: row for row in before}
    changed = [row for row in rows if _differs(old[row.target.name], row)]
    same = len(rows) - len(changed)
    summary = f"{counted(len(changed), 'row differs', 'rows differ')}; {same:,} are the same in both"
    head = [*paragraph(summary, width, style="bold"), *field("against", _which(base), width)]
    blocks = _blocks(changed, lambda row: _change(old[row.target.name], row, width), width)
    return page([[*head, *_head(source, rows, width)], *blocks], colour)


def _which(source: Source) -> str:
    kind = {"tree": "read from", "wheel": "read from", "installed": "installed in"}[source.kind]
    return f"{source.version or 'of unknown version'}, {kind} {source.path}"


def _head(source: Source, rows: Sequence[Row], width: int) -> list[Text]:
    without = homeless(rows)
    verdict = f"NO HOME for {listed(without, len(ROLES))}" if without else "every memory role has a home"
    unknown = sum(row.state == "unknown body" for row in rows)
    lines = field("sglang", _which(source), width, "bold")
    lines += field("verdict", verdict, width, STYLES["NO HOME"] if without else "green")
    if unknown:
        bodies = counted(unknown, "hooked function has", "hooked functions have")
        lines += field("", f"{bodies} a body that we do not know", width, STYLES["unknown body"])
    return lines


def _summary(rows: Sequence[Row], width: int) -> list[Text]:
    lines: list[Text] = []
    for role in ROLES:
        counts = Counter(row.state for row in homes(rows, role))
        text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "NO HOME"
        style = "" if set(counts) == {"applied"} else STYLES["unknown body"] if counts else STYLES["NO HOME"]
        lines += paragraph(text, width, role.ljust(_ROLE), " " * _ROLE, style)
    return lines


def _blocks(rows: Sequence[Row], draw: Callable[[Row], list[Text]], width: int) -> Iterator[list[Text]]:
    """Yield a block per role, with a line per module and the module's rows below it."""
    for role in (*ROLES, None):
        found = [row for row in rows if row.target.role == role]
        lines = [Text(role or OBSERVED, style="bold")]
        for module in dict.fromkeys(row.target.module for row in found):
            lines += paragraph(module, width, "  ")
            lines += [line for row in found if row.target.module == module for line in draw(row)]
        if found:
            yield lines


def _is_notable(row: Row) -> bool:
    """What observes alone may be nested; of a memory role that is told, as its events come from another home."""
    return row.state in {"unknown body", "failed"} or (row.state == "nested" and row.target.role is not None)


def _in_short(row: Row, width: int) -> list[Text]:
    lines = _line(row.state, None, row.target.path, width)
    return [*lines, *paragraph(row.reason, width, " " * (4 + _STATE))] if row.reason else lines


def _row(row: Row, width: int) -> list[Text]:
    lines = _line(row.state, row.fingerprint, row.target.path, width)
    for remark in _remarks(row):
        lines += paragraph(remark, width, " " * (4 + _STATE))
    return lines


def _line(state: str, fingerprint: str | None, path: str, width: int) -> list[Text]:
    words = f"{fingerprint}  {path}" if fingerprint else path
    return paragraph(words, width, f"    {state.ljust(_STATE)}", " " * (4 + _STATE), STYLES.get(state, ""))


def _remarks(row: Row) -> Iterator[str]:
    if row.reason and row.state != "absent":
        yield row.reason
    formula = formulas().get(row.fingerprint or "") if row.target.role == "kv.profile" else None
    if formula:
        yield f"formula: {formula}"
    known = known_in(row.target, row.fingerprint)
    if known and row.fingerprint:
        yield f"known from {phrase(known, releases())}"


def _differs(old: Row, new: Row) -> bool:
    return (old.state, old.fingerprint) != (new.state, new.fingerprint)


def _change(old: Row, new: Row, width: int) -> list[Text]:
    if old.state == new.state:
        return _line("other body", f"{old.fingerprint} -> {new.fingerprint}", new.target.path, width)
    lines = _line(new.state, new.fingerprint, new.target.path, width)
    was = f"was {old.state}" + (f", {old.fingerprint}" if old.fingerprint else "")
    return [*lines, *paragraph(was, width, " " * (4 + _STATE))]
