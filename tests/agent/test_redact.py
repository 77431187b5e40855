"""Secrets never reach a file; what only looks like one stays."""

from __future__ import annotations

import pytest

from sglang_probe.agent.provenance import environment, given_arguments
from sglang_probe.agent.redact import MARK, redact, redact_argv, redact_text

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
