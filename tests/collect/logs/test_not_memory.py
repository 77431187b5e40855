"""What is not the GPU's memory is said to be that."""

from __future__ import annotations

import pytest

from sglang_probe.collect.logs.formats import NEEDLES
from sglang_probe.collect.logs.not_memory import HARMLESS, NOT_MEMORY
from tests.collect.logs.reading_lines import kinds, values
from tests.collect.logs.telling import runs_of

EXAMPLES = (
    ("triton_shared_memory", "out of resource: shared memory, Required: 163840, Hardware limit: 101376"),
    ("dev_shm", "unable to open a segment in /dev/shm"),
    ("dev_shm", "unable to create </torch_1> in read-write mode: shm_open failed"),
    ("segfault", "Fatal Python: Segmentation fault"),
    ("hang", "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."),
    ("nccl", "init.cc:12 unhandled system error (run with more output)"),
    ("port_in_use", "port 30000 is not available"),
    ("port_in_use", "port 30000 is occupied"),
    ("connection", "Max retries exceeded with url: /m"),
    ("model_missing", "/m is not a local folder and is not a valid model identifier"),
    ("model_missing", "Incorrect path_or_model_id: '/m'."),
    ("model_missing", "Repository Not Found for url: https://hub/m."),
    ("model_missing", "Cannot find any model weights with `/m`"),
    ("model_missing", "/m does not appear to have a file named config.json"),
    ("http", 'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 500 Internal Server'),
    ("version", "CUDA driver version is insufficient for CUDA runtime version"),
    ("version", "no kernel image is available for execution on the device"),
    ("version", "sm_120 is not compatible with the current PyTorch installation"),
    ("host_memory", "task of the pod ended by oom-kill"),
    ("host_memory", "hipHostMalloc of 12 bytes"),
    ("host_killed", "reason: OOMKilled"),
    ("disk", "write: Disk quota exceeded"),
    ("leaked_semaphores", "resource_tracker: There appear to be 1 leaked semaphore objects"),
    ("import_of_a_model", "Ignore import error when loading sglang.srt.models.mimo: none"),
    ("generation_config", "Failed to load generation config for /m"),
    ("not_ready_yet", 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable'),
    ("expandable_segments", "UserWarning: expandable_segments not supported on this platform"),
    ("nofile_limit", "Fail to set RLIMIT_NOFILE: none"),
    ("pool_leak_check", "Warning: destroy_process_group() was not called before program exit"),
    ("symmetric_memory_unsupported", "init_cpu_threads_env and shared memory based AllReduce is disabled"),
)
"""What each row is, and lines that the scanner must find, without other words that it looks for where that can be."""


@pytest.mark.parametrize(("what", "line"), EXAMPLES)
def test_a_line_of_a_row_comes_through_the_scanner_as_that_row(what: str, line: str) -> None:
    (run,) = runs_of(["nothing\n", f"[2030-01-01 00:00:00] {line}\n", "nothing\n"])

    assert [what] == [fact.values["what"] for fact in run.facts]


def test_every_row_has_an_example_and_every_word_of_it_is_looked_for() -> None:
    rows = (*NOT_MEMORY, *HARMLESS)
    words = [word.decode() for word in NEEDLES]

    assert {one.what for one in rows} == {what for what, _ in EXAMPLES}
    assert [needle for one in rows for needle in one.needles if not any(word in needle for word in words)] == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, Hardware limit: 9.",
         "triton_shared_memory"),
        ("RuntimeError: unable to write to file </torch_1>: No space left on device in /dev/shm", "dev_shm"),
        ("Bus error (core dumped)", "dev_shm"),
        ("Fatal Python error: Segmentation fault", "segfault"),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "hang"),
        ("[rank0]:[E] [PG 0 Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "hang"),
        ('INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 500 Internal Server Error', "http"),
        ('INFO:     127.0.0.1:1 - "POST /v1/chat HTTP/1.1" 404 Not Found', "http"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "connection"),
        ("OSError: [Errno 98] error while attempting to bind on address: address already in use", "port_in_use"),
        ("OSError: 401 Client Error: Unauthorized for url: https://huggingface.co/x", "model_missing"),
        ("torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled system error", "nccl"),
        ("ModuleNotFoundError: No module named 'flashinfer'", "version"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host_memory"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("Killed", "host_killed"),
        ("Subprocess scheduler_0 (pid=12) crashed with exit code -9. Triggering SIGQUIT for cleanup...", "host_killed"),
        ("RuntimeError: Not enough host memory available. Requesting 9.00 GB.", "host_memory"),
    ],
)  # fmt: skip
def test_what_only_looks_like_memory_is_named(line: str, what: str) -> None:
    assert what == values(line, "not_memory", prefixed=False)["what"]
    assert not {"out_of_memory", "no_memory"} & set(kinds(line, prefixed=False))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects",
         "leaked_semaphores"),
        ("resource_tracker: There appear to be 3 leaked shared_memory objects to clean up", "leaked_semaphores"),
        ("Ignore import error when loading sglang.srt.models.mimo: Can not import FA3.", "import_of_a_model"),
        ("Failed to load generation config for /m: /m does not appear to have a file named generation_config.json.",
         "generation_config"),
        ('INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable', "not_ready_yet"),
        ("UserWarning: expandable_segments not supported on this platform", "expandable_segments"),
    ],
)  # fmt: skip
def test_what_only_looks_fatal_is_harmless(line: str, what: str) -> None:
    assert ["harmless"] == kinds(line, prefixed=False)
    assert what == values(line, "harmless", prefixed=False)["what"]


def test_a_cap_above_what_was_profiled_is_no_failure() -> None:
    line = "max_total_tokens=131072 is larger than the profiled value 61981. Use the profiled value instead."

    assert ["kv_cap"] == kinds(line)
