"""A plan as text: the answer first, then the formula, the table, what it assumes, and what another run measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from sglang_probe.explain.plan.inputs import FLAGS
from sglang_probe.explain.plan.model import Against, Change, Number, Plan, Source, Unit
from sglang_probe.explain.plan.names import name_of
from sglang_probe.explain.plan.precision import shown
from sglang_probe.explain.scaling import RULES
from sglang_probe.figures import UNKNOWN, added, counted, fraction, gib, number
from sglang_probe.report.budget import worked
from sglang_probe.report.layout import WIDTH, Width, field, page, paragraph
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Budget

NAME: Final = 24
FIGURE: Final = 14
NARROW: Final = 72
"""Columns below which a table of the plan is told in sentences."""
INDENT: Final = "  "


def plan_text(plan: Plan, width: Width = WIDTH, *, colour: bool = False) -> str:
    """Return the plan; deterministic, and without `colour` no escape sequence is in it, whatever the events carried."""
    parts: list[Sequence[Text]] = [_head(plan, width), _formula(plan, width), list(_table(plan.numbers, width))]
    parts += [_section("What would make room", [one.says for one in plan.levers], width)] if plan.levers else []
    if plan.against and plan.other is not None:
        parts.append(list(_against(plan.against, plan.other, width)))
    parts.append(_section("What it leans on", plan.assumptions, width))
    return page(parts, colour)


def _head(plan: Plan, width: Width) -> list[Text]:
    lines = field("plan of", _source(plan.run), width, "bold")
    lines += field("like", _source(plan.like), width) if plan.like is not None else []
    lines += field("with", _changes(plan), width)
    lines += field("answer", " ".join(plan.says), width, "bold")
    if plan.replays is not None:
        lines += field("check", _check(plan), width)
    return lines


def _check(plan: Plan) -> str:
    """Whether the formula, with nothing changed, gives what the run had: what a plan stands on."""
    tokens = next((one.run for one in plan.numbers if one.name == "tokens"), None)
    had = f"the {number(_whole(tokens))} tokens that {plan.run.run_id} had"
    if plan.replays and plan.run.source == "log":
        return f"{had} are what memory was set to, within what the log's two decimals leave open"
    if plan.replays:
        return f"with nothing changed the formula gives exactly {had}"
    return f"with nothing changed the formula does NOT give {had}: the plan may be off as much"


def _source(source: Source) -> str:
    where = f" in {source.failed_phase}" if source.failed_phase else ""
    version = f", SGLang {source.sglang_version}" if source.sglang_version else ""
    version += ", read from its log" if source.source == "log" else ""
    launch = f", launch {source.launch + 1}" if source.launch else ""
    tightest = f"; {source.rank} is the tightest of {counted(source.ranks, 'rank')}"
    return f"{source.run_id}{launch} ({source.outcome}{where}{version}){tightest}"


def _changes(plan: Plan) -> str:
    changed = [_change(one) for one in plan.changes]
    asked = [f"{one.flag} {gib(one.wanted) if one.flag == '--free' else number(one.wanted)}" for one in plan.wishes]
    return ", ".join([*changed, *(f"wished: {one}" for one in asked)]) or "nothing changed"


def _change(change: Change) -> str:
    if change.flag == FLAGS["tenants"]:
        now, was = (int(value or 0) for value in (change.planned, change.run))
        if not now:
            return f"other processes off the cards (they held {gib(was)} GiB)"
        return f"other processes with {gib(now)} GiB of a card ({f'had {gib(was)}' if was else 'there were none'})"
    if change.planned in {"on", "off"}:
        return f"{change.flag}{' not' if change.planned == 'on' else ''} given"
    return f"{change.flag} {_value(change.planned)} (was {_value(change.run)})"


def _value(value: object) -> str:
    if value is None:
        return "SGLang's own"
    return fraction(value) if isinstance(value, float) else str(value)


def _formula(plan: Plan, width: Width) -> list[Text]:
    values = {one.name: one.planned for one in plan.numbers}
    deductions = {
        one.name.partition(".")[2]: int(one.planned or 0) for one in plan.numbers if one.name.startswith("deductions.")
    }
    budget = Budget(
        pre_load_bytes=_whole(values["pre_load_bytes"]),
        available_bytes=_whole(values["available_bytes"]),
        mem_fraction_static=values["mem_fraction_static"],
        slack_bytes=_whole(values["slack_bytes"]),
        rest_bytes=_whole(values["rest_bytes"]),
        deductions=deductions,
    )
    tokens = values["tokens"]
    yields = "" if tokens is None else f" -> {number(_whole(tokens))} tokens" if tokens else " -> no KV cache"
    names = "".join(f" - {printable(name)}" for name in deductions) or " - deductions"
    lines = paragraph(f"rest = available - pre-load x (1 - mem_fraction_static){names}", width, INDENT)
    lines += paragraph(f"= {worked(budget)}{yields}", width, f"{INDENT}     ", INDENT * 5)
    lines += paragraph(f"of this run's release: {plan.formula}", width, INDENT, INDENT * 2) if plan.formula else []
    return [Text("The formula (GiB)", style="bold"), *lines]


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _table(numbers: Sequence[Number], width: Width) -> Iterator[Text]:
    if not _is_told(width):
        yield Text(f"{'what (memory in GiB)':<{NAME}}{'this run':>{FIGURE}}{'planned':>{FIGURE}}  basis", style="bold")
    for one in numbers:
        now, then = (_figure(one.unit, value) for value in (one.run, one.planned))
        basis = f"{one.basis}: {_title(one.rule)}" if one.rule is not None else one.basis
        far = f" +- {shown(one.unit, one.precision)}" if one.precision and one.planned is not None else ""
        if _is_told(width):
            what = f"{_name(one.name)}{_unit(one.unit)}"
            yield from paragraph(f"{what}: this run {now}, planned {then}{far}; {basis}", width, INDENT, INDENT * 2)
        else:
            yield Text(f"{_name(one.name):<{NAME}}{now:>{FIGURE}}{then:>{FIGURE}}  {basis}{far}")
    reasons: dict[str, list[str]] = {}
    for one in numbers:
        if one.planned is None and one.says is not None:
            reasons.setdefault(one.says, []).append(_name(one.name))
    for reason, names in reasons.items():
        yield from paragraph(f'"{UNKNOWN}" in {", ".join(names)}: {reason}', width, INDENT, INDENT * 2)


def _is_told(width: Width) -> bool:
    """Say whether a row is a sentence: without a page, or on one that is too narrow for the columns."""
    return width is None or width < NARROW


def _title(rule: str) -> str:
    return RULES[rule].title if rule in RULES else printable(rule)


def _name(name: str) -> str:
    return printable(name_of(name))


def _unit(unit: Unit) -> str:
    return ", GiB" if unit == "bytes" else ""


def _figure(unit: Unit, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if unit == "bytes":
        return gib(int(value))
    return f"{value:.4f}" if unit == "fraction" else number(int(value))


def _against(rows: Sequence[Against], other: Source, width: Width) -> Iterator[Text]:
    yield from paragraph(f"Against {_source(other)}", width, hanging=INDENT, style="bold")
    heads = ("predicted", "measured", "error")
    if not _is_told(width):
        yield Text(f"{'what (memory in GiB)':<{NAME}}" + "".join(f"{head:>{FIGURE}}" for head in heads))
    for one in rows:
        figures = (*(_figure(one.unit, value) for value in (one.predicted, one.measured)), _error(one))
        if _is_told(width):
            said = ", ".join(f"{head} {figure}" for head, figure in zip(heads, figures, strict=True))
            told = f"{_name(one.name)}{_unit(one.unit)}: {said}{_far(one)}"
            yield from paragraph(told, width, INDENT, INDENT * 2)
        else:
            yield Text(f"{_name(one.name):<{NAME}}" + "".join(f"{figure:>{FIGURE}}" for figure in figures) + _far(one))


def _error(one: Against) -> str:
    """Return the error as it comes out of the figures beside it."""
    if one.predicted is None or one.measured is None:
        return UNKNOWN
    if one.unit == "bytes":
        return added(int(one.predicted), -int(one.measured))
    if one.unit == "fraction":
        return f"{float(_figure(one.unit, one.predicted)) - float(_figure(one.unit, one.measured)) + 0:.4f}"
    return _figure(one.unit, one.error)


def _far(one: Against) -> str:
    return f"  +- {shown(one.unit, one.precision)}" if one.precision and one.error is not None else ""


def _section(title: str, sentences: Sequence[str], width: Width) -> list[Text]:
    lines = [text for one in sentences for text in paragraph(f"- {one}", width, INDENT, INDENT * 2)]
    return [Text(title, style="bold"), *lines]
