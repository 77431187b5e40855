"""Server arguments: what was given, what SGLang made of it, and which of the two differ together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.structured import Leaf, differing, numbers
from sglang_probe.explain.diff.values import NOT_RECORDED, same
from sglang_probe.timeline.model import Run

NAMES: Final = {
    "tp": "tp_size",
    "tensor_parallel_size": "tp_size",
    "pp": "pp_size",
    "pipeline_parallel_size": "pp_size",
    "dp": "dp_size",
    "data_parallel_size": "dp_size",
    "ep": "ep_size",
    "expert_parallel_size": "ep_size",
}
"""SGLang's shorter or longer spellings of a flag, by the field of ServerArgs that holds it."""
ONE_SIDE: Final = "a field that this SGLang alone has"
FOUND: Final = "no side was given it: SGLang found it"
SAME_EFFECT: Final = "the value in effect is the same"

Table = Mapping[str, Any]


def field_of(key: str) -> str:
    """Return the field of ServerArgs that a flag or a field names."""
    name = key.lstrip("-").replace("-", "_")
    return NAMES.get(name, name)


def argument_rows(runs: Sequence[Run], *, fold: bool = True) -> Iterator[Row]:
    """Return every argument that any side was given or has in effect. With `fold` an effective one stands in the row of
    the flag of its name, where there is one."""
    given = [run.provenance.given for run in runs]
    effective = [run.provenance.effective for run in runs]
    taken: set[str] = set()
    known = sorted({name for table in effective for name in table or ()})
    gave = None if None in given else {field_of(flag) for table in given for flag in table or ()}
    for flag in sorted({flag for table in given for flag in table or ()}):
        fields = _fields(flag, known)
        taken.update(fields if fold else ())
        yield _given(flag, given, fields, effective)
    for name in sorted(set(known) - taken):
        values = _values(name, effective)
        unknown = any(table is None or name not in table for table in effective)
        found = FOUND if gave is not None and name not in gave else None
        why = (NOT_RECORDED if None in effective else ONE_SIDE) if unknown else found
        yield Row(group="arguments effective", key=name, values=values, counts=not unknown, why=why)


def _given(flag: str, given: Sequence[Table | None], fields: Sequence[str], effective: Sequence[Table | None]) -> Row:
    values = _values(flag, given)
    shown = next((_values(name, effective) for name in fields if not same(_known(name, effective))), None)
    known = bool(fields) and all(table is not None and table.keys() >= set(fields) for table in effective)
    same_effect = known and shown is None
    unknown = None in given and not (known and shown is not None)
    why = NOT_RECORDED if unknown else SAME_EFFECT if same_effect else None
    counts = not unknown and not same_effect
    return Row(group="arguments given", key=flag, values=values, effective=shown, counts=counts, why=why)


def _fields(flag: str, known: Sequence[str]) -> list[str]:
    """Return the fields that hold a flag: that of its name, else those whose names go on from it."""
    name = field_of(flag)
    return [name] if name in known else [field for field in known if field.startswith(f"{name}_")]


def _values(name: str, tables: Sequence[Table | None]) -> tuple[Any, ...]:
    return tuple(None if table is None else table.get(name) for table in tables)


def _known(name: str, tables: Sequence[Table | None]) -> list[Any]:
    """Return the values of the sides that have one: unknown is no value, and differs from none."""
    return [table[name] for table in tables if table is not None and name in table]


def following(rows: Sequence[Row]) -> list[Row]:
    """Return rows with those marked that follow from flags that were given: a structure that SGLang makes of them.

    Worked example: `--cuda-graph-max-bs` 8 and 64 make `cuda_graph_config` differ in `decode.max_bs`, 8 and 64, and in
    the sizes up to it.
    """
    flags = [row for row in rows if row.group == "arguments given" and row.differs and row.counts]
    return [_follows(row, flags) for row in rows]


def _follows(row: Row, flags: Sequence[Row]) -> Row:
    if row.group != "arguments effective" or not (row.differs and row.counts):
        return row
    leaves = differing(row.values)
    stem = row.key.removesuffix("_config").removesuffix("_args")
    by_name = [flag.key for flag in flags if leaves and stem in field_of(flag.key)]
    made = [[flag.key for flag in flags if _makes(flag, leaf)] for leaf in leaves]
    if not leaves or not (by_name or all(made)):
        return row
    found = dict.fromkeys([*by_name, *(key for keys in made for key in keys)])
    return msgspec.structs.replace(row, counts=False, why=f"follows from {', '.join(found)}")


def _makes(flag: Row, leaf: Leaf) -> bool:
    """Say whether a part has the values of a flag, or goes up to them, on each side that has the flag."""
    given = zip(flag.values, flag.effective or flag.values, strict=True)
    wanted = [made if value is None else value for value, made in given]
    tops = [max(numbers(text), default=None) for text in leaf.texts]
    texts = [str(text).strip("'") for text in leaf.texts]
    return any(_all_or_unset(wanted, made) for made in (texts, tops))


def _all_or_unset(wanted: Sequence[Any], made: Sequence[Any]) -> bool:
    pairs = [(one, other) for one, other in zip(wanted, made, strict=True) if one is not None]
    return bool(pairs) and all(str(one) == str(other) for one, other in pairs)
