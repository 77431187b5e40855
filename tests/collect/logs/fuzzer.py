"""A coverage-guided fuzzer for the reader of logs: `python -m tests.collect.logs.fuzzer CORPUS [-max_total_time=60]`.

Atheris instruments the rooms that read and build, and keeps every input that reaches new code.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["sglang_probe.collect", "sglang_probe.timeline", "sglang_probe.explain"]):
    from tests.collect.logs.invented import invented_in


def one_input(data: bytes) -> None:
    """Read one input; a number that is not in it is a crash."""
    invented = invented_in(data)
    if invented:
        raise AssertionError(f"not in the text: {invented}")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
