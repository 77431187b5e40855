"""Recordings are made publishable: what names a machine is replaced, everywhere alike, and nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.scrub import BOOTS, PLACES, LeftOver, Scrubber, main, scrub

BOOT = "dd26ca4a-dd2a-4b8b-9daa-3f1c5d255aee"
CARDS = ("GPU-e11afe21-b50a-0dfa-6d85-b891d5fb40e6", "GPU-404dd017-98bf-f070-ceff-12f79a8cb0a0")


def event(index: int, **more: Any) -> str:
    device = {"index": index, "uuid": CARDS[index], "name": "NVIDIA H200"}
    told = {"host": "vm", "boot_id": BOOT, "pid": 720, "device": device, "mono_ns": 70142909488, **more}
    return json.dumps(told, separators=(",", ":"))


def recording(folder: Path, *lines: str, log: str = "[TP0] ready\n") -> Path:
    run = folder / "car" / "events" / "car"
    run.mkdir(parents=True)
    (run / "vm.720.5618.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "car" / "car.log").write_text(log)
    (folder / "car" / "scenario.json").write_text(json.dumps({"name": "car", "command": ["/its/site/python"]}))
    return folder


def test_hosts_boots_and_cards_get_stand_ins_and_numbers_stay(tmp_path: Path) -> None:
    scrub(recording(tmp_path / "source", event(1), event(0)), tmp_path / "target", {"/its/site": "/opt/sglang"})
    (file,) = (tmp_path / "target" / "car").iterdir()
    assert file.name == "gpu-host.720.5618.jsonl"
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["device"]["uuid"] for one in told] == [
        "GPU-11111111-1111-4111-8111-111111111111",
        "GPU-00000000-0000-4000-8000-000000000000",
    ]
    assert {(one["host"], one["boot_id"], one["pid"], one["mono_ns"]) for one in told} == {
        ("gpu-host", BOOTS[0], 720, 70142909488)
    }
    scenario = json.loads((tmp_path / "target" / "car.json").read_text())
    assert scenario["command"] == ["/opt/sglang/python"]


def test_a_host_is_replaced_where_it_is_a_host_and_nowhere_else(tmp_path: Path) -> None:
    line = event(0, attributes={"sharing": "vm", "kind": "vmm", "file": "/runs/vm.720.5618.jsonl"})
    scrub(recording(tmp_path / "source", line), tmp_path / "target", {"/its/site": "/opt"})
    (file,) = (tmp_path / "target" / "car").iterdir()
    attributes = json.loads(file.read_text())["attributes"]
    assert attributes == {"sharing": "vm", "kind": "vmm", "file": "/runs/gpu-host.720.5618.jsonl"}


def test_two_boots_stay_two(tmp_path: Path) -> None:
    other = event(0).replace(BOOT, BOOT[::-1].replace("-", "0")[:8] + BOOT[8:])
    scrub(recording(tmp_path / "source", event(0), other), tmp_path / "target", {"/its/site": "/opt"})
    (file,) = (tmp_path / "target" / "car").iterdir()
    assert [json.loads(line)["boot_id"] for line in file.read_text().splitlines()] == list(BOOTS[:2])


def test_a_progress_bars_returns_become_lines_and_addresses_of_a_network_are_replaced() -> None:
    text = "0%|\r50%|\r\ntcp://10.3.1.9:5000 tcp://127.0.0.1:5000 version 1.2.3.4"
    assert Scrubber([text], {}).text(text).splitlines() == [
        "0%|",
        "50%|",
        "tcp://192.0.2.1:5000 tcp://127.0.0.1:5000 version 1.2.3.4",
    ]


def test_the_longest_place_wins() -> None:
    places = {"/a": "/short", "/a/b": "/long"}
    assert Scrubber([], places).text("/a/b/c /a/c") == "/long/c /short/c"


def test_a_place_that_nobody_replaces_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = recording(tmp_path / "source", event(0), log="File /work/checkout/x.py\n")
    assert main([str(source), str(tmp_path / "target")]) == 2
    assert "'/work/checkout' is left; say --place /work/checkout=SOMEWHERE" in capsys.readouterr().err
    assert not (tmp_path / "target").exists()
    given_place = ["--place", "/work/checkout=/opt/sglang-probe"]
    assert main([str(source), str(tmp_path / "target"), *given_place]) == 0
    assert (tmp_path / "target" / "car.log").read_text() == "File /opt/sglang-probe/x.py\n"


def test_a_folder_that_holds_no_scenario_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LeftOver, match="holds no scenario"):
        scrub(tmp_path, tmp_path / "target", PLACES)


@given(st.text(alphabet=st.characters(exclude_characters="\r", codec="utf-8")))
def test_a_text_that_names_no_machine_stays_as_it_is(text: str) -> None:
    if not any(place in text for place in PLACES) and "tcp://" not in text and "@" not in text and "-" not in text:
        assert Scrubber([text], PLACES).text(text) == text
