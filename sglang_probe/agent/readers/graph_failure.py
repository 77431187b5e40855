"""Where a graph capture died: the size, the function of SGLang's that ran, and the runner, as far as it was made.

All of it is in the frames of the exception's traceback, which are finished. They hold tensors, so nothing that is
found there but plain numbers and names leaves this module, and nothing is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final

from sglang_probe.agent.calls import integer

SIZE_NAMES: Final = frozenset({"bs", "num_seqs", "num_tokens", "size"})
"""What the first argument of a function that captures one size is called."""
ONE_SIZE: Final = frozenset({
    "capture_one_batch_size",  # up to 0.5.13
    "capture_one_shape",  # from 0.5.14 on
    "_capture_one",  # breakable graphs, 0.5.11 to 0.5.13
    "_capture_one_graph",  # several steps of a draft in one graph, from 0.5.16 on
    "warmup_torch_compile",  # of one size, 0.5.7 to 0.5.9
    "warmup_compile",  # 0.5.10 to 0.5.13
    "_run_dummy_forward",  # from 0.5.14 on
})  # fmt: skip
AROUND: Final = frozenset({
    "__init__", "create", "init_buffers_and_capture", "_init_and_capture",  # buffers
    "warmup", "_warmup", "warmup_and_capture", "_run_compile_pass",
    "capture", "_capture", "_capture_all", "_capture_one_stream",  # all sizes
})  # fmt: skip
"""Names that mean this in the modules of graph runners alone."""
ANYWHERE: Final = frozenset({"init_cuda_graph_state"})
"""The attention backend's own buffers for graphs."""
_RUNNERS: Final = re.compile(r"sglang\..*(?:graph_runner|\.input_buffers|\.runner(?:_utils|_backend)?\.)")
_SIZES: Final = ("capture_bs", "capture_num_tokens", "capture_tokens")
MOST_CAUSES: Final = 8
MOST_FRAMES: Final = 500


@dataclass(slots=True)
class Died:
    """What the frames tell; each is None where they do not."""

    size: int | None = None
    function: str | None = None
    sizes: list[int] | None = None
    runner_class: str | None = None


def died(error: BaseException) -> Died:
    """Return where the capture that raised `error` died.

    SGLang raises another exception in place of the one that ended a size: the first one, from outside, whose frames
    name a size is believed, else the last that names a function.
    """
    named = [one for one in map(_told, _tracebacks(error)) if one.function is not None]
    best = next((one for one in named if one.size is not None), named[-1] if named else Died())
    runner = next((one for one in (best, *named) if one.sizes is not None), best)
    best.sizes, best.runner_class = runner.sizes, runner.runner_class
    return best


def sizes_of(runner: Any) -> list[int] | None:
    """Return the sizes that a graph runner captures."""
    for name in _SIZES:
        sizes = getattr(runner, name, None)
        if isinstance(sizes, (list, tuple)):
            return [int(size) for size in sizes]
    return None


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """Yield the traceback of the error and of those that it was raised in place of."""
    for _ in range(MOST_CAUSES):
        trace = error.__traceback__
        if trace is None:
            return
        yield trace
        if error.__cause__ is not None:
            error = error.__cause__
        elif error.__context__ is not None and _raised_where_caught(error.__context__, trace):
            error = error.__context__
        else:
            return


def _raised_where_caught(earlier: BaseException, trace: TracebackType) -> bool:
    """Tell whether the frame that raised is the one that had caught `earlier`; else that may be another story."""
    *_, last = _frames(trace)
    return earlier.__traceback__ is not None and earlier.__traceback__.tb_frame is last


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    """Yield the frames from outside to inside."""
    for _ in range(MOST_FRAMES):
        if trace is None:
            return
        yield trace.tb_frame
        trace = trace.tb_next


def _told(trace: TracebackType) -> Died:
    """Return what one traceback tells: the innermost of SGLang's capture functions, the innermost size."""
    said = Died()
    for frame in _frames(trace):
        name = frame.f_code.co_name
        of_runner = _RUNNERS.match(str(frame.f_globals.get("__name__"))) is not None
        if name not in ANYWHERE and not (of_runner and name in ONE_SIZE | AROUND):
            continue
        said.function = _qualified(frame)
        if of_runner:
            _look_at_runner(frame, said)
        if name in ONE_SIZE:
            said.size = _size(frame)
    return said


def _qualified(frame: FrameType) -> str:
    name: str = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # 3.11 on
    return name.rpartition("<locals>.")[2]


def _size(frame: FrameType) -> int | None:
    """Return the argument after `self`, where it is a number with a size's name."""
    code = frame.f_code
    name = code.co_varnames[1] if code.co_argcount > 1 else ""
    return integer(frame.f_locals.get(name)) if name in SIZE_NAMES else None


def _look_at_runner(frame: FrameType, said: Died) -> None:
    runner = frame.f_locals.get("self")
    sizes = sizes_of(runner)
    if sizes is not None:
        said.sizes, said.runner_class = sizes, type(runner).__name__
