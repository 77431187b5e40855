"""Nothing of a log acts on the terminal, and no secret of it is shown: not by any command, in text or in JSON."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from tests.collect.logs.telling import Teller

SECRET = "s3cretXvalueYofZsomebody"
ACTING = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b31m\x07\x08\u202egnp.exe\u2066\x7f\x00"
SAID = f"{ACTING} --api-key {SECRET} https://user:{SECRET}@host/?token={SECRET} api_key='{SECRET}'"
COMMANDS = (["timeline"], ["explain"], ["plan", "--mem-fraction-static", "0.5"], ["diff"])


def _log(directory: Path, *, fails: bool) -> Path:
    teller = Teller()
    lines = [
        *teller.arguments(model_path=f"/m{ACTING}", api_key=SECRET, admin_api_key=SECRET),
        teller.line(f"Command: serve {SAID} 3.00 GB"),
        teller.line(f"Custom allreduce is disabled because {SAID}", "TP0"),
        teller.line(f"401 Client Error: {SAID}", "TP0"),
        *teller.group(),
        *([] if fails else teller.totals()),
        teller.line("Scheduler hit an exception: Traceback (most recent call last):", "TP0"),
        f'  File "/x/sglang/srt/model_runner.py", line 1, in f\n    start({SAID})\n',
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {SAID}\n",
        teller.line(f"Received sigquit from a child process. {SAID}"),
    ]
    path = directory / "evil\x1b[31m\u202e.log"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_log_neither_acts_on_the_terminal_nor_shows_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], form: str, fails: bool
) -> None:
    from sglang_probe.cli.main import main

    log = str(_log(tmp_path, fails=fails))
    given = [log, log] if command[0] == "diff" else [log]
    main([command[0], *given, *command[1:], "--format", form])

    shown = "".join(capsys.readouterr())
    assert shown
    assert SECRET not in shown
    assert not [c for c in shown if c != "\n" and unicodedata.category(c) in {"Cc", "Cf"}]
