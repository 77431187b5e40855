"""The table of docs/plan.md: each recorded run predicted from another, found by their directories.

WRITE_GOLDEN=1 python -m pytest tests/explain/plan/test_docs_table.py    renews the page: read it before you commit
"""

from __future__ import annotations

from collections.abc import Iterator

from sglang_probe.explain.plan.make import plan
from sglang_probe.explain.plan.model import Change, Plan
from sglang_probe.figures import added, fraction, gib
from tests.explain.plan.making import CAR, ROOT, recorded, recordings

PAGE = ROOT / "docs" / "plan.md"
BEGIN = "<!-- made by tests/explain/plan/table.py -->"
END = "<!-- end -->"
HEAD = (
    "| from | to | what differs | tokens: predicted | measured | error | free, GiB: predicted | measured | error |",
    "|---|---|---|---|---|---|---|---|---|",
)


def pairs() -> Iterator[tuple[str, str]]:
    """Every run and the plain one of its data (or of the first), both ways."""
    for name in recordings():
        own = f"{name.partition('/')[0]}/car"
        plain = own if own in recordings() else CAR
        if name != plain:
            yield plain, name
            yield name, plain


def rows() -> Iterator[str]:
    """The lines of the table."""
    yield from HEAD
    for one, other in pairs():
        made = plan(recorded(one), against=recorded(other))
        if made.changes:
            yield _row(one, other, made)


def _row(one: str, other: str, made: Plan) -> str:
    names = [name.rpartition("/")[2] for name in (one, other)]
    changes = ", ".join(map(change_in_words, made.changes))
    if made.not_planned:
        changes = f"{changes}; unknown to it: {', '.join(map('`{}`'.format, made.not_planned))}"
    cells = [*names, changes, *_cells(made, "tokens"), *_cells(made, "free_bytes")]
    return f"| {' | '.join(cells)} |"


def change_in_words(change: Change) -> str:
    """Return a change of settings as the docs have it."""
    if change.planned in {"on", "off"}:
        return f"`{change.flag}`{' not' if change.planned == 'on' else ''} given"
    if change.flag == "--without-tenants":
        return f"{gib(change.planned)} GiB of others on the card"
    planned = fraction(change.planned) if isinstance(change.planned, float) else change.planned
    own = "SGLang's own"
    return f"`{change.flag}` {own if planned is None else planned}"


def _cells(made: Plan, name: str) -> Iterator[str]:
    (row,) = [one for one in made.against if one.name == name]
    failed = made.other.failed_phase if made.other is not None else None
    yield "-" if row.predicted is None else _figure(name, int(row.predicted))
    yield (f"failed in {failed}" if failed else "-") if row.measured is None else _figure(name, int(row.measured))
    if row.error is None or row.predicted is None or row.measured is None:
        yield "-"
        return
    error = f"{row.error:,}" if not name.endswith("_bytes") else added(int(row.predicted), -int(row.measured))
    yield f"{error} ({100 * row.error / row.measured:+.3f}%)" if row.measured else error


def _figure(name: str, value: int) -> str:
    return gib(value) if name.endswith("_bytes") else f"{value:,}"
