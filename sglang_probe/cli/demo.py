"""Replay an 8-GPU server that refuses to start, with fake GPUs and a fake SGLang, and say why.

    sglang-probe demo                              fails: "Not enough memory", at --mem-fraction-static 0.55
    sglang-probe demo --show timeline              the same, phase by phase
    sglang-probe demo --mem-fraction-static 0.80   starts
    sglang-probe demo --disable-custom-all-reduce  fails all the same: the all-reduce buffers were not it
    sglang-probe demo --release 0.5.14 --keep DIR  another SGLang; DIR keeps the events and the server's log

It takes a few seconds and needs no GPU, no torch and no SGLang. The probe is injected as into a real server.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sglang_probe.cli import explain, timeline
from sglang_probe.cli.doorbell import doorbell_directory
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.given import fraction
from sglang_probe.cli.output import tell
from sglang_probe.cli.paths import absolute, is_directory, is_there
from sglang_probe.events.variables import DIRECTORY
from sglang_probe.testing.fakesite import RELEASES
from sglang_probe.testing.server import FakeServer, Run
from sglang_probe.testing.story import DEFAULT_RELEASE, MEM_FRACTION_STATIC, arguments, story

TIMEOUT_S = 120
SHOWN: Final = {"explain": explain, "timeline": timeline}
"""Commands that show a run."""
RUNS = "runs"
"""Directory of events within the demo's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take which story to tell."""
    parser.add_argument("--release", choices=RELEASES, default=DEFAULT_RELEASE, help="of SGLang (default: %(default)s)")
    parser.add_argument(
        "--mem-fraction-static", type=fraction, default=MEM_FRACTION_STATIC, metavar="F", help="default: %(default)s"
    )
    parser.add_argument("--disable-custom-all-reduce", action="store_true", help="as SGLang's flag of that name")
    parser.add_argument("--keep", metavar="DIR", help="keep everything in DIR, a new or empty directory")
    parser.add_argument("--show", choices=tuple(SHOWN), default="explain", help="which report (default: %(default)s)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the report")


def run(args: argparse.Namespace) -> int:
    """Replay the story, then show it as `explain` or `timeline` does; that it fails is no error of this command."""
    with _directory(args.keep) as directory:
        _replay(args, directory)
        if args.keep is None:
            tell("Its events go when this ends; --keep DIR keeps them, and the server's log.\n\n")
        _show(args.show, directory / RUNS, args.format)
    return 0


def _show(command: str, runs: Path, form: str) -> None:
    """Run a command as its own parser understands its words, so that it has all its defaults."""
    parser = argparse.ArgumentParser()
    SHOWN[command].add_arguments(parser)
    SHOWN[command].run(parser.parse_args([str(runs), "--format", form]))


def _replay(args: argparse.Namespace, directory: Path) -> Run:
    server = FakeServer(
        directory,
        story(args.release),
        release=args.release,
        arguments=arguments(args.mem_fraction_static, disable_custom_all_reduce=args.disable_custom_all_reduce),
        pythonpath=[doorbell_directory()],
        environment={DIRECTORY: str(directory / RUNS)},
    )
    for name in [name for name in server.environment if _is_the_callers(name)]:
        del server.environment[name]
    try:
        ended = server.run(TIMEOUT_S)
    except TimeoutError as error:
        raise BadUse(f"the fake server did not end within {TIMEOUT_S} s; is the machine busy? try again") from error
    if not (directory / RUNS).is_dir():
        last = ended.log.strip().splitlines()[-1:] or ["nothing"]
        raise BadUse(f"the probe wrote no events; --keep DIR keeps the server's log, which ends: {last[0]}")
    how = "failed to start" if ended.returncode else "started, and was ended"
    tell(f"The fake server {how}; SGLang's own last words:\n{_last_words(ended.log)}\n\n")
    return ended


def _is_the_callers(name: str) -> bool:
    """Tell the caller's own settings of the probe, or of SGLang and CUDA, from what the demo sets."""
    ours = {DIRECTORY, "SGLANG_PROBE_FAKE_GPUS"}
    return name not in ours and name.startswith(("SGLANG_", "CUDA_VISIBLE_DEVICES"))


def _last_words(log: str) -> str:
    """Return the line that says why it failed, or that it is ready."""
    telling = [line for line in log.splitlines() if "Error: " in line or "fired up and ready" in line]
    return "\n".join(f"    {line}" for line in dict.fromkeys(telling))


@contextmanager
def _directory(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="sglang-probe-demo-") as directory:
            yield Path(directory)
        return
    path = absolute("--keep", keep)
    try:
        if is_there("--keep", keep) and (not is_directory("--keep", keep) or any(path.iterdir())):
            raise BadUse(f"--keep {keep!r} is there and not an empty directory; name a new one")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadUse(f"--keep {keep!r} cannot be made ({error.strerror}); name another") from error
    yield path
