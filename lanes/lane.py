"""Real SGLang servers on a machine without a GPU. Needs Python 3.11 and nothing else; see docs/lanes.md.

lane.py build [VERSION...]             build the lanes that are missing (all of them), print their interpreters
lane.py model                          make the tiny models, print the first one's directory
lane.py serve VERSION --tp 2 [-- ...]  start the server, ask it once, stop it (or --keep it), print its answer as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from lanes.build import LaneError, build_lane, lanes_root
from lanes.model import make_models
from lanes.rows import ROWS
from lanes.server import Server


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:cut])
    try:
        return _run(arguments, words[cut + 1 :])
    except LaneError as error:
        print(f"lane.py: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace, extra: list[str]) -> int:
    if arguments.command == "build":
        for version in arguments.versions or ROWS:
            print(build_lane(version).python, flush=True)
    elif arguments.command == "model":
        print(make_models(lanes_root()))
    else:
        _serve(arguments, extra)
    return 0


def _serve(arguments: argparse.Namespace, extra: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is ended too
    lane = build_lane(arguments.version)
    logs = arguments.logs or Path(tempfile.mkdtemp(prefix="sglang-lane-"))
    env = dict(os.environ)
    if arguments.pythonpath:
        env["PYTHONPATH"] = arguments.pythonpath
    print(f"starting SGLang {lane.version} at TP {arguments.tp}; its output is in {logs}", file=sys.stderr, flush=True)
    with Server(lane, tp=arguments.tp, port=arguments.port, env=env, extra=extra, logs=logs) as server:
        print(json.dumps(asdict(server.generate(arguments.prompt))), flush=True)
        if arguments.keep:
            print(f"serving at http://127.0.0.1:{server.port} until Ctrl-C", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lane.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the lanes that are missing, print their interpreters")
    build.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(ROWS)} (default: all)")
    commands.add_parser("model", help="make the tiny models, print the first one's directory")
    serve = commands.add_parser("serve", help="start the server, ask it once, stop it; flags of SGLang after --")
    serve.add_argument("version", help=f"one of {', '.join(ROWS)}")
    serve.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel size (default: 1)")
    serve.add_argument("--port", type=int, metavar="P", help="default: a free one")
    serve.add_argument("--keep", action="store_true", help="do not stop it: serve until Ctrl-C")
    serve.add_argument("--prompt", default="Hello", help="default: Hello")
    serve.add_argument("--pythonpath", metavar="DIR", help="PYTHONPATH of the server alone: what injects the probe")
    serve.add_argument(
        "--logs", type=Path, metavar="DIR", help="where the server's output goes (default: a new folder)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
