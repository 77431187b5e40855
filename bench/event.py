"""What one event costs, readings not included, beside the least that could be done: serialise the dict and write it.

Bar: 15 us an event. Run it in an environment with orjson for the figure that SGLang's processes see.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_probe.agent.identity import Identity
from sglang_probe.agent.pipeline import Pipeline
from sglang_probe.agent.runs import Run
from sglang_probe.agent.writer import Writer
from sglang_probe.events.envelope import DELTA_KEYS, READING_KEYS

ROUNDS, EVENTS = 30, 500


def median_us(action: Callable[[], Any]) -> float:
    """Return the median over rounds of the mean time of an action, in microseconds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(EVENTS):
            action()
        rounds.append((time.perf_counter_ns() - began) / EVENTS / 1000)
    return statistics.median(rounds)


def main() -> int:
    """Measure and print."""
    fields: dict[str, Any] = {
        "role": "weights.load",
        "kind": "end",
        "message": "weights.load ended, cost 4.250 GiB, 134.030 GiB free",
        "worker": "target",
        "span": {"id": "b", "parent": "1"},
        "before": dict.fromkeys(READING_KEYS, 1 << 37),
        "after": dict.fromkeys(READING_KEYS, 1 << 37),
        "delta": dict.fromkeys(DELTA_KEYS, 1 << 30),
        "duration_ns": 10**9,
        "outcome": "ok",
        "attributes": {"model_class": "LlamaForCausalLM", "dtype": "bfloat16", "quantization": None},
    }
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(Writer(Run("bench", True, directory)), Identity("bench").fields)
        event = "sglang.memory.weights.load.end"
        peer = os.open(Path(directory) / "peer", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for serialiser in ("json", "orjson"):
            if serialiser == "orjson":
                try:
                    __import__("orjson")
                except ImportError:
                    print("orjson is not installed here")
                    break
            else:
                sys.modules.pop("orjson", None)
            dumps = sys.modules["orjson"].dumps if serialiser == "orjson" else lambda value: json.dumps(value).encode()
            ours = median_us(lambda: pipeline.emit("info", event, **fields))
            least = median_us(lambda: os.write(peer, dumps(fields) + b"\n"))  # noqa: B023  # called at once
            print(f"{serialiser:7} one event {ours:6.1f} us, serialise and write alone {least:6.1f} us, "
                  f"ratio {ours / least:.2f}")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
