"""`sglang-probe report` and `diff -o` against a full disk, a signal, odd names, settings of other programs."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.cli import main as main_module
from sglang_probe.report.formats import FORMATS, Format
from tests.cli.conftest import ROOT, command, environment

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
WriteRun = Callable[..., Path]
CAR = Path(__file__).parents[1] / "data" / "h200-x2-sglang-0.5.14" / "car"


@pytest.fixture
def night(write_run: WriteRun, tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "night-1")


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("kilobytes", [1, 500, 1500, 2500])
def test_a_database_that_the_disk_does_not_hold_leaves_the_former_one(tmp_path: Path, kilobytes: int) -> None:
    (tmp_path / "x.duckdb").write_text("yesterday's")
    limited = ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", *command("report", CAR, "-o", "x.duckdb")]

    done = subprocess.run(limited, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)

    assert "File too large; raise the limit" in one_line(done)
    assert [one.name for one in tmp_path.iterdir()] == ["x.duckdb"]
    assert (tmp_path / "x.duckdb").read_text() == "yesterday's"


SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from sglang_probe.cli.main import main

write = Path.write_text

def half(path, text, **more):
    write(path, text[: len(text) // 2], **more)
    print("half", flush=True)
    time.sleep(60)

Path.write_text = half
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("words", [("report", CAR), ("diff", CAR, CAR)], ids=["report", "diff"])
def test_a_signal_leaves_nothing_of_a_file_that_is_not_whole(
    tmp_path: Path, words: tuple[str | Path, ...], number: signal.Signals
) -> None:
    (tmp_path / "x.html").write_text("yesterday's")
    slow = [sys.executable, "-c", SLOW.format(root=str(ROOT)), *map(str, words), "-o", "x.html"]

    pipe = subprocess.PIPE
    with subprocess.Popen(slow, cwd=tmp_path, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "half\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (128 + number, "")
    assert [one.name for one in tmp_path.iterdir()] == ["x.html"]
    assert (tmp_path / "x.html").read_text() == "yesterday's"


INTERRUPTED = """
import signal, sys
sys.path.insert(0, {root!r})
from sglang_probe.cli import main as module

def work(words):
    try:
        signal.raise_signal(signal.{name})
    except (SystemExit, KeyboardInterrupt):
        raise RuntimeError("Query interrupted") from None
    return 7

signal.signal(signal.{name}, signal.{before})
module._run = work
code = module.main([])
assert signal.getsignal(signal.{name}) == signal.{before}
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("name", "before", "code"),
    [
        ("SIGTERM", "SIG_DFL", 128 + signal.SIGTERM),
        ("SIGHUP", "SIG_DFL", 128 + signal.SIGHUP),
        ("SIGINT", "default_int_handler", 128 + signal.SIGINT),
        ("SIGHUP", "SIG_IGN", 7),
    ],
    ids=["SIGTERM", "SIGHUP", "SIGINT", "nohup"],
)
def test_a_library_that_makes_an_error_of_its_own_of_a_signal_is_no_traceback(
    name: str, before: str, code: int
) -> None:
    """As DuckDB does; and what is ignored stays ignored."""
    words = [sys.executable, "-c", INTERRUPTED.format(root=str(ROOT), name=name, before=before)]

    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (code, "")


def test_memory_that_is_used_up_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(command: object) -> object:
        raise MemoryError

    monkeypatch.setattr(main_module, "_load", load)

    assert main_module.main(["report", "-o", "x.json"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "no memory is left" in said.err


@pytest.mark.parametrize(
    "path",
    [
        *(f"{'漢' * 60}{one.ending}" for one in FORMATS),
        *(one.ending for one in FORMATS),
        f"{'x' * 248}.duckdb",
        "a?b.duckdb",
        "a'b;c.duckdb",
    ],
)
def test_every_name_that_the_system_takes_is_written(probe: Probe, night: Path, tmp_path: Path, path: str) -> None:
    done = probe("report", night, "-o", path)

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([path, "runs"])
    if path.endswith((".png", ".svg")):
        assert (b"PNG" in (tmp_path / path).read_bytes()[:4]) == path.endswith(".png")


def test_a_slash_that_a_shell_adds_to_a_directory_of_tables_is_taken(
    probe: Probe, night: Path, tmp_path: Path
) -> None:
    assert [probe("report", night, "-o", "out.parquet/").returncode for _ in range(2)] == [0, 0]
    assert "is a directory" in one_line(probe("report", night, "-o", "out.json/"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.parquet", "runs"]


def test_a_directory_whose_name_duckdb_does_not_take_is_one_line(probe: Probe, night: Path, tmp_path: Path) -> None:
    (tmp_path / "a?b").mkdir()

    assert "no path with a ?" in one_line(probe("report", night, "-o", "a?b/x.duckdb"))
    assert list((tmp_path / "a?b").iterdir()) == []


@pytest.mark.parametrize("file", ["mine.parquet", "steps.parquet"])
def test_a_table_of_the_users_among_ours_is_not_removed(
    probe: Probe, night: Path, tmp_path: Path, file: str
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    assert probe("report", night, "-o", "out.parquet").returncode == 0
    pq.write_table(pa.table({"mine": [1]}), tmp_path / "out.parquet" / file)
    before = (tmp_path / "out.parquet" / file).read_bytes()

    assert "holds more than tables" in one_line(probe("report", night, "-o", "out.parquet"))
    assert (tmp_path / "out.parquet" / file).read_bytes() == before


def test_a_data_set_with_the_names_of_our_tables_is_not_replaced(probe: Probe, night: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "out.parquet" / "about.parquet"
    theirs.parent.mkdir()
    theirs.write_text("theirs")

    assert "holds more than tables" in one_line(probe("report", night, "-o", "out.parquet"))
    assert theirs.read_text() == "theirs"


def test_tables_are_replaced_from_inside_their_directory(probe: Probe, night: Path, tmp_path: Path) -> None:
    assert probe("report", night, "-o", "out.parquet").returncode == 0
    before = sorted(one.name for one in (tmp_path / "out.parquet").iterdir())

    done = probe("report", night, "-o", "../out.parquet", cwd=tmp_path / "out.parquet")

    assert (done.returncode, done.stderr) == (0, "")
    assert before == sorted(one.name for one in (tmp_path / "out.parquet").iterdir())


@pytest.mark.parametrize(
    ("settings", "backend"),
    [
        (b"savefig.bbox: tight\nfont.size: 30\nsavefig.dpi: 10\n", ""),
        (b"\xff\xfe\x00", ""),
        (b"", "nonsense"),
    ],
    ids=["settings", "no settings", "backend"],
)
@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_a_picture_does_not_depend_on_settings_of_the_users(
    probe: Probe, night: Path, tmp_path: Path, settings: bytes, backend: str, ending: str
) -> None:
    assert probe("report", night, "-o", f"usual{ending}").returncode == 0
    (tmp_path / "matplotlibrc").write_bytes(settings)
    (tmp_path / "home" / "matplotlib").mkdir(parents=True)
    shutil.copy(tmp_path / "matplotlibrc", tmp_path / "home" / "matplotlib")
    env = {"MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "XDG_CONFIG_HOME": str(tmp_path / "home")}

    done = probe("report", night, "-o", f"set{ending}", env={**env, **({"MPLBACKEND": backend} if backend else {})})

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / f"set{ending}").read_bytes() == (tmp_path / f"usual{ending}").read_bytes()


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.ending)
def test_a_report_is_for_its_owner_and_metrics_are_for_the_one_who_collects_them(
    probe: Probe, night: Path, tmp_path: Path, one: Format
) -> None:
    former = os.umask(0o022)
    try:
        assert probe("report", night, "-o", f"x{one.ending}").returncode == 0
    finally:
        os.umask(former)

    path = tmp_path / f"x{one.ending}"
    expected = 0o644 if one.ending == ".prom" else 0o700 if path.is_dir() else 0o600
    assert stat.S_IMODE(path.stat().st_mode) == expected
    assert {stat.S_IMODE(inside.stat().st_mode) for inside in path.glob("*")} <= {0o600}
