"""Lines of a server that is up, of arguments that SGLang changes by itself, and of how a server ends.

Source: `scheduler`, `schedule_batch`, `metrics_reporter` (earlier `scheduler_metrics_mixin`), `server_args`,
`arg_groups`, `engine`, `tokenizer_manager`, `watchdog` of SGLang 0.2.0 to 0.5.23; shells and init systems for `Killed`.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Final

from sglang_probe.collect.logs.format import Format, Values, count, line

_RATIO: Final = r"#new_token_ratio: (?P<ratio_before__f>\d+\.\d+) -> (?P<ratio_after__f>\d+\.\d+)"
_PER_CENT: Final = r"(?: token usage: (?P<token_usage__f>\d+(?:\.\d+)?))"


def _code(_groups: Mapping[str, str | None], values: Values) -> Values:
    """A negative exit code is a signal's number, and a shell's is that plus 128."""
    code = values.get("exit_code", 0)
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number in set(signal.Signals):
        values["signal"] = signal.Signals(number).name
    if values.get("signal") == "SIGKILL":
        values["how"] = "killed"
    return values


SERVING: Final[tuple[Format, ...]] = (
    line("batch", " batch",
         rf"Prefill batch(?: ?\[\d+\]|\(mixed[^)\n]*\))?[.,] #new-seq: [^\n]*?(?:,{_PER_CENT}[^\n]*|$)",
         phase="prefill"),
    line("batch", " batch",
         r"Decode batch(?: ?\[\d+\])?[.,] #running-req: \d+"
         rf"(?:,[^\n]*?)??(?:, #(?:full )?token: {count('tokens')})?"
         rf"(?:,[^\n]*?)??(?:,(?: full)?{_PER_CENT})?(?:,[^\n]*)?$", phase="decode"),
    line("retract", "#retracted_reqs",
         r"(?:KV cache pool is full\. Retract requests\.|[Dd]ecode out of memory happened[.,]|Testing retraction\.)"
         rf" #retracted_reqs: {count('retracted')}(?:, #aborted_retracted_reqs: {count('aborted')})?"
         rf"(?:, #new_tokens?_gained: {count('gained')})?(?:, #mamba_num_gained: -?\d+)?(?:, {_RATIO})?"),
    line("retract_abort", "retract_decode: aborted",
         r"retract_decode: aborted (?:last )?request (?P<request>[^,: ]+)(?: due to |, |: )?(?P<why>[^\n]*)"),
    line("ready", "is fired up and ready", r"The server is fired up and ready to roll!"),
    line("version", "sglang is using nccl==", r"sglang is using (?P<what>nccl)==(?P<version>[\w.]+)"),
    line("version", "sglang version: ", r"(?P<what>sglang) version: (?P<version>[\w.+]+)"),
)  # fmt: skip


def _adjusted(needle: str, pattern: str, name: str) -> Format:
    return line("adjusted", needle, pattern, None, name=name)


ADJUSTED: Final[tuple[Format, ...]] = (
    _adjusted("mem-fraction-static", r"Automatically reduce --mem-fraction-static to (?P<value__f>\d\.\d+)"
              r" (?:and|because)[^\n]*", "mem_fraction_static"),
    _adjusted("mem-fraction-static", r"Multimodal model: Dynamically adjusted --mem-fraction-static from: [\d.]+ to:"
              r" (?P<value__f>\d\.\d+?)\.?\s*$", "mem_fraction_static"),
    _adjusted("adjust --mem-fraction-static", r"Automatically turn off --chunked-prefill-size and adjust"
              r" --mem-fraction-static[^\n]*", "chunked_prefill_size"),
    _adjusted("em fraction static to", r"Setting mem fraction static to (?P<value__f>\d\.\d+) for[^\n]*",
              "mem_fraction_static"),
    _adjusted("refill size is adjusted", r"DP attention is enabled\. (?:The )?chunked prefill size is adjusted"
              rf"(?: from \d+)? to {count('value')}[^\n]*", "chunked_prefill_size"),
    _adjusted("--chunked-prefill-size", r"Automatically (?:turn off|adjust) --chunked-prefill-size[^\n]*",
              "chunked_prefill_size"),
    _adjusted("--chunked-prefill-size", rf"Rounding --chunked-prefill-size up from \d+ to {count('value')} [^\n]*",
              "chunked_prefill_size"),
    _adjusted("max_running_requests", r"max_running_requests was reduced from the requested \d+ to"
              rf" {count('value')}[^\n]*", "max_running_requests"),
    _adjusted("max_running_requests", rf"max_running_requests is capped to {count('value')} [^\n]*",
              "max_running_requests"),
    _adjusted("max_running_requests", rf"Setting max_running_requests to {count('value')} [^\n]*",
              "max_running_requests"),
    _adjusted("Setting KV cache dtype to", r"Setting KV cache dtype to (?P<value>\w+)[^\n]*", "kv_cache_dtype"),
    _adjusted("swa_full_tokens_ratio to", r"Setting swa_full_tokens_ratio to (?P<value__f>\d+(?:\.\d+)?) [^\n]*",
              "swa_full_tokens_ratio"),
    _adjusted("prealloc size to", r"Symmetric memory is enabled, setting symmetric memory prealloc size to"
              rf" {count('value')}GB[^\n]*", "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE"),
)  # fmt: skip

ENDS: Final[tuple[Format, ...]] = (
    line("ended", "igquit", r"Received sigquit from a child process?\.[^\n]*", how="child", signal="SIGQUIT"),
    line("ended", "SIGQUIT", r"(?:SIGQUIT received\.|Received SIGQUIT from)[^\n]*", how="child", signal="SIGQUIT"),
    line("ended", "exit code", rf"Subprocess (?P<_name>\S+) \(pid={count('pid')}\) crashed with exit code"
         rf" {count('exit_code')}[^\n]*", _code, how="crash"),
    line("ended", "exit code", "Child process unexpectedly failed with "
         rf"(?:an )?exit ?code[ =]{count('exit_code')}"
         rf"\.?(?: pid={count('pid')})?", _code, how="crash"),
    line("ended", "exit code", rf"Rank \d+ scheduler died during initialization \(exit code:"
         rf" {count('exit_code')}\)[^\n]*", _code, how="crash"),
    line("ended", "Exit code: ", rf"Exit code: {count('exit_code')}\s*$", _code, how="crash"),
    line("ended", "scheduler is dead", r"Rank \d+ scheduler is dead\.[^\n]*", how="crash"),
    line("ended", "SIGTERM", r"(?:SIGTERM received|Signal SIGTERM received)[^\n]*", how="signal", signal="SIGTERM"),
    line("ended", "sigterm", r"\S+ rece?ive sigterm", how="signal", signal="SIGTERM"),
    line("ended", "Gracefully exiting", r"Gracefully exiting\.\.\.[^\n]*", how="shutdown"),
    line("ended", "Shutting down", r"INFO:\s+Shutting down\s*$", how="shutdown"),
    line("ended", "Initialization failed", r"Initialization failed\.[^\n]*", how="crash"),
    line("ended", "Killed", rf"(?:\S+: line \d+:)?\s*{count('pid')}?\s*Killed(?:\s[^\n]{{0,400}})?$",
         how="killed", signal="SIGKILL"),
)  # fmt: skip
