"""Print which of SGLang's functions the probe hooks, role by role: on the SGLang that is installed here, or on another.

    sglang-probe targets
    sglang-probe targets --sglang 0.5.23                      a release: its wheel is downloaded where it is missing
    sglang-probe targets --sglang path/to/sglang              a wheel, a checkout, an unpacked wheel or sdist
    sglang-probe targets --sglang /opt/venv                   a Python environment, or its bin/python, which is not run
    sglang-probe targets --sglang 0.5.23 --against installed  only what differs: an upgrade, before it is rolled out

SGLang's files are read; nothing of it is imported. Wheels are kept in SGLANG_PROBE_WHEELS, else in sglang-probe/wheels
below XDG_CACHE_HOME or ~/.cache. A number is a version: write ./0.5.23 for a directory of that name.

applied        the function is there, and its body is one that SGLang has released (a KV budget: one that we have read)
unknown body   it is there and is hooked, but its body is none of those; it may do something else than we think
nested         it is there, and another home that stands above it is hooked instead
absent         this SGLang has no such function
failed         it cannot be hooked or its file cannot be read, for the reason given

Exit codes: 0 every memory role has a home, 1 one has none, 2 bad use or no SGLang to read.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from sglang_probe.catalogue.bodies import known_in
from sglang_probe.catalogue.errors import SourceError
from sglang_probe.catalogue.resolve import Row, homeless, homes, resolve
from sglang_probe.catalogue.sources import INSTALLED, Source, open_source
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.output import emit, page_width, tell, wants_colour
from sglang_probe.cli.targets_text import changes_text, matrix_text
from sglang_probe.events.names import ROLES
from sglang_probe.report.plain import printable, printable_json

SCHEMA = "targets/1.0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take which SGLang, and how to show it."""
    parser.add_argument(
        "--sglang",
        metavar="VERSION|PATH",
        default=INSTALLED,
        help="default: the one installed here; see above for paths",
    )
    parser.add_argument(
        "--against", metavar="VERSION|PATH", help="show what differs from this one: named as for --sglang, or installed"
    )
    parser.add_argument("--all", action="store_true", help="print every row, absent ones too, with its fingerprint")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for a person (text) or a program")


def run(args: argparse.Namespace) -> int:
    """Print the matrix, or what differs."""
    source = _open("--sglang", args.sglang)
    base = _open("--against", args.against) if args.against is not None else None
    rows = resolve(source)
    before = resolve(base) if base else []
    if args.format == "json":
        emit(printable_json(json.dumps(document(source, rows, base, before), indent=2)) + "\n")
    elif base:
        emit(changes_text(source, rows, base, before, page_width(), colour=wants_colour()))
    else:
        emit(matrix_text(source, rows, page_width(), everything=args.all, colour=wants_colour()))
    return 1 if homeless(rows) else 0


def document(source: Source, rows: list[Row], base: Source | None = None, before: list[Row] | None = None) -> Any:
    """Return the matrix as JSON has it; `against` and `changes` are there where there is a base to compare with."""
    found: dict[str, Any] = {"schema": SCHEMA, "sglang": _sglang(source)}
    found["roles"] = {role: _role(rows, role) for role in ROLES}
    found["targets"] = [_row(row) for row in rows]
    if base:
        found["against"] = _sglang(base)
        found["changes"] = [
            {"role": new.target.role, "target": new.target.name, "before": _state(old), "after": _state(new)}
            for old, new in zip(before or [], rows, strict=True)
            if _state(old) != _state(new)
        ]
    return found


def _open(option: str, named: str) -> Source:
    try:
        return open_source(named, lambda line: tell(f"{printable(line)}\n"), option)
    except SourceError as error:
        raise BadUse(f"{option}: {error}" if option == "--against" else str(error)) from error


def _sglang(source: Source) -> dict[str, str | None]:
    return {"version": source.version, "path": source.path}


def _role(rows: list[Row], role: Any) -> dict[str, Any]:
    found = homes(rows, role)
    state = "no home" if not found else "applied" if any(row.state == "applied" for row in found) else "unknown body"
    return {"state": state, "homes": [row.target.name for row in found]}


def _row(row: Row) -> dict[str, Any]:
    known = known_in(row.target, row.fingerprint)
    state = _state(row)
    return {
        "role": row.target.role,
        "target": row.target.name,
        "state": state["state"],
        "reason": row.reason,
        "fingerprint": state["fingerprint"],
        "known_in": known,
    }


def _state(row: Row) -> dict[str, str | None]:
    return {"state": row.state, "fingerprint": row.fingerprint}
