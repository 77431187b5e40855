"""Words about memory are facts where a record says them: not in prose, and not in what users wrote to the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.read import read
from tests.collect.logs.reading_lines import kinds
from tests.collect.logs.telling import Teller, runs_of
from tests.collect.logs.telling import kinds as kinds_of

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1 GiB is free."
SHORT = "Not enough memory. Please try to increase --mem-fraction-static."
MEMORY = {"out_of_memory", "no_memory", "exception"}
REPOSITORY = Path(__file__).parents[3]
PROSE = (
    f"When the pool is too large, torch says {OOM}",
    f"error     torch.OutOfMemoryError: {OOM}",
    f"- `RuntimeError: {SHORT}` comes from the profile of the pool.",
    f'assert "Capture cuda graph failed: {OOM}" in run.log',
    f'The message "{SHORT}" means that nothing is left.',
    "Is it CUDA out of memory, or is /dev/shm too small?",
)


@pytest.mark.parametrize("line", PROSE)
def test_words_in_the_middle_of_a_line_are_no_record(line: str) -> None:
    assert not MEMORY & set(kinds(line, prefixed=False))


@pytest.mark.parametrize("before", ["", "> ", "  ", "> > ", "2030-01-01T00:00:00.000000000Z ", "server-1  | "])
def test_an_exception_at_a_line_s_beginning_is_a_record_whatever_carried_or_quoted_it(before: str) -> None:
    (run,) = runs_of([f"{before}torch.OutOfMemoryError: {OOM}\n"])

    assert ["exception", "out_of_memory"] == kinds_of(run)


def test_texts_that_only_talk_about_memory_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "issue.md"
    text.write_text("\n\n".join(PROSE))

    with pytest.raises(InputError, match="is text, but no probe events, and no line of it is of SGLang's log"):
        read([text])


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docs/explain.md", "docs/gpu-runs.md", "docs/logs.md"])
def test_the_project_s_own_documents_are_no_logs_of_a_failure(name: str) -> None:
    try:
        logs = read([REPOSITORY / name]).logs
    except InputError:
        return
    assert not MEMORY & {fact.kind for log in logs for fact in log.facts}


def test_a_log_in_the_fence_of_an_issue_is_read_and_the_prose_around_it_is_not(tmp_path: Path) -> None:
    log = Teller().start()
    text = tmp_path / "issue.md"
    text.write_text("\n".join(PROSE) + "\n```\n" + "".join(log) + "```\n" + "\n".join(PROSE) + "\n")

    (run,) = read([text]).logs

    assert kinds_of(runs_of(log)[0]) == [kind for kind in kinds_of(run) if kind != "not_memory"]


SAID = (OOM, f"torch.OutOfMemoryError: {OOM}", SHORT, "[2030-01-01 00:00:09 TP0] Load weight begin. avail mem=1.00 GB")
REQUESTS = (
    "[2030-01-01 01:00:00] Receive: obj=GenerateReqInput(rid='1', text='{}', sampling_params={{}})\n",
    "[2030-01-01 01:00:00] Finish: obj=GenerateReqInput(rid='1'), out={{'text': '{}'}}\n",
    '{{"prompt": "{}"}}\n',
    '{{\n  "messages": [\n    {{\n      "role": "user",\n      "content": "{}"\n    }}\n  ]\n}}\n',
    '[2030-01-01 01:00:00] {{"event": "request.received", "obj": {{"text": "{}"}}}}\n',
    '[2030-01-01 01:00:00] INFO:     127.0.0.1:50000 - "GET /generate?text={} HTTP/1.1" 200 OK\n',
)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("request_line", REQUESTS)
def test_what_users_wrote_never_becomes_a_fact(request_line: str, said: str) -> None:
    log = Teller().start()
    if "HTTP/" in request_line and said.startswith("["):
        said = said.replace(" ", "%20")

    (run,) = runs_of([*log, request_line.format(said)])

    assert kinds_of(runs_of(log)[0]) == kinds_of(run)
