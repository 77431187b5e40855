"""Does the probe know every release of SGLang? Reads a wheel of each, and compares with what is written down.

compat.py          compare; wheels that are missing are downloaded
compat.py --listed only the releases that are written down: what a change of ours may have broken, whatever is new
compat.py --write  write docs/compatibility.md and the known bodies as found, then compare

Exit codes: 0 all is as written, 1 something moved, a memory role has no home or nobody has read a release's KV budget,
2 the index or a wheel cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from compat.differences import differences, page_difference, problems
from compat.matrix import PageError, bodies_of, bodies_text, matrix_text, replaced
from compat.releases import ROOT, Release, read_all, versions
from sglang_probe.catalogue.bodies import FILE, Bodies
from sglang_probe.catalogue.errors import SourceError

PAGE = ROOT / "docs" / "compatibility.md"
BODIES = ROOT / "sglang_probe" / "catalogue" / FILE


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="compat.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--listed", action="store_true", help="leave out what the index has and the page has not")
    which.add_argument("--write", action="store_true", help="write what was found")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        named = _written()["releases"] if arguments.listed else versions()
        releases = read_all(named, lambda line: print(line, file=sys.stderr, flush=True))
        seconds = time.monotonic() - started
        print(f"{len(releases)} releases, {releases[0].version} to {releases[-1].version}, read in {seconds:.0f} s")
        if arguments.write:
            _write(releases)
        return _verdict(releases)
    except (SourceError, PageError) as error:
        print(f"compat.py: {error}", file=sys.stderr)
        return 2


def _verdict(releases: Sequence[Release]) -> int:
    written = _written()
    page = PAGE.read_text(encoding="utf-8")
    moved = list(differences(written, releases))
    moved = moved or page_difference(PAGE.name, page, replaced(page, matrix_text(releases)))
    wrong = list(problems(releases))
    if not moved and not wrong:
        print(f"all as docs/{PAGE.name} says; every memory role has a home in each, and every KV budget is a known one")
        return 0
    print("\n".join([*moved, *wrong]))
    if moved:
        print(f"read what moved, mend the table where it must follow, then: {sys.executable} compat/compat.py --write")
    return 1


def _written() -> Bodies:
    known: Bodies = json.loads(BODIES.read_text(encoding="utf-8"))
    return known


def _write(releases: Sequence[Release]) -> None:
    page = replaced(PAGE.read_text(encoding="utf-8"), matrix_text(releases))
    PAGE.write_text(page, encoding="utf-8")
    BODIES.write_text(bodies_text(bodies_of(releases)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
