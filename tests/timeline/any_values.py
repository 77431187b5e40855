"""Any value in any field of an event: what a file may hold whatever its writer meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def spoil(data: st.DataObject, event: dict[str, Any], values: st.SearchStrategy[Any] = VALUES) -> None:
    """Put any value into any place of an event but its schema."""
    place = data.draw(st.sampled_from([path for path in _places(event) if path and path[0] != "schema"]))
    holder: Any = event
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = data.draw(values)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Sequence[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, inner in items for deeper in _places(inner, (*path, key)))]
