"""A user's own script around `sglang.Engine`; its last argument is the model's directory.

The guard is needed: SGLang starts its processes with spawn, and each of them reads this file again.
"""

from __future__ import annotations

import sys

import sglang


def main(model: str) -> None:
    """Ask the model once."""
    engine = sglang.Engine(
        model_path=model,
        load_format="dummy",
        device="cpu",
        attention_backend="torch_native",
        grammar_backend="none",
        mem_fraction_static=0.1,
        disable_overlap_schedule=True,
    )
    print(engine.generate("Hello", {"max_new_tokens": 8, "temperature": 0})["text"])
    engine.shutdown()


if __name__ == "__main__":
    main(sys.argv[-1])
