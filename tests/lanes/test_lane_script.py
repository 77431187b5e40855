"""The script that builds and serves lanes, where neither an index nor a server is needed."""

from __future__ import annotations

import itertools
import json
import math
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lanes import server as serving
from lanes.build import Lane, LaneError, building
from lanes.configs import SPECIAL
from lanes.model import make_model, make_models
from lanes.rows import ROWS
from lanes.server import Server, group_members
from lanes.ways import WAYS

SURVIVOR = """#!/bin/sh
trap '' TERM
sleep 300 &
wait
sleep 300
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An executable that can be written over."""
    path = tmp_path / "program"
    path.touch(mode=0o755)
    assert path.stat().st_mode & stat.S_IXUSR
    return path


def start(program: Path, logs: Path) -> Server:
    """Start a lane whose interpreter is a program of ours."""
    server = Server(Lane("0.0", program, logs), logs=logs)
    server.start()
    return server


def test_a_release_without_a_row_is_one_clear_line_and_exit_2(root: Path) -> None:
    done = subprocess.run([sys.executable, root / "lanes" / "lane.py", "build", "9.9"], capture_output=True, text=True)
    assert (2, "") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    assert "9.9" in line and all(version in line for version in ROWS)


def half_build(lane: Path) -> None:
    """Begin to build a lane and be interrupted."""
    with building(lane, "recipe") as needed:
        assert needed
        lane.mkdir()
        (lane / "half").touch()
        raise KeyboardInterrupt


def test_a_build_that_was_cut_short_is_begun_again_from_nothing(tmp_path: Path) -> None:
    lane = tmp_path / "lane"
    with pytest.raises(KeyboardInterrupt):
        half_build(lane)
    assert (lane / "half").exists()
    with building(lane, "recipe") as needed:
        assert needed
        assert not lane.exists()
        lane.mkdir()


def test_a_lane_is_built_once_and_again_when_its_recipe_changes(tmp_path: Path) -> None:
    lane, asked = tmp_path / "lane", []
    for recipe in ("old", "old", "new", "new"):
        with building(lane, recipe) as needed:
            lane.mkdir(exist_ok=True)
            asked.append(needed)
    assert [True, False, True, False] == asked


def test_a_second_builder_waits_for_the_first_and_has_nothing_left_to_do(tmp_path: Path) -> None:
    lane, second = tmp_path / "lane", []

    def build() -> None:
        with building(lane, "recipe") as needed:
            second.append(needed)

    other = threading.Thread(target=build)
    with building(lane, "recipe") as needed:
        assert needed
        other.start()
        other.join(0.2)
        assert [] == second
        lane.mkdir()
    other.join(10)
    assert [False] == second


def test_every_byte_and_every_special_token_has_an_id_of_its_own_in_the_model(tmp_path: Path) -> None:
    tokenizer = json.loads((make_model(tmp_path) / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    assert list(range(256 + len(SPECIAL))) == sorted(vocabulary.values())


@pytest.mark.parametrize("name", ["weighted/model.safetensors", "lora/adapter_model.safetensors"])
def test_the_tensors_of_a_file_lie_end_to_end_and_fill_it(tmp_path: Path, name: str) -> None:
    make_models(tmp_path)
    content = (tmp_path / name).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8:begin]).values()
    ends = [0, *(tensor["data_offsets"][1] for tensor in tensors)]
    assert [tensor["data_offsets"][0] for tensor in tensors] == ends[:-1]
    assert [math.prod(tensor["shape"]) * 2 for tensor in tensors] == [b - a for a, b in itertools.pairwise(ends)]
    assert ends[-1] == len(content) - begin


def test_every_way_goes_by_lanes_and_models_that_there_are(tmp_path: Path) -> None:
    lane = Lane("0.0", tmp_path / "bin" / "python", make_models(tmp_path / "models"))
    for way in WAYS.values():
        assert set(way.lanes) <= set(ROWS)
        words = lane.spelled([*way.command.split(), *way.flags.split()])
        models = [Path(word.rpartition("=")[2]) for word in words if str(tmp_path / "models") in word]
        assert all(model.is_dir() for model in models)


def test_a_server_that_ends_before_it_answers_is_told_with_its_last_words(program: Path, tmp_path: Path) -> None:
    program.write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    server = start(program, tmp_path)
    with pytest.raises(LaneError, match="ended before it answered\nout of luck"):
        server.wait_ready(10)


def test_stopping_a_server_ends_every_process_of_its_group_even_those_that_ignore_sigterm(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text(SURVIVOR)
    server = start(program, tmp_path)
    assert serving.wait_until(lambda: len(group_members(server.pid)) == 2, 10)
    monkeypatch.setattr(serving, "STOP_WITHIN_S", 0.5)
    server.stop()
    assert [] == group_members(server.pid)
