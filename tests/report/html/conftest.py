"""Pages of recorded runs, opened in a real Chromium without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sglang_probe.report.html.page import page_html
from tests.report.html.opened import Opened
from tests.report.tools import program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMED = os.environ.get("SGLANG_PROBE_CHROMIUM")
"""Read as this file is loaded: tests run without variables of the probe."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, the system's own."""
    found = NAMED or next(filter(None, map(shutil.which, NAMES)), None) or program("chromium", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a document (or a file) in a window of its own, without a network; nothing may be said on its console."""
    with ExitStack() as closing:

        def opened(document: dict[str, Any] | Path, **more: Any) -> Opened:
            path = document if isinstance(document, Path) else tmp_path / "page.html"
            if not isinstance(document, Path):
                path.write_text(page_html(document, "a title", "the text"), encoding="utf-8")
            context = browser.new_context(offline=True, **more)
            closing.callback(context.close)
            return Opened(context, path)

        yield opened
