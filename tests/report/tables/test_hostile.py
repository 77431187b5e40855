"""Whatever stands in events and logs, the tables can be written and read back: text is text, numbers have 64 bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.events import envelope
from sglang_probe.explain.model import Lever
from sglang_probe.report.tables import duck, parquet
from sglang_probe.report.tables.kinds import (
    BYTES,
    COUNT,
    LOCAL_TIME,
    SECONDS,
    TEXT,
    TIME,
    WORD,
    WORDS,
    array_of,
    json_text,
)
from tests.cli.conftest import event, failed_start
from tests.report.tables.conftest import MaterialOf, by_hand
from tests.timeline.building import build_rank, build_run, build_step

duckdb = pytest.importorskip("duckdb")
NASTY = {
    "quotes": "' \" ` ; DROP TABLE steps; --",
    "markup": "</script><b>&amp;",
    "control": "a\0b\r\n\t\x1b[31m",
    "half a pair": "x\udcffy\ud800",
    "directions": "\u202eabc\u2066",
    "long": "n" * 30_000,
    "braces": '{"a": "\\ud800"} \\udcff',
    "empty": "",
}
BEYOND = 1 << 63


def spelt(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_text_comes_back_as_it_was_and_half_pairs_spelt_out(text: str, tmp_path: Path) -> None:
    step = build_step("weights.load", 0, 2.0, 1.0, 1.0, attributes={text: [text]}, state_reason=text)
    step = msgspec.structs.replace(step, detail=text, self_includes=(text,))
    rank = msgspec.structs.replace(build_rank(0, 1, (step,)), label=text, host=text)
    run = build_run((rank,), "ready", run_id=text, notes=(text,))

    parquet.write(by_hand(run), tmp_path / "run.parquet")
    duck.write(by_hand(run), tmp_path / "run.duckdb")

    wanted = [(spelt(text),) * 5 + ([spelt(text)], {spelt(text): [spelt(text)]})]
    columns = "run_id, host, label, detail, state_reason, self_includes, attributes"
    for source in (f"'{tmp_path}/run.parquet/steps.parquet'", "run.steps"):
        with duckdb.connect() as database:
            database.execute(f"ATTACH '{tmp_path}/run.duckdb' AS run (READ_ONLY)")
            found = database.execute(f"SELECT {columns} FROM {source}").fetchall()
        assert wanted == [(*row[:-1], json.loads(row[-1])) for row in found]


def test_json_of_half_pairs_is_json_that_the_database_takes() -> None:
    said = json_text({"name": NASTY["half a pair"]})

    assert duckdb.execute("SELECT CAST(? AS JSON) ->> 'name'", [said]).fetchone() == (spelt(NASTY["half a pair"]),)


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (COUNT, [1, BEYOND, None, -BEYOND], [1, None, None, -BEYOND]),
        (BYTES, [BEYOND - 1, -BEYOND - 1], [BEYOND - 1, None]),
        (SECONDS, [1, 1 << 62, 10**400, "x"], [1.0, float(1 << 62), None, None]),
        (TEXT, ["a", 7, None], ["a", "7", None]),
        (WORD, ["a", "\udcff", "a"], ["a", "\\udcff", "a"]),
        (WORDS, [("a", "\udcff"), (), None], [["a", "\\udcff"], [], None]),
    ],
    ids=["count", "bytes", "seconds", "text", "word", "words"],
)
def test_a_value_that_does_not_fit_is_null_or_spelt_out_and_the_others_stay(
    kind: Any, values: list[Any], wanted: list[Any]
) -> None:
    assert wanted == array_of(kind, values).to_pylist()


def test_counts_that_add_up_to_more_than_64_bits_are_null(tmp_path: Path, material_of: MaterialOf) -> None:
    directory = tmp_path / "night"
    directory.mkdir()
    for place, pid in enumerate((4711, 4712)):
        rank = {**dict.fromkeys(envelope.Rank.__annotations__), "world": {"rank": place, "size": 2}}
        first, *others = failed_start()
        late = [{**line, "seq": BEYOND - 9 + number} for number, line in enumerate(others)]
        lines = [{**line, "pid": pid, "rank": rank} for line in (first, *late)]
        (directory / f"node-a.{pid}.88.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    material = material_of([directory])

    parquet.write(material, tmp_path / "run.parquet")
    duck.write(material, tmp_path / "run.duckdb")

    wanted = {"runs": "lost_events", "losses": "found"}
    assert sum(process.lost_events for process in material.timeline.runs[0].processes) > BEYOND
    with duckdb.connect(str(tmp_path / "run.duckdb"), read_only=True) as database:
        for table, column in wanted.items():
            for source in (table, f"'{tmp_path}/run.parquet/{table}.parquet'"):
                assert database.execute(f"SELECT {column} FROM {source}").fetchall() == [(None,)]
        lost = "SELECT lost_events FROM processes ORDER BY process"
        assert [row[0] for row in database.execute(lost).fetchall()] == [BEYOND - 10] * 2


def test_times_keep_their_microseconds_and_what_is_no_time_is_null() -> None:
    stamps = ["2026-11-29T18:45:00.123456789Z", "yesterday", None, "9999-12-31T23:59:59Z", "1969-12-31T23:59:59.5Z"]

    found = [None if time is None else time.isoformat() for time in array_of(TIME, stamps).to_pylist()]
    good = [None if time is None else time.isoformat() for time in array_of(TIME, stamps[:1]).to_pylist()]

    assert found == [
        "2026-11-29T18:45:00.123456+00:00",
        None,
        None,
        "9999-12-31T23:59:59+00:00",
        "1969-12-31T23:59:59.500000+00:00",
    ]
    assert good == found[:1]
    local = array_of(LOCAL_TIME, ["2030-01-01 00:00:04", "12:00:00", None]).to_pylist()
    assert [str(time) for time in local] == ["2030-01-01 00:00:04", "None", "None"]


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSONS)
@settings(max_examples=100)
def test_any_value_becomes_json_that_the_database_takes(value: Any) -> None:
    said = json_text(msgspec.structs.replace(Lever(says="x"), value=value))

    assert duckdb.execute("SELECT json_valid(?)", [said]).fetchone() == (True,)


@given(st.dictionaries(st.text(st.characters(exclude_categories=())), JSONS, max_size=4))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_attributes_of_an_event_come_through_both_formats(
    tmp_path_factory: pytest.TempPathFactory, material_of: MaterialOf, attributes: dict[str, Any]
) -> None:
    directory = tmp_path_factory.mktemp("run")
    lines = [event(0, "sglang.probe.process.start", attributes=attributes), *failed_start()[1:]]
    (directory / "node-a.4711.88.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    material = material_of([directory])

    parquet.write(material, directory / "run.parquet")
    duck.write(material, directory / "run.duckdb")

    with duckdb.connect(str(directory / "run.duckdb"), read_only=True) as database:
        kept = database.execute("SELECT seq, attributes FROM events ORDER BY seq").fetchall()
        assert (
            kept == database.execute(f"SELECT seq, attributes FROM '{directory}/run.parquet/events.parquet'").fetchall()
        )
    assert len(kept) == material.timeline.read.events


def test_thousands_of_distinct_names_are_as_many_rows(
    material_of: MaterialOf, write_events: Callable[..., Path]
) -> None:
    names = [f"pool-{number}-\u202e" for number in range(5000)]
    lines = [
        event(number, "sglang.memory.kv.pool.sample", attributes={"pool": name}) for number, name in enumerate(names)
    ]
    lines[0]["attributes"] = {"pool": names[0], "bytes": 10**500}

    directory = write_events(lines)
    parquet.write(material_of([directory]), directory.parent / "run.parquet")

    pools = duckdb.execute(
        f"SELECT attributes ->> 'pool' FROM '{directory.parent}/run.parquet/events.parquet' ORDER BY seq"
    ).fetchall()
    assert pools == [(name,) for name in names]


@pytest.fixture
def write_events(tmp_path: Path) -> Callable[..., Path]:
    """Write events as the one file of a run, and return its directory."""

    def write(lines: list[dict[str, object]]) -> Path:
        directory = tmp_path / "night"
        directory.mkdir()
        (directory / "node-a.4711.88.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return directory

    return write
