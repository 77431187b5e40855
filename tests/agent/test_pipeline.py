"""What reaches the file: order, limits, parts, and that the host's structlog is left alone."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.agent.pipeline import ORDER, Pipeline, dumps
from sglang_probe.events.names import CUT_MARK, MAX_LINE_BYTES, MAX_VALUE_BYTES, SCHEMA_VERSION


class Lines:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.lines.append(line)

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def lines() -> Lines:
    return Lines()


def emit(lines: Lines, **fields: Any) -> None:
    Pipeline(lines, lambda: {"run_id": "r", "host": "h", "pid": 1}).emit("info", "sglang.probe.test", **fields)


def merged(objects: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in objects:
        for key, value in part["attributes"].items():
            if isinstance(value, dict) and isinstance(whole.get(key), dict):
                whole[key] |= value
            else:
                whole[key] = value
    return whole


def test_keys_stand_in_the_order_of_the_schema(lines: Lines) -> None:
    emit(lines, message="m", attributes={"a": 1})
    assert list(lines.objects()[0]) == list(ORDER)


def test_the_envelope_is_stamped_and_what_is_not_given_is_null(lines: Lines) -> None:
    emit(lines, message="m")
    (event,) = lines.objects()
    assert event["schema"] == SCHEMA_VERSION
    assert event["ts"].endswith("Z") and len(event["ts"].partition(".")[2]) == len("123456789Z")
    assert (event["degraded"], event["attributes"], event["span"], event["before"]) == ([], {}, None, None)


def test_the_sequence_counts_from_zero_and_restarts_in_a_forked_child(lines: Lines) -> None:
    pipeline = Pipeline(lines, dict)
    for _ in range(3):
        pipeline.emit("info", "e")
    pipeline.restart()
    pipeline.emit("info", "e")
    assert [0, 1, 2, 0] == [event["seq"] for event in lines.objects()]


def test_the_hosts_structlog_configuration_is_neither_used_nor_changed(lines: Lines) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the host's processors must not see our events")

    before = structlog.get_config()
    structlog.configure(processors=[refuse], wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        emit(lines, message="m")
        assert structlog.get_config()["processors"] == [refuse]
    finally:
        structlog.configure(**before)
    assert len(lines.lines) == 1


def test_a_long_value_is_cut_and_marked(lines: Lines) -> None:
    emit(lines, message="m", attributes={"long": "x" * (MAX_VALUE_BYTES + 1), "short": "y"})
    attributes = lines.objects()[0]["attributes"]
    assert len(attributes["long"].encode()) <= MAX_VALUE_BYTES
    assert attributes["long"].endswith(CUT_MARK)
    assert attributes["short"] == "y"


def test_an_object_over_the_line_limit_is_split_by_whole_keys(lines: Lines) -> None:
    values = {f"key{i}": "v" * 1000 for i in range(100)}
    emit(lines, message="m", attributes={"effective": values, "given": None})
    assert all(len(line) <= MAX_LINE_BYTES for line in lines.lines)
    objects = lines.objects()
    assert [(i, len(objects)) for i in range(1, len(objects) + 1)] == [(o["part"], o["parts"]) for o in objects]
    assert len({o["seq"] for o in objects}) == 1
    assert merged(objects) == {"effective": values, "given": None}


@given(
    st.dictionaries(
        st.text(max_size=20), st.one_of(st.text(max_size=9000), st.integers(), st.floats(), st.none()), max_size=30
    )
)
def test_no_line_is_over_the_limit_whatever_the_attributes(attributes: dict[str, Any]) -> None:
    lines = Lines()
    emit(lines, message="m", attributes=attributes)
    assert all(len(line) <= MAX_LINE_BYTES and b"\n" not in line for line in lines.lines)
    assert set(merged(lines.objects())) == set(attributes)


@given(text=st.text(st.sampled_from('\x00\n"é\U0001f600a'), min_size=1), times=st.integers(1, 9000))
def test_no_line_is_over_the_limit_whatever_an_exception_says(text: str, times: int) -> None:
    lines, said = Lines(), (text * times)[:8000]
    exception = {"id": "1", "type": "E", "message": said[:2000], "stacktrace": said, "raised_in": said[:100]}
    processes = [{"pid": 1 << 22, "bytes": 1 << 40, "name": "n" * 64, "user": "u" * 64}] * 64
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "orjson", raising=False)
        emit(lines, message="m", exception=exception, after={"nvml_processes": processes}, attributes={"a": 1, "b": 2})
    assert all(len(line) <= MAX_LINE_BYTES for line in lines.lines)
    assert merged(lines.objects()) == {"a": 1, "b": 2}
    assert lines.objects()[0]["exception"]["stacktrace"][:1] == said[:1]


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec=None))),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
        max_leaves=10,
    )
)
def test_whatever_is_written_is_json_with_and_without_orjson(value: Any) -> None:
    import orjson

    def strict(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    for module in (orjson, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "orjson", module)
            json.loads(dumps({"value": value}), parse_constant=strict)


def test_without_orjson_the_same_object_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"text": "ünï", "number": 1.5, "list": [None, True]}
    monkeypatch.delitem(sys.modules, "orjson", raising=False)
    assert json.loads(dumps(value)) == value
