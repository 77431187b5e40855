"""How large the HTML report of many ranks is, how long it takes to write, and how long Chromium takes to open it.

    python bench/page.py [--ranks 2 64 512] [--repeats 3] [--chromium /usr/bin/chromium]

`open` is from the start of the navigation until the first chart is drawn, each time in a new window without a network.
Bars: 512 ranks under 10 MB, written in 5 s, open in 3 s.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.many_ranks import write_ranks
from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.report.html.write import write
from sglang_probe.report.material import Material
from sglang_probe.timeline import build

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DRAWN = "performance.getEntriesByName('chart').length ? performance.getEntriesByName('chart')[0].startTime : 0"
PATIENCE_MS = 60_000


def main() -> None:
    """Write a report of each size, open it, print what both took."""
    arguments = _arguments()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        print("ranks    size MB  write s   open s")
        for ranks in arguments.ranks:
            page = Path(directory, f"{ranks}.html")
            took = _write(Path(directory, str(ranks)), ranks, page)
            opened = median(_open(browser, page) for _ in range(arguments.repeats))
            print(f"{ranks:5}  {page.stat().st_size / 1e6:9.2f}  {took:7.2f}  {opened:7.2f}")
        browser.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 64, 512], help="how many (default 2 64 512)")
    parser.add_argument("--repeats", type=int, default=3, help="windows; the median is printed (default 3)")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the browser (default: chromium)")
    return parser.parse_args()


def _write(directory: Path, ranks: int, page: Path) -> float:
    write_ranks(directory, ranks, odd=(1,))
    collected = read([str(directory)])
    timeline = build(collected)
    material = Material(timeline, explain(timeline), collected)
    began = time.perf_counter()
    write(material, page)
    return time.perf_counter() - began


def _open(browser: Browser, path: Path) -> float:
    """Return the seconds until the first chart is drawn, by the page's own clock."""
    page = browser.new_context(offline=True).new_page()
    page.goto(path.as_uri())
    for _ in range(PATIENCE_MS // 10):
        drawn = float(page.evaluate(DRAWN))
        if drawn:
            page.context.close()
            return drawn / 1000
        page.wait_for_timeout(10)
    raise SystemExit(f"{path} drew no chart in {PATIENCE_MS} ms")


if __name__ == "__main__":
    main()
