"""What ranks cost by their number: the table of recordings, the one in the docs, and starts of eight fake ranks."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import by_ranks
from bench.predicted import second_family
from bench.rank_costs import FAKE_GPUS, Measured, mib, paid_by, sources, table
from bench.sizes import BY_RANKS, DP_ATTENTION, SIZES, story
from tests.bench.fakes import Machine, machine

MIB = 1 << 20


def step(phase: str, mib_lost: float | None, **attributes: Any) -> dict[str, Any]:
    lost = None if mib_lost is None else -round(mib_lost * MIB)
    return {"phase": phase, "self_delta_bytes": lost, "attributes": attributes}


def rank(size: int, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"device": {"name": "NVIDIA H200"}, "steps": [step("dist.init", 0, world_size=size), *steps]}


def run_of(*ranks: dict[str, Any], name: str = "car", **environment: str) -> dict[str, Any]:
    told = {"environment": environment, "versions": {"sglang": "0.5.14", "nccl": "2.28.9"}}
    return {"run_id": name, "processes": [{"device": None, "steps": []}, *ranks], "provenance": told}


def rows(measured: Measured, *sizes: int) -> dict[str, list[str]]:
    """Return the table's cells by the first of their row."""
    lines = [line.strip("| ").split(" | ") for line in table(measured, sizes)]
    return {first: cells for first, *cells in lines[2:]}


def test_the_docs_have_the_table_that_the_command_in_them_makes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (root / "docs" / "gpu-runs.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    python bench/by_ranks.py (--from .*?)\n\n", text, re.MULTILINE | re.DOTALL)
    _, *paths = shlex.split(command.replace("\\\n", " "))
    assert by_ranks.main(["--from", *(str(root / path) for path in paths)]) == 0
    assert f"\n{capsys.readouterr().out.strip()}\n" in text


def test_a_directory_of_runs_gives_the_table_of_each_of_them(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recordings = root / "tests" / "data" / "h200-x2-sglang-0.5.14-experiments"
    for name in ("tp1", "car"):
        shutil.copytree(recordings / name, tmp_path / name)
    by_ranks.main(["--from", str(recordings / "tp1"), str(recordings / "car")])
    apart = capsys.readouterr().out
    by_ranks.main(["--from", str(tmp_path)])
    assert "1 rank in tp1; 2 ranks in car." in apart
    assert apart == capsys.readouterr().out


def test_ranks_that_paid_alike_give_one_figure_and_others_a_span() -> None:
    measured = Measured()
    nccl = {"communicator": "PyNcclCommunicator", "group": "tp:0"}
    measured.add(run_of(*(rank(2, step("dist.communicator", cost, **nccl)) for cost in (904, 906))))
    measured.add(run_of(*(rank(4, step("dist.communicator", 904, **nccl)) for _ in range(4))))
    assert ["904.00 to 906.00", "904.00", "not measured"] == rows(measured, 2, 4, 8)["PyNcclCommunicator, measured"]


def test_what_is_not_known_is_no_zero_and_what_stayed_disabled_was_not_built() -> None:
    measured = Measured()
    measured.add(
        run_of(
            rank(
                2,
                step("dist.communicator", None, communicator="GroupCoordinator", group="world:0"),
                step("allreduce.buffers", 0, **{"class": "CustomAllReduceV2", "disabled": True}),
            )
        )
    )
    told = rows(measured, 2)
    assert ["unknown"] == told["world group, measured"]
    assert ["not measured"] == told["CustomAllReduceV2 took, measured"]


def test_a_class_without_a_formula_has_its_measured_row() -> None:
    measured = Measured()
    measured.add(run_of(rank(2, step("allreduce.buffers", 7, **{"class": "Another", "disabled": False}))))
    assert ["7.00"] == rows(measured, 2)["Another took, measured"]


def test_a_shared_buffer_of_its_own_is_part_of_what_its_class_took() -> None:
    inner = step("allreduce.buffers", 10, **{"class": "CustomAllreduce", "buffer_kind": "meta"})
    outer = step("allreduce.buffers", 28, **{"class": "CustomAllreduce", "disabled": False})
    paid = paid_by(rank(2, outer, inner))
    assert paid is not None
    assert {"CustomAllreduce": 38 * MIB} == paid.taken


@pytest.mark.parametrize("off", [0, 128])
def test_a_class_that_asked_for_something_else_is_said(off: int) -> None:
    foretold = second_family(4)
    assert foretold is not None
    asked = foretold.asked + off
    told = {"class": "CustomAllReduceV2", "world_size": 4, "buffers": [{"bytes": asked}], "asked_bytes": asked}
    measured = Measured()
    measured.add(run_of(rank(8, step("allreduce.buffers", 28, **told))))  # a group of four among eight ranks
    said = [line for line in sources(measured) if "predicted" in line]
    expected = f"With 4 ranks CustomAllReduceV2 asked for {asked} B, and {foretold.asked} were predicted."
    assert said == ([expected] if off else [])


def test_runs_of_fakes_and_of_cards_make_no_common_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {"real": run_of(rank(2)), "fake": run_of(rank(2), **{FAKE_GPUS: "/x"})}
    monkeypatch.setattr(by_ranks, "timeline_of", lambda place: [runs[place.name]])
    with pytest.raises(SystemExit) as ended:
        by_ranks.main(["--from", str(tmp_path / "real"), str(tmp_path / "fake")])
    assert ended.value.code == 2
    assert "some of these runs are of fake GPUs" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--from", "nowhere"], ["out"], ["out", "--model", "m", "--sizes", "3"]])
def test_bad_use_is_one_clear_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        by_ranks.main(words)
    assert ended.value.code == 2
    assert "by_ranks.py: error: " in capsys.readouterr().err


def test_sizes_that_need_more_gpus_than_there_are_are_named_and_left_out(
    tmp_path: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "out"), "--python", str(stand_in), "--model", "m", "--sizes", "1", "2"]
    assert by_ranks.main(words) == 1  # the stand-in's event makes no run that is ready
    said = capsys.readouterr().out.splitlines()
    assert ["ranks1"] == [line.split()[0] for line in said if "NOT AS EXPECTED" in line]
    assert ["ranks2", "ranks2-v1"] == [line.split()[0] for line in said if "left out: it needs 2 GPUs" in line]


@pytest.mark.parametrize("tp", SIZES[1:])
def test_the_story_fits_the_cards_of_its_ranks(tp: int) -> None:
    names = [one.name for one in story(tp) if one.cards <= tp]
    assert len(story(tp)) == len(names)
    assert ("tenant-gpu5" in names, "dpattn-tp4" in names) == (tp == 8, tp >= 4)


def test_a_start_with_more_ranks_is_given_more_time() -> None:
    for one in (*story(8), *DP_ATTENTION):
        assert one.seconds_with(2) <= one.seconds_with(8)
    at_their_size = [one.seconds_with(2) for one in BY_RANKS if not one.name.endswith("-v1")]
    assert sorted(at_their_size) == at_their_size
    assert at_their_size[0] < at_their_size[-1]


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Path]]:
    """A machine of eight fake cards, and where a call there has left what eight ranks cost."""
    place = tmp_path_factory.mktemp("eight")
    with machine(place, gpus=8) as made:
        done = made.bench("by_ranks.py", place / "out", "--model", "fake", "--sizes", "8")
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        yield made, place / "out"


def test_eight_fake_ranks_take_what_is_predicted_and_are_called_fakes(eight: tuple[Machine, Path]) -> None:
    text = (eight[1] / by_ranks.TABLE).read_text()
    told = {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.strip("| ").split(" | "))}
    foretold = second_family(8)
    assert foretold is not None
    assert foretold.taken is not None
    assert [mib(foretold.taken)] == told["CustomAllReduceV2 took, fake"] == told["CustomAllReduceV2 takes, predicted"]
    assert told["CustomAllreduce took, fake"] == told["CustomAllreduce takes, predicted"]
    assert "FAKE GPUS: no figure of this table was measured on a card." in text
    assert "measured |" not in text.replace("not measured", "")


def test_what_is_recorded_is_not_played_again_and_gives_the_same_table(eight: tuple[Machine, Path]) -> None:
    made, out = eight
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.jsonl")}
    told = (out / by_ranks.TABLE).read_text()
    done = made.bench("by_ranks.py", out, "--model", "fake", "--sizes", "8")
    assert done.returncode == 0
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("*.jsonl")}
    assert told == (out / by_ranks.TABLE).read_text()


def test_the_story_s_own_starts_come_out_as_expected_where_there_are_cards_for_them(tmp_path: Path) -> None:
    played = ("tenant-gpu5", "lowfrac", "dpattn-tp2")
    with machine(tmp_path, gpus=6) as made:
        done = made.bench("failures.py", tmp_path / "out", "--model", "fake", "--tp", "6", "--only", *played)
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [[one, "as", "expected"] for one in played]
    told = (tmp_path / "out" / "tenant-gpu5" / "scenario.json").read_text()
    assert re.search(r'"gpu": 5\b', told)


def test_a_tenant_on_a_card_that_is_none_of_the_server_s_is_said(tmp_path: Path) -> None:
    with machine(tmp_path, gpus=2) as made:
        words = ("--model", "fake", "--tp", "2", "--only", "tenant-gpu5")
        done = made.bench("failures.py", tmp_path / "out", *words)
    assert "GPU 5 is none of the server's, whose last is 1: say --tp 6 or more" in done.stdout
