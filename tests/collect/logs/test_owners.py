"""A text in which no line is SGLang's own is another program's: it is refused, or read for torch's message alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.logs.owners import NO_LINE
from sglang_probe.collect.read import read
from tests.collect.logs.telling import Teller

NGINX = '10.0.0.1 - - [29/Nov/2030:10:00:05 +0000] "GET /health HTTP/1.1" 502 12 "-" "kube-probe/1.29"\n'
VLLM = (
    "INFO 11-29 10:00:00 [api_server.py:1032] vLLM API server version 0.9.1\n"
    "ERROR 11-29 10:00:50 [core.py:515] RuntimeError: Engine core initialization failed.\n"
)
TORCH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total of 79.15 GiB"
KERNEL = (
    "[ 3830.995585] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/\n"
    "[ 3830.995611] Out of memory: Killed process 19715 (python3) total-vm:14332kB\n"
)
FOREIGN = 'Traceback (most recent call last):\n  File "/srv/app.py", line 3, in main\nValueError: no such page\n'


def _file(directory: Path, text: str) -> Path:
    path = directory / "other.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [(NGINX, "a web server wrote it"), (VLLM, "vLLM wrote it"), (KERNEL, "the kernel wrote it .*Killed process"),
     (FOREIGN, "line 1: no such page")],
)  # fmt: skip
def test_another_program_s_log_is_refused_with_what_it_is(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"no line of it is SGLang's own.*{says}"):
        read([_file(tmp_path, text)])


@pytest.mark.parametrize(("text", "whose"), [(f"{VLLM}{TORCH}\n", "vLLM wrote it"), (f"{TORCH}\n", "of torch alone")])
def test_torch_s_message_is_read_with_a_note_that_no_line_is_sglang_s(tmp_path: Path, text: str, whose: str) -> None:
    (log,) = read([_file(tmp_path, text)]).logs

    assert "out_of_memory" in {fact.kind for fact in log.facts}
    assert log.notes[0].startswith(NO_LINE)
    assert log.notes[0].endswith(whose)


@pytest.mark.parametrize(
    "own",
    ["".join(Teller().start()), "[2030-01-01 00:00:00] launching\n",
     'Traceback (most recent call last):\n  File "/x/sglang/launch_server.py", line 1, in main\nOSError: no model\n'],
)  # fmt: skip
def test_with_one_line_of_sglang_s_own_the_text_is_its_log(tmp_path: Path, own: str) -> None:
    (log,) = read([_file(tmp_path, f"{own}{FOREIGN}{TORCH}\n")]).logs

    assert not any(note.startswith(NO_LINE) for note in log.notes)
