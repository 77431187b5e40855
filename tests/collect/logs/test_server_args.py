"""The arguments that SGLang prints are those that the probe's events hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.logs.formats import is_whole
from sglang_probe.collect.logs.server_args import arguments_in
from sglang_probe.events.redact import MARK
from tests.collect.logs.reading_lines import kinds

DATA = Path(__file__).parents[2] / "data"
LOGS = sorted(DATA.glob("h200-*/*.log"))
NOT_IN_THE_REPR = {"uses_mamba_radix_cache", "enable_grpc", "grpc_port", "model_config"}
"""Set on the object after it was made: no fields of the dataclass, so its repr has them not."""


def recorded(log: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in log.with_suffix("").glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            if '"sglang.probe.server_args"' in line:
                found |= json.loads(line)["attributes"].get("effective") or {}
    return found


def printed(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    return next(line[line.index("server_args=") :] for line in text.splitlines() if "server_args=ServerArgs(" in line)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name[-11:]}-{log.stem}")
def test_the_arguments_of_a_recorded_run_are_those_of_its_events(log: Path) -> None:
    events = {name: value for name, value in recorded(log).items() if name not in NOT_IN_THE_REPR}

    assert events
    assert events == arguments_in(printed(log))


ODD = (
    "server_args=ServerArgs(model_path='/a b/c', api_key='abcdefgh', chat_template=\"{% if x %}it's, (\\n{% endif %}\","
    " mode=<Mode.AUTO: 'auto'>, hook=<function f at 0x7f01>, config=Config(a=[1, (2, 3)], b={'x': ','}), ratio=inf,"
    " nested={'a': [1, {'b': None}]}, pair=(1, 2), last=True)"
)


def test_values_of_every_make_are_read() -> None:
    assert {
        "model_path": "/a b/c",
        "api_key": MARK,
        "chat_template": "{% if x %}it's, (\n{% endif %}",
        "mode": "auto",
        "hook": "<function f at 0x7f01>",
        "config": "Config(a=[1, (2, 3)], b={'x': ','})",
        "ratio": float("inf"),
        "nested": {"a": [1, {"b": None}]},
        "pair": [1, 2],
        "last": True,
    } == arguments_in(ODD)


def test_a_dict_is_read_as_the_object_is() -> None:
    assert {"model_path": "/a", "tp_size": 2, "api_key": MARK, "x": ["a: b"]} == arguments_in(
        "server_args={'model_path': '/a', 'tp_size': 2, 'api_key': 'abcdefgh', 'x': ['a: b']}"
    )


@given(st.integers(0, len(ODD)))
def test_of_a_text_that_was_cut_the_whole_arguments_are_kept(length: int) -> None:
    whole = arguments_in(ODD) or {}
    read = arguments_in(ODD[:length])

    assert read is None or read == {name: whole[name] for name in list(whole)[: len(read)]}
    assert is_whole(ODD[:length]) == (length == len(ODD))


LITERALS = st.none() | st.booleans() | st.text() | st.integers() | st.lists(st.text(max_size=5), max_size=3)


@given(st.dictionaries(st.from_regex(r"[a-z]{3,8}_x", fullmatch=True), LITERALS, max_size=6))
def test_any_literals_come_back(given_arguments: dict[str, Any]) -> None:
    text = f"server_args=ServerArgs({', '.join(f'{name}={value!r}' for name, value in given_arguments.items())})"
    read = arguments_in(text)

    assert read is not None
    assert list(given_arguments) == list(read)
    assert {n: v for n, v in given_arguments.items() if not _cleaned(v)} == {
        n: v for n, v in read.items() if not _cleaned(given_arguments[n])
    }


def _cleaned(value: object) -> bool:
    """Texts may hold what looks like a secret."""
    return isinstance(value, (str, list))


def test_it_is_a_fact_of_its_own() -> None:
    assert ["server_args"] == kinds(ODD)
