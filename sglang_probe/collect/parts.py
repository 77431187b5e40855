"""An event too long for one line comes in parts; here they become one again."""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_probe.collect.records import HEAVY, NULL, Record, attributes_of

_LIGHT = tuple(name for name in Record.__struct_fields__ if name not in HEAVY and name not in {"part", "parts"})


def merge_parts(parts: list[Record]) -> tuple[Record, int]:
    """Return the event that `parts` were split from, and how many of them are missing.

    `attributes` are put together key by key; any other field is the first one that is not null.
    """
    ordered = sorted(parts, key=lambda record: (record.part or 0, msgspec.json.encode(record)))
    fields: dict[str, Any] = {
        name: next((value for part in ordered if (value := getattr(part, name)) is not None), None) for name in _LIGHT
    }
    for name in HEAVY:
        raws = [getattr(part, name) for part in ordered]
        fields[name] = next((raw for raw in raws if raw and raw != NULL), raws[0])
    attributes: dict[str, Any] = {}
    for part in ordered:
        attributes.update(attributes_of(part))
    fields["attributes"] = msgspec.Raw(msgspec.json.encode(attributes))
    return Record(**fields), _missing(ordered)


def _missing(ordered: list[Record]) -> int:
    expected = max(record.parts or 0 for record in ordered)
    seen = {record.part for record in ordered if record.part is not None and 1 <= record.part <= expected}
    return expected - len(seen)
