"""docs/data.md: its queries are run as they stand there, and its tables are those that are written.

WRITE_GOLDEN=1 writes what comes out into the document: read it before you commit it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

duckdb = pytest.importorskip("duckdb", reason="the extra `report` is not installed")
from sglang_probe.report.tables.describe import described, keys, markdown  # noqa: E402 # needs pyarrow

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = re.compile(r"^sglang-probe (?P<words>report .*)$", re.MULTILINE)
QUERY = re.compile(r"```sql\n(?P<sql>.*?)```\n\n(?P<printed>(?:\|[^\n]*\n)*)", re.DOTALL)


@pytest.fixture
def document(root: Path) -> Callable[[str], str]:
    """Return the document, after it was written anew where that was asked for."""
    path = root / "docs" / "data.md"

    def kept(renewed: str) -> str:
        if os.environ.get("WRITE_GOLDEN"):
            path.write_text(renewed, encoding="utf-8")
        return path.read_text(encoding="utf-8")

    return kept


def test_every_query_prints_what_the_document_says(
    probe: Probe, document: Callable[[str], str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (root / "docs" / "data.md").read_text(encoding="utf-8")
    (tmp_path / "tests").symlink_to(root / "tests")
    monkeypatch.chdir(tmp_path)
    for command in COMMAND.finditer(text):
        assert probe(*shlex.split(command["words"])).returncode == 0
    with duckdb.connect() as database:
        renewed = QUERY.sub(lambda found: f"```sql\n{found['sql']}```\n\n{printed(database, found['sql'])}", text)

    assert len(QUERY.findall(text)) >= 3 and len(COMMAND.findall(text)) >= 2
    assert renewed == document(renewed)


def printed(database: Any, sql: str) -> str:
    """Run what stands in a block, and return its last result as a Markdown table."""
    for statement in sql.strip().split(";\n"):
        made = database.execute(statement)
    return markdown([column[0] for column in made.description], made.fetchall())


def test_the_tables_of_the_document_are_those_that_are_written(document: Callable[[str], str], root: Path) -> None:
    text = (root / "docs" / "data.md").read_text(encoding="utf-8")
    made = {"keys": f"{keys()}", "tables": f"{described()}"}
    renewed = re.sub(
        r"<!-- (keys|tables) -->\n.*?<!-- end -->",
        lambda found: f"<!-- {found[1]} -->\n{made[found[1]]}<!-- end -->",
        text,
        flags=re.DOTALL,
    )

    assert text.count("<!-- end -->") == len(made)
    assert renewed == document(renewed)
