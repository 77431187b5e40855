"""A page that a browser has opened: what it said on its console, what it asked for, what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_probe.collect.read import read
from sglang_probe.explain.engine import explain
from sglang_probe.report.html.data import page_data
from sglang_probe.timeline import Timeline, build

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Dialog

DATA = Path(__file__).parents[2] / "data"
RECORDED = DATA / "h200-x2-sglang-0.5.14" / "car"
PATIENCE_MS = 30_000
"""For what takes a second: a test is no measurement, and machines are busy."""

STEP_MS = 20


class Opened:
    """One page in a window of its own."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.noise: list[str] = []
        self.asked: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda message: self.noise.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = path.absolute().as_uri()
        self.page.goto(self.address)

    def _dismiss(self, dialog: Dialog) -> None:
        self.noise.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def drawn(self) -> Opened:
        """Wait until the charts can be drawn; then look at each of them."""
        self.wait("plotly !== null")
        for chart in self.page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
        self.wait("charts.every((one) => one.isDrawn)")
        self.js("scrollTo(0, 0)")
        return self

    def wait(self, script: str) -> None:
        """Wait until a script says yes. (Playwright's own way compiles it in the page, which the page forbids.)"""
        for _ in range(PATIENCE_MS // STEP_MS):
            if self.js(script):
                return
            self.page.wait_for_timeout(STEP_MS)
        raise AssertionError(f"{script} is not so after {PATIENCE_MS} ms; the console says {self.noise}")

    def text(self, selector: str) -> str:
        """Return what an element shows."""
        return self.page.locator(selector).first.inner_text()

    def rows(self, caption: str) -> list[list[str]]:
        """Return the cells of a table that is in view, by its caption, without its headings."""
        found = self.page.locator("table").filter(has=self.page.locator("caption", has_text=caption)).first
        rows: list[list[str]] = found.evaluate(
            "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return rows

    def js(self, script: str, given: Any = None) -> Any:
        """Run a script in the page."""
        return self.page.evaluate(script, given)

    def quiet(self) -> bool:
        """Say whether the console is silent, and nothing was asked for but the file itself."""
        assert self.noise == []
        assert {one for one in self.asked if not one.startswith("blob:")} == {self.address}
        return True


def timeline_of(path: Path) -> Timeline:
    """Return what was recorded in a directory or a log."""
    return build(read([str(path)]))


def document_of(path: Path) -> dict[str, Any]:
    """Return the document of a page about a recorded run."""
    timeline = timeline_of(path)
    return page_data(timeline, explain(timeline))
