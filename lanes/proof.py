"""Which lanes a run of the tests owes: all of them until one run of all has passed on this machine for this very code.

proof.py owed            print the releases to run, then what a green run of them proves (an empty line: nothing new)
proof.py proved PROOF    note that all lanes have passed for that code

The probe inside SGLang, its table, its contract, the lanes and their tests are what a proof is of; the note lies beside
the lanes. Whatever else changes, the lane of `ALWAYS` is run.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from lanes.build import lanes_root
from lanes.rows import ROWS

ALWAYS: Final = "0.5.14"
ROOT: Final = Path(__file__).resolve().parents[1]
PROVEN: Final = (
    "sglang_probe/agent",
    "sglang_probe/catalogue",
    "sglang_probe/events",
    "sitecustomize",
    "lanes",
    "tests/lanes",
)
NOTE: Final = ".proved"


def main(arguments: Sequence[str]) -> int:
    """Run one of the two commands; return its exit code."""
    match arguments:
        case ["owed"]:
            proof = proof_of(ROOT)
            known = _note().exists() and _note().read_text() == proof
            print(ALWAYS if known else " ".join(ROWS))
            print("" if known else proof)
        case ["proved", proof]:
            _note().parent.mkdir(parents=True, exist_ok=True)
            _note().write_text(proof)
        case _:
            print(f"proof.py: not understood: {' '.join(arguments) or 'nothing'}\n\n{__doc__}", file=sys.stderr)
            return 2
    return 0


def proof_of(root: Path) -> str:
    """Hash every file of the proven folders below `root`, with its name."""
    digest = hashlib.sha256()
    for path in _files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder in PROVEN:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _note() -> Path:
    return lanes_root() / NOTE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
