"""The HTML file: the document, plotly.js and our own script in one page that may load nothing and run nothing else.

The browser is told so by a Content-Security-Policy that names our two scripts by their hashes: text of an event that
became markup by a mistake of ours would still not run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from plotly.offline import get_plotlyjs

from sglang_probe.collect.own_output import GENERATOR
from sglang_probe.report.plain import printable

SCRIPTS: Final = ("base.js", "memory.js", "budget.js", "heat.js", "sections.js", "diff.js", "page.js")
"""Of our own, in the order in which they build on each other."""
IN_SCRIPT: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""What could end a script element or be taken for markup, spelt as JSON spells it; all but ASCII is so already."""
LEVEL: Final = 6
"""Of gzip: 9 takes four times as long for one part in a hundred."""

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{generator}
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<noscript>
<p>Charts need JavaScript, which is off here; this is the report as text.</p>
<pre>{text}</pre>
</noscript>
<div id="page"></div>
<script type="application/json" id="document">{document}</script>
<script type="text/plain" id="plotly">{plotly}</script>
<script>{script}</script>
</body>
</html>
"""


def page_html(document: dict[str, Any], title: str, text: str) -> str:
    """Return a page: `document` is what its script draws, `text` what stands there without a script."""
    script = _script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}' '{_hash(get_plotlyjs())}'",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return PAGE.format(
        generator=GENERATOR,
        policy=policy,
        title=html.escape(printable(title)),
        style=_asset("page.css"),
        text=html.escape(_lines(text)),
        document=json_in_script(document),
        plotly=_plotly(),
        script=script,
    )


def json_in_script(document: Any) -> str:
    """Return JSON that is the same document to a parser and holds nothing that HTML could take for its own."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).translate(IN_SCRIPT)


def _lines(text: str) -> str:
    """Return text of several lines without a character that acts."""
    return "\n".join(map(printable, text.split("\n")))


def _asset(name: str) -> str:
    return (resources.files("sglang_probe.report.html") / "assets" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _script() -> str:
    return '"use strict";\n' + "\n".join(map(_asset, SCRIPTS))


@lru_cache(maxsize=1)
def _plotly() -> str:
    """Return plotly.js packed: 2 MB of text in place of 4.8. The same bytes each time (`mtime`)."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), LEVEL, mtime=0)).decode()


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
