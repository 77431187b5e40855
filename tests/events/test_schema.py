"""The schema accepts what the structures say and nothing else; names and structures agree."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from jsonschema import Draft202012Validator

from sglang_probe.events import attributes, envelope, fingerprint, names
from sglang_probe.events.fingerprint import fingerprint as fingerprint_of
from sglang_probe.events.fingerprint import fingerprint_node
from sglang_probe.events.jsonschema import event_schema


def test_the_schema_is_a_valid_json_schema() -> None:
    Draft202012Validator.check_schema(event_schema())


def test_every_role_has_its_attributes_described() -> None:
    assert set(attributes.BY_ROLE) == set(names.ROLES)


def test_every_field_with_a_sentence_carries_it_into_the_schema() -> None:
    properties = event_schema()["$defs"]["Event"]["properties"]
    assert properties["mono_ns"]["description"] and properties["seq"]["description"]


def test_a_wrong_attribute_of_a_role_is_refused_and_an_unknown_one_is_not() -> None:
    rules = event_schema()["$defs"]
    budget = Draft202012Validator({"$ref": "#/$defs/KvProfile", "$defs": rules})
    assert budget.is_valid({"verified": None, "newer": 1})
    assert not budget.is_valid({"verified": "yes"})


def test_unknown_memory_is_null_never_zero_by_omission() -> None:
    reading = event_schema()["$defs"]["Reading"]
    assert set(reading["required"]) == set(envelope.FirstReading.__annotations__)
    assert set(envelope.READING_KEYS) <= set(reading["properties"])


def test_what_a_minor_version_adds_to_a_reading_is_optional_and_described() -> None:
    """Files from before the addition stay valid."""
    rules = event_schema()["$defs"]
    before = dict.fromkeys(envelope.FirstReading.__annotations__)
    known = Draft202012Validator({"$ref": "#/$defs/Reading", "$defs": rules})
    added = set(envelope.READING_KEYS) - set(before)
    assert added and known.is_valid(before) and known.is_valid({**before, **dict.fromkeys(added)})
    assert not known.is_valid({**before, "torch_pinned_bytes": "30"})
    assert [] == [name for name in added if not rules["Reading"]["properties"][name].get("description")]


def test_every_key_of_a_delta_is_one_of_a_reading() -> None:
    assert set(envelope.DELTA_KEYS) < set(envelope.READING_KEYS)


def test_the_schema_survives_json() -> None:
    assert json.loads(json.dumps(event_schema())) == event_schema()


def functions_of(path: Path) -> list[tuple[FunctionType, str]]:
    """Every top-level function of a module, alive, beside the fingerprint of its text."""
    source = path.read_text()
    lines, module = source.splitlines(), compile(source, str(path), "exec")
    alive = {code.co_name: code for code in module.co_consts if isinstance(code, CodeType)}
    return [
        (FunctionType(alive[node.name], {}), fingerprint_node(lines, node))
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name in alive and not alive[node.name].co_freevars
    ]


@pytest.mark.parametrize("module", ["inspect", "argparse", "shutil", "tarfile", "traceback", "typing", "subprocess"])
def test_a_live_function_and_its_text_have_the_same_fingerprint(module: str) -> None:
    pairs = functions_of(Path(str(sys.modules[ast.__name__].__file__)).with_name(f"{module}.py"))
    assert pairs
    assert [(f.__name__, of_text) for f, of_text in pairs] == [(f.__name__, fingerprint_of(f)) for f, _ in pairs]


def test_indentation_trailing_blanks_comments_and_decorators_do_not_count() -> None:
    plain = ["def f(x):", "    return x"]
    method = ["class A:", "    @decorated", "    def f(x):   ", "        return x  ", "        # a remark", ""]
    nested = ast.parse("\n".join(method)).body[0]
    assert isinstance(nested, ast.ClassDef) and isinstance(nested.body[0], ast.FunctionDef)
    assert fingerprint_node(method, nested.body[0]) == fingerprint.fingerprint_block(plain, 1, 2)


def test_a_changed_body_has_another_fingerprint() -> None:
    assert fingerprint.fingerprint_block(["def f():", "    return 1"], 1, 2) != fingerprint.fingerprint_block(
        ["def f():", "    return 2"], 1, 2
    )


def test_a_function_without_source_has_none() -> None:
    assert fingerprint_of(eval("lambda: 1")) is None
    assert fingerprint_of(len) is None
