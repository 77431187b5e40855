"""What the doorbell costs a Python process that never imports SGLang.

Bare and probed starts alternate in one run, so that what the machine does meanwhile hits both; the difference is taken
pair by pair. Two other tools that inject themselves by PYTHONPATH stand beside it, installed from the package index in
an environment of their own, with nobody to send to. Their commands start Python twice, so what each process below
them pays (`PYTHONPATH`) is a row too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BAR_MS: Final = 1.5
PEERS: Final = ("opentelemetry-distro", "opentelemetry-instrumentation", "ddtrace")
NO_EXPORT: Final = {
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
}
PROGRAM: Final = ("-c", "pass")
Command = tuple[list[str], Mapping[str, str]]


@dataclass
class Case:
    """One way to start Python; times in milliseconds, and differences from the bare start just beside each."""

    name: str
    command: Command
    every: int = 1
    """Measured in every n-th round: the slow ones less often."""
    times: list[float] = field(default_factory=list)
    extra: list[float] = field(default_factory=list)

    def row(self, bare_ms: float) -> str:
        """Return the table's row."""
        median = statistics.median(self.times)
        added, p90 = statistics.median(self.extra), statistics.quantiles(self.extra, n=10)[-1]
        return f"{self.name:34}{len(self.times):7}{median:11.2f}{added:11.2f}{p90:11.2f}{median / bare_ms:9.2f}x"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table; return 1 where the doorbell is over its bar."""
    arguments = _parser().parse_args(argv)
    python = sys.executable if arguments.no_peers else _peer_python()
    bare, probe, *others = cases = _cases(python, peers=not arguments.no_peers)
    for case in cases:
        _start_ms(case.command)  # bytecode is written and pages are read before anything is measured
    for number in range(arguments.rounds):
        _round(bare, [case for case in (probe, *others) if number % case.every == 0], bare_first=number % 2 == 0)
    bare_ms = statistics.median(bare.times)
    print(
        f"Python {sys.version.split()[0]}, {os.cpu_count()} cores; milliseconds, `extra` pair by pair over a bare start"
    )
    print(f"{'':34}{'starts':>7}{'median':>11}{'extra':>11}{'extra p90':>11}{'ratio':>10}")
    print(f"{bare.name:34}{len(bare.times):7}{bare_ms:11.2f}")
    for case in (probe, *others):
        print(case.row(bare_ms))
    added = statistics.median(probe.extra)
    print(f"bar: {BAR_MS} ms over bare; the doorbell adds {added:.2f} ms: {'held' if added <= BAR_MS else 'NOT HELD'}")
    return 0 if added <= BAR_MS else 1


def _round(bare: Case, cases: Sequence[Case], *, bare_first: bool) -> None:
    """Measure each case beside a bare start of its own; who goes first changes with the round."""
    for case in cases:
        if bare_first:
            before, spent = _start_ms(bare.command), _start_ms(case.command)
        else:
            spent, before = _start_ms(case.command), _start_ms(bare.command)
        bare.times.append(before)
        case.times.append(spent)
        case.extra.append(spent - before)


def _start_ms(command: Command) -> float:
    words, env = command
    began = time.perf_counter_ns()
    pid = os.posix_spawn(words[0], words, env)
    _, status = os.waitpid(pid, 0)
    spent = time.perf_counter_ns() - began
    if status:
        raise SystemExit(f"doorbell.py: `{' '.join(words)}` ended with status {status}")
    return spent / 1e6


def _cases(python: str, *, peers: bool) -> list[Case]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SGLANG_PROBE"))}
    env = kept | NO_EXPORT
    start = [python, *PROGRAM]
    run = [
        python,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sglang_probe.cli.main import main; main()",
    ]
    cases = [
        Case("bare python", (start, env)),
        Case("SGLang Probe, PYTHONPATH", (start, {**env, "PYTHONPATH": str(ROOT)})),
        Case("sglang-probe run --", ([*run, "run", "--", *start], env), every=5),
    ]
    if peers:
        packages = Path(python).parents[1] / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        for name, folder in (
            ("opentelemetry-instrument", packages / "opentelemetry/instrumentation/auto_instrumentation"),
            ("ddtrace-run", packages / "ddtrace/bootstrap"),
        ):
            command = [str(Path(python).with_name(name)), *start]
            cases.append(Case(f"{name}, PYTHONPATH", (start, {**env, "PYTHONPATH": str(folder)}), every=10))
            cases.append(Case(name, (command, env), every=10))
    return cases


def _peer_python() -> str:
    """Return the interpreter of the environment that holds the other tools, made where it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    environment = cache / "sglang-probe" / f"bench-{sys.implementation.cache_tag}"
    python, made = environment / "bin" / "python", environment / ".made"
    if not made.exists():
        print(f"installing {', '.join(PEERS)} into {environment}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *PEERS]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"doorbell.py: pip could not install them (--no-peers does without):\n{done.stderr}")
        made.touch()
    return str(python)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, metavar="N", help="alternations (default: 200)")
    parser.add_argument("--no-peers", action="store_true", help="measure only the doorbell; needs no network")
    return parser


if __name__ == "__main__":
    sys.exit(main())
