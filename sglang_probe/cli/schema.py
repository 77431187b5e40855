"""Print the JSON Schema of the events, one of which is on every line of a probe file.

sglang-probe schema > event.schema.json
"""

from __future__ import annotations

import argparse
import json

from sglang_probe.cli.output import emit
from sglang_probe.events.jsonschema import event_schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    emit(json.dumps(event_schema(), indent=2) + "\n")
    return 0
