"""Secrets never reach a file; what only looks like one stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.agent.exceptions import describe
from sglang_probe.agent.provenance import environment, given_arguments
from sglang_probe.events.names import CUT_MARK, MAX_MESSAGE_BYTES, MAX_STACKTRACE_BYTES, MAX_VALUE_BYTES
from sglang_probe.events.redact import MARK, redact, redact_argv, redact_tail, redact_text

SECRET = "s3cr3tValue0123456789"


@pytest.mark.parametrize(
    "name", ["api_key", "admin_api_key", "hf_token", "password", "secret", "AUTHORIZATION", "api-key"]
)
def test_a_value_whose_name_says_secret_is_hidden(name: str) -> None:
    assert redact({name: SECRET}) == {name: MARK}


@pytest.mark.parametrize(
    "name", ["max_total_tokens", "tokenizer_path", "tokenizer_mode", "num_tokens", "key_size", "keyboard"]
)
def test_a_name_that_only_looks_like_one_is_kept(name: str) -> None:
    assert redact({name: SECRET}) == {name: SECRET}


@pytest.mark.parametrize("nothing", [None, "", False, True])
def test_that_a_secret_is_not_set_is_no_secret(nothing: object) -> None:
    assert redact({"api_key": nothing}) == {"api_key": nothing}


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host/path",
        f"postgres://{SECRET}@host",
        f"GET /x?token={SECRET}&y=1",
        f"Authorization: Bearer {SECRET}",
        f"api_key={SECRET}",
        f"password: '{SECRET}'",
        "hf_abcdefghijklmnopqrstuv",
        "sk-abcdefghijklmnopqrstuv",
    ],
)
def test_a_secret_inside_a_text_is_hidden(text: str) -> None:
    clean = redact_text(text)
    assert MARK in clean
    assert SECRET not in clean and "abcdefghijklmnop" not in clean


@pytest.mark.parametrize(
    "text", ["max_total_tokens=4096", "tcp://127.0.0.1:30000", "Try to allocate 5 tokens. token: 17", "a@b", "key=1"]
)
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_a_command_line_is_clean_in_both_spellings() -> None:
    argv = ["python", "--api-key", SECRET, f"--admin-api-key={SECRET}", "--tp", "2", "--max-total-tokens", "4096"]
    assert redact_argv(argv) == [
        "python", "--api-key", MARK, f"--admin-api-key={MARK}", "--tp", "2", "--max-total-tokens", "4096",
    ]  # fmt: skip


def test_flags_are_read_as_given() -> None:
    argv = ["python", "-m", "sglang.launch_server", "--tp", "2", "--mem-fraction-static=0.55", "--trust-remote-code",
            "--lora-paths", "a", "b", "--api-key", SECRET]  # fmt: skip
    assert given_arguments(argv) == {
        "--tp": "2",
        "--mem-fraction-static": "0.55",
        "--trust-remote-code": True,
        "--lora-paths": ["a", "b"],
        "--api-key": MARK,
    }


@pytest.mark.parametrize("script", ["/opt/bin/sglang", "/home/me/.venv/bin/sglang", "/opt/python3.12/bin/sglang"])
def test_flags_of_the_newer_command_are_read_wherever_it_is_installed(script: str) -> None:
    argv = ["/usr/bin/python3.12", script, "serve", "--tp", "2"]
    assert given_arguments(argv) == {"--tp": "2"}


def test_a_command_line_that_starts_no_server_gives_no_arguments() -> None:
    assert given_arguments(["python", "train.py", "--tp", "2"]) is None


def test_only_variables_that_decide_memory_are_kept_and_their_secrets_hidden() -> None:
    environ = {"NCCL_DEBUG": "INFO", "HOME": "x", "SGLANG_X_TOKEN": SECRET, "CUDA_VISIBLE_DEVICES": "0", "PATH": "x"}
    assert environment(environ) == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "SGLANG_X_TOKEN": MARK}


@pytest.mark.parametrize(
    "name", ["api_keys", "X_PASS", "X_PWD", "X_AUTH", "X_KEYS", "X_KEY_1", "AWS_ACCESS_KEY_ID", "secret_key_id"]
)
def test_names_of_secrets_in_their_other_spellings(name: str) -> None:
    assert redact({name: [SECRET]}) == {name: MARK}


@pytest.mark.parametrize(
    "text", [f"Authorization: Basic {SECRET}", f'{{"auth":"{SECRET}"}}', f'"secret_key_id":"{SECRET}"']
)
def test_secrets_in_texts_in_their_other_spellings(text: str) -> None:
    assert SECRET not in redact_text(text)


def test_a_secret_that_looks_like_a_flag_is_hidden() -> None:
    assert redact_argv(["--api-key", f"--{SECRET}", "--tp", "2"]) == ["--api-key", MARK, "--tp", "2"]


@pytest.mark.parametrize(
    "text",
    [
        f"sk_production_api_key={SECRET}",
        f"auth=Bearer {SECRET}",
        f"auth: https://user:a,{SECRET}@host",
        f"https://user:p@{SECRET}@host",
    ],
)
def test_a_secret_behind_what_looks_like_another_is_hidden(text: str) -> None:
    assert SECRET not in redact_text(text)


MEGABYTE = 1_000_000
NAMES = ("secret", "password", "auth", "token", "api_key", "Bearer", "Basic ", "?", "&a", "://", "a://", "sk-", "sk_",
         "hf_", "xoxb-", "AKIA", "'", "=")  # fmt: skip
FILLS = ("a", "a-", "abc.", "-", "_", " ", "\n", ":", "=", "/", "@", "?", "0", "'", "\u00e9", "\U0001f600", "\0")
MIXED = [name + times * fill for name in NAMES for fill in FILLS for times in (1, 1000)]


@pytest.mark.parametrize(
    ("repeats", "size"),
    [*(((one,), MEGABYTE) for one in (*NAMES, *FILLS, "a-secret-", "?token=")), (MIXED, MEGABYTE // 50)],
    ids=lambda value: None if isinstance(value, int) or len(value) > 1 else repr(value[0]),
)
def test_a_text_costs_what_its_length_is_whatever_it_repeats(repeats: Sequence[str], size: int) -> None:
    for repeat in repeats:
        text = repeat * (size // len(repeat))
        began = time.thread_time()
        redact_text(text, 4 * MEGABYTE)
        assert time.thread_time() - began < 5, repeat  # 0.3 s for a megabyte where it is linear, else hours


def test_a_host_that_raises_a_huge_text_is_not_held() -> None:
    error = RuntimeError("a-" * (16 * MEGABYTE))
    began = time.thread_time()
    described = describe(error, threading.local())
    assert time.thread_time() - began < 5
    assert len(described["message"]) == MAX_MESSAGE_BYTES
    assert len(described["stacktrace"]) == MAX_STACKTRACE_BYTES


@pytest.mark.parametrize("before", range(0, 3 * len(SECRET), 3))
@pytest.mark.parametrize("shape", ["https://user:{}@host", "api_key={}", "Authorization: Bearer {}", "hf_{}"])
def test_a_secret_that_lies_across_a_cut_does_not_leak_by_half(shape: str, before: int) -> None:
    secret = SECRET.replace("_", "")
    most, said = 200, shape.format(secret)
    head = redact_text("x" * (most - before) + " " + said + " y" * MEGABYTE, most)
    tail = redact_tail("y " * MEGABYTE + said + " " + "x" * (most - before), most)
    for clean in (head, tail):
        assert CUT_MARK in clean and len(clean) <= most
        assert not any(secret[at : at + 4] in clean for at in range(len(secret) - 3))


def test_a_text_that_was_cut_says_so_even_where_hiding_made_it_short() -> None:
    text = f"api_key={SECRET * 100} and much more {'z ' * MEGABYTE}"
    assert redact_text(text, len(SECRET) * 50) == f"api_key={MARK}{CUT_MARK}"


def test_values_are_cut_where_they_are_cleaned() -> None:
    long = "v" * MEGABYTE
    values = [*redact({"template": long, "list": [long]}).values(), redact_argv([long])[0]]
    texts = [value if isinstance(value, str) else value[0] for value in values]
    texts += environment({"SGLANG_X": long}).values()
    assert {(MAX_VALUE_BYTES, True)} == {(len(text), text.endswith(CUT_MARK)) for text in texts}


@given(st.text(), st.integers(100, 300))
def test_what_holds_no_secret_is_only_cut(text: str, most: int) -> None:
    text = text.translate({ord(sign): "." for sign in ":=@?&-_"}) * 20
    data = text.encode("utf-8", "replace")
    room = most - len(CUT_MARK)
    head, tail = redact_text(text, most), redact_tail(text, most)
    if len(data) <= most:
        assert text == head == tail
    else:
        assert head == data[:room].decode("utf-8", "ignore") + CUT_MARK
        assert tail == CUT_MARK + data[len(data) - room :].decode("utf-8", "ignore")
