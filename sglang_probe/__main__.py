"""`python -m sglang_probe` is `sglang-probe`."""

from __future__ import annotations

from sglang_probe.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
