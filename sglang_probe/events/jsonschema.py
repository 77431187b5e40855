"""The JSON Schema of events, generated from the typed structures of this room. Needs msgspec (`sglang-probe[cli]`).

One sub-schema a role and a probe event ties `attributes` to the event that carries them, so that a schema check of a
recording is a check of what each role may say. Unknown keys are allowed everywhere: a newer minor version adds them.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from sglang_probe.events import attributes, envelope, names

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that every line of a probe file satisfies."""
    types = [envelope.Event, *attributes.BY_ROLE.values(), *attributes.BY_EVENT.values()]
    (event, *_), components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for typed_dict in _closure(types):
        _describe(typed_dict, components[typed_dict.__name__])
    _rename_class_key(components)
    components["Event"]["allOf"] = [_attributes_of(key, value) for key, value in _discriminators()]
    return {"$schema": DRAFT, "title": f"SGLang Probe event {names.SCHEMA_VERSION}", **event, "$defs": components}


def _discriminators() -> list[tuple[tuple[str, str], str]]:
    by_role = [(("role", role), typed.__name__) for role, typed in attributes.BY_ROLE.items()]
    return by_role + [(("event", event), typed.__name__) for event, typed in attributes.BY_EVENT.items()]


def _attributes_of(key: tuple[str, str], definition: str) -> dict[str, Any]:
    field, value = key
    return {
        "if": {"properties": {field: {"const": value}}, "required": [field]},
        "then": {"properties": {"attributes": {"$ref": f"#/$defs/{definition}"}}},
    }


def _closure(types: list[type]) -> list[type]:
    """Return every TypedDict reachable from `types`, each once."""
    found: dict[str, type] = {}
    pending: list[Any] = list(types)
    while pending:
        hint = pending.pop()
        if is_typeddict(hint):
            if hint.__name__ not in found:
                found[hint.__name__] = hint
                pending.extend(get_type_hints(hint, include_extras=True).values())
        elif get_origin(hint) is not None:
            pending.extend(get_args(hint))
    return list(found.values())


def _describe(typed_dict: Any, schema: dict[str, Any]) -> None:
    """Add the docstring and each field's Annotated sentence to its schema."""
    schema["description"] = (typed_dict.__doc__ or "").strip()
    for name, hint in get_type_hints(typed_dict, include_extras=True).items():
        if get_origin(hint) is Annotated:
            sentence = next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), None)
            if sentence is not None:
                schema["properties"][name]["description"] = sentence


def _rename_class_key(components: dict[str, Any]) -> None:
    # `class` is no Python identifier, so the structure spells it `class_`; the events say `class`.
    properties = components["AllReduceBuffers"]["properties"]
    components["AllReduceBuffers"]["properties"] = {
        ("class" if name == "class_" else name): schema for name, schema in properties.items()
    }
