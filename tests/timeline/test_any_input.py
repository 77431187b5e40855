"""Whatever order, cut or bytes: the same timeline, nothing lost but what was cut, and no error but the reader's own."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.collect import InputError, read
from sglang_probe.timeline import build, to_json
from sglang_probe.timeline.model import Run
from tests.collect.building import Host, line_of
from tests.collect.starting import Shape, launch
from tests.timeline.any_values import spoil
from tests.timeline.making import unknowable

SHAPES = [Shape(), Shape(fail_in="kv.profile"), Shape(stop_in="weights.load"), Shape(fraction=0.2)]


@functools.cache
def _files() -> tuple[tuple[bytes, ...], ...]:
    """Two launches of four ranks each, as the lines of their files."""
    host = Host()
    writers = [*launch(SHAPES, host, run_id="one"), *launch([Shape()] * 4, host, run_id="two", first_pid=4300)]
    return tuple(tuple(writer.lines()) for writer in writers)


def _runs(*files: bytes, directory: Path | None = None) -> tuple[Run, ...]:
    if directory is None:
        collected = read(["-"], io.BytesIO(b"".join(files)))
    else:
        for number, content in enumerate(files):
            (directory / f"{number}.jsonl").write_bytes(content)
        collected = read([directory])
    return build(collected, alive=unknowable).runs


@functools.cache
def _expected() -> tuple[Run, ...]:
    return _runs(*(b"".join(lines) for lines in _files()))


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_order_of_lines_and_files_gives_the_same_timeline(shuffler: random.Random) -> None:
    lines = [line for lines in _files() for line in lines]
    shuffler.shuffle(lines)

    assert _expected() == _runs(b"".join(lines))


def test_files_and_one_stream_give_the_same_timeline(tmp_path: Path) -> None:
    assert _expected() == _runs(*(b"".join(lines) for lines in _files()), directory=tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cutting_a_file_at_any_byte_loses_only_what_was_cut(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(_files()) - 1))
    files = [b"".join(lines) for lines in _files()]
    content = files[number]
    cut = data.draw(st.integers(0, len(content)))
    files[number] = content[:cut] + b"\n"

    collected = read(["-"], io.BytesIO(b"".join(files)))

    whole = content[:cut].count(b"\n") + (content[cut : cut + 1] == b"\n")
    assert sum(file.count(b"\n") for file in files[:number] + files[number + 1 :]) + whole == collected.report.events
    build(collected, alive=unknowable)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000))
def test_no_bytes_make_the_reader_raise_anything_but_its_own_error(content: bytes) -> None:
    _survives(content)


def _survives(content: bytes) -> None:
    with contextlib.suppress(InputError):
        json.dumps(to_json(build(read(["-"], io.BytesIO(content)), alive=unknowable)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_damage_to_a_real_stream_makes_anything_raise_but_the_readers_own_error(data: st.DataObject) -> None:
    content = bytearray(b"".join(line for lines in _files()[:3] for line in lines))
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.integers(0, 300))
        content[place : place + length] = data.draw(st.binary(max_size=40))

    _survives(bytes(content))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_value_in_any_field_makes_anything_raise(data: st.DataObject) -> None:
    events = [json.loads(line) for lines in _files()[:3] for line in lines]
    for _ in range(data.draw(st.integers(1, 5))):
        spoil(data, data.draw(st.sampled_from(events)))

    _survives(b"".join(line_of(event) for event in events))


@pytest.mark.parametrize("seed", range(3))
def test_lines_that_come_twice_change_nothing(seed: int) -> None:
    lines = [line for lines in _files() for line in lines]
    doubled = [*lines, *random.Random(seed).sample(lines, 40)]
    random.Random(seed).shuffle(doubled)

    assert _expected() == _runs(b"".join(doubled))
