"""Input that holds no probe event is refused with one line: what was found, and what to do."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from sglang_probe.collect import InputError, read
from tests.collect.starting import Shape, launch


def _refusal(*paths: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read(paths)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (bytes(range(256)) * 8, "is a binary file"),
        (b"\0" * 4096, "is a binary file"),
        ("text".encode("utf-16"), "is a binary file"),
        (gzip.compress(b'{"schema":"1.0"}\n'), "its schema is '1.0'"),
        (gzip.compress(b"just a note\n"), "is text, but no probe events, and no line of it is of SGLang's"),
        (bytes(257) + b"ustar" + bytes(250), "is a tar archive; unpack it first"),
        (b"PK\x03\x04 and so on", "unpack it first"),
        (b"just a note\n", "is text, but no probe events"),
        (b"[2026-11-29 18:45:01 TP0] Tree cache initialized\n", "says anything of SGLang's memory or start"),
        (b'{"traceEvents": [], "displayTimeUnit": "ms"}', "its keys: traceEvents, displayTimeUnit"),
        (b'{\n  "traceEvents": [\n', "its keys: traceEvents"),
        (json.dumps({"schema": "timeline/1.0", "runs": []}).encode(), "is a report that sglang-probe wrote"),
        (b'{"ts": 1, "name": "a"}\n{"ts": 2, "name": "b"}\n', "its keys: ts, name"),
        (b"[]", "is JSON, but no probe events"),
        (b'{"schema":"1.0","ts":"2026-', "its first line is cut off"),
    ],
)
def test_a_file_of_something_else_is_named_for_what_it_is(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "given"
    file.write_bytes(content)

    text = _refusal(file)

    assert says in text
    assert str(file) in text


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'nowhere'}: no such file or directory" in _refusal(tmp_path / "nowhere")


def test_an_empty_directory_says_how_to_get_a_run(tmp_path: Path) -> None:
    text = _refusal(tmp_path)

    assert "is an empty directory" in text
    assert "sglang-probe run" in text


def test_a_directory_of_another_tool_is_named_by_its_first_file(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')

    text = _refusal(tmp_path)

    assert "holds no probe events (trace.json is JSON, but no probe events (its keys: traceEvents))" in text


def test_a_directory_of_empty_directories_holds_no_events(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()

    assert "nor do the directories in it" in _refusal(tmp_path)


def test_one_bad_path_among_good_ones_is_the_one_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_bytes(b"".join(launch([Shape()])[1].lines()))
    bad.write_text("text\n")

    assert str(bad) in _refusal(good, bad)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    file = tmp_path / "secret.jsonl"
    file.write_bytes(b"".join(launch([Shape()])[1].lines()))
    file.chmod(0)

    assert "cannot be read: Permission denied" in _refusal(file)


def test_standard_input_that_is_not_there_is_said() -> None:
    assert "standard input was asked for" in _refusal("-")


def test_a_directory_whose_runs_lie_deeper_names_where_to_look(tmp_path: Path) -> None:
    run = tmp_path / "kept" / "runs" / "20261129T184500Z-3fa9c1"
    run.mkdir(parents=True)
    (tmp_path / "kept" / "gpus").mkdir()
    (tmp_path / "kept" / "server.log").write_text("[2026-11-29 18:45:01 TP0] Load weight begin. avail mem=94.04 GB\n")
    (run / "a.jsonl").write_bytes(b"".join(launch([Shape()])[1].lines()))

    text = _refusal(tmp_path / "kept")

    assert "server.log is a log of SGLang's" in text
    assert text.endswith(f"; look in {tmp_path / 'kept' / 'runs'}")
    assert read([tmp_path / "kept" / "runs"])
