"""Text of events and logs is data: in no place of the page does it become markup or script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.collect.read import read
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.engine import explain
from sglang_probe.report.html.comparison import comparison_data
from sglang_probe.report.html.facts import cleaned
from sglang_probe.report.html.page import json_in_script, page_html
from sglang_probe.report.html.write import write
from sglang_probe.report.material import Material
from sglang_probe.timeline import build
from tests.cli.conftest import as_written, failed_start
from tests.report.html.conftest import Open
from tests.report.html.opened import DATA, document_of, timeline_of

HOSTILE = {
    "ends the script": "</script><script>window.pwned=1</script>",
    "an image": "<img src=x onerror=window.pwned=1>",
    "out of an attribute": "\"'><svg onload=window.pwned=1>",
    "a link of Plotly's": '<a href="javascript:window.pwned=1" target="_self">here</a><b>x</b><br>',
    "entities": "&lt;img src=x onerror=window.pwned=1&gt;&#60;b&#62;",
    "a template of Plotly's": "%{x} %{customdata} ${window.pwned=1} $x^2$",
    "a comment": "<!--<script>",
    "ends the text": "</pre></noscript></style></textarea><svg/onload=window.pwned=1>",
    "what acts": "\x00\x1b[31m\u202egnp.exe\u2028\u2029\ud800\udfff\x7f",
    "long": "<b>" * 1_000,
}
ALL = "".join(text for name, text in HOSTILE.items() if name != "long")
OURS = {"ended", "severity", "kind", "measure", "state", "side", "source", "schema", "categories"}
"""Fields of the document that hold words of our own, which the page looks up or makes a class of."""
MADE = "#page img, #page a, #page script, #page iframe, #page b b"
"""Elements that the page never makes."""
LEAFY = DATA / "h200-x2-sglang-0.5.14-failures" / "leftover"


def poisoned(value: Any, poison: str) -> Any:
    """Return a document in which every text but our own words goes on with poison."""
    if isinstance(value, str):
        return value + poison
    if isinstance(value, dict):
        return {key: one if key in OURS else poisoned(one, poison) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [poisoned(one, poison) for one in value]
    return value


def _poison(document: dict[str, Any], poison: str) -> dict[str, Any]:
    columns = {name: document[name] for name in ("process_columns", "neighbour_columns")}
    keys = [run["keys"] for run in document["runs"]]
    spoilt: dict[str, Any] = {**poisoned(document, poison), **columns}
    for run, own in zip(spoilt["runs"], keys, strict=True):
        run["keys"] = own
    return spoilt


def _comparison() -> dict[str, Any]:
    sides = [timeline_of(LEAFY.parent / "car"), timeline_of(LEAFY)]
    found = compare([side.runs[0] for side in sides])
    return comparison_data(found, sides, [explain(side) for side in sides])


@pytest.mark.parametrize("make", [lambda: document_of(LEAFY), _comparison], ids=["report", "diff"])
@pytest.mark.parametrize("poison", [ALL, HOSTILE["long"]], ids=["all", "long"])
def test_hostile_text_everywhere_runs_nothing_and_makes_no_element(
    open_page: Open, make: Callable[[], dict[str, Any]], poison: str
) -> None:
    opened = open_page(cleaned(_poison(make(), poison))).drawn()
    opened.js("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    opened.page.mouse.move(500, 300)
    opened.page.wait_for_timeout(100)

    assert opened.js("typeof window.pwned") == "undefined"
    assert [] == opened.js(f"[...document.querySelectorAll('{MADE}')].map(one => one.outerHTML)")
    assert opened.quiet()


def test_a_script_that_came_in_all_the_same_would_not_run(open_page: Open) -> None:
    opened = open_page(document_of(LEAFY)).drawn()

    opened.js(
        """() => { const script = document.createElement('script'); script.textContent = 'window.pwned = 1';
           document.body.append(script);
           document.body.insertAdjacentHTML('beforeend', '<img src="data:,x" onerror="window.pwned = 1">'); }"""
    )
    opened.page.wait_for_timeout(200)

    assert opened.js("typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in line for line in opened.noise)


@pytest.mark.parametrize("poison", HOSTILE.values(), ids=list(HOSTILE))
def test_no_hostile_text_stands_in_the_file_as_it_is(poison: str) -> None:
    page = page_html(cleaned({"text": poison, poison: [poison]}), poison, poison)

    body = page.split("</style>", 1)[1].split('<script type="text/plain"', 1)[0]
    assert body.count("<") == len(
        ["/head", "body", "noscript", "p", "/p", "pre", "/pre", "/noscript", "div", "/div", "script", "/script"]
    )
    assert page.split("<title>", 1)[1].split("</title>", 1)[0].count("<") == 0
    assert not [c for c in page if c != "\n" and not c.isprintable()]


def test_json_in_a_script_holds_no_sign_of_markup() -> None:
    assert not set("<>&\u2028\u2029") & set(json_in_script({"<b>": "a & b \u2028\u2029 </script>"}))


def test_events_with_hostile_names_make_a_harmless_page(open_page: Open, tmp_path: Path) -> None:
    bad = HOSTILE["ends the script"] + HOSTILE["an image"] + HOSTILE["a link of Plotly's"]
    events = failed_start()
    for event in events:
        event["host"] = bad
        if isinstance(event.get("exception"), dict):
            event["exception"] = {"id": "e1", "type": bad, "message": bad, "raised_in": bad, "stacktrace": None}
    (tmp_path / "events.jsonl").write_bytes(b"".join(as_written(event) + b"\n" for event in events))
    collected = read([str(tmp_path / "events.jsonl")])
    timeline = build(collected)

    write(Material(timeline, explain(timeline), collected), tmp_path / "report.html")

    opened = open_page(tmp_path / "report.html").drawn()
    assert HOSTILE["an image"] in opened.text(".look")
    assert opened.js("typeof window.pwned") == "undefined"
    assert opened.quiet()
