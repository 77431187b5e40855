"""No key, token or password of a log is in a fact, a note or a loss."""

from __future__ import annotations

import io

import msgspec
import pytest

from sglang_probe.collect.logs.read import read_log
from sglang_probe.collect.report import Tally
from tests.collect.logs.telling import Teller

SECRET = "s3cretXvalueYofZsomebody"
SAYS = (
    f"--api-key {SECRET}",
    f"--admin-api-key={SECRET}",
    f"['--api-key', '{SECRET}', '--tp', '2']",
    f"https://user:{SECRET}@huggingface.co/model",
    f"https://huggingface.co/model?token=hf_{SECRET}",
    f"Authorization: Bearer {SECRET}",
    f"api_key='{SECRET}'",
)
LINES = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {}",
    "401 Client Error: {}",
    "NCCL error of {}",
    "Capture cuda graph failed: CUDA out of memory. {}",
    "Custom allreduce is disabled because {}",
    "Received sigquit from a child process. {}",
    "A buffer of 3.00 GB for {}",
)


@pytest.mark.parametrize("said", SAYS)
@pytest.mark.parametrize("line", LINES)
def test_a_secret_in_a_line_is_in_no_fact_of_it(line: str, said: str) -> None:
    notes = Tally()
    text = Teller().line(line.format(said), "TP0")

    (run,) = read_log(io.BytesIO(text.encode()), "a.log", notes)

    assert run.facts
    assert SECRET not in msgspec.json.encode((run, notes.report())).decode()


@pytest.mark.parametrize("value", [SECRET, "k1", "it's ours", "a, b) c"])
@pytest.mark.parametrize("name", ["api_key", "admin_api_key", "ssl_keyfile_password", "hf_token"])
def test_secrets_among_the_arguments_are_in_neither_their_values_nor_their_text(name: str, value: str) -> None:
    (run,) = read_log(io.BytesIO("".join(Teller().arguments(**{name: value}, last=1)).encode()), "a.log")

    (fact,) = run.facts
    assert 1 == fact.values["arguments"]["last"]
    assert value not in fact.entry.text.replace("model_path", "")
    assert "[redacted]" == fact.values["arguments"][name]


def test_counts_of_tokens_stay_in_the_text() -> None:
    text = Teller().line("Decode batch. #running-req: 1, #token: 123456, token usage: 0.01, #queue-req: 0", "TP0")

    (run,) = read_log(io.BytesIO(text.encode()), "a.log")

    assert "#token: 123456" in run.facts[0].entry.text
