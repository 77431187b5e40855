"""What the probe could not do: collected, attached to the event at hand, and said once a process as its own event."""

from __future__ import annotations

import signal
import threading
from collections import Counter

from sglang_probe.events.envelope import Degradation


class Health:
    """Counts degradations of this process and holds those that the next event shall carry (per thread)."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._local = threading.local()

    def degrade(self, source: str, reason: str, detail: object = None) -> None:
        """Note that `source` failed for `reason` (a short code); `detail` is the value that explains it."""
        self.counts[f"{source}:{reason}"] += 1
        text = None if detail is None else str(detail)[:500]
        pending = self._pending()
        if not any(item["source"] == source and item["reason"] == reason for item in pending):
            pending.append({"source": source, "reason": reason, "detail": text})

    def take(self) -> list[Degradation]:
        """Return what was noted in this thread since the last event, and forget it."""
        pending = self._pending()
        self._local.pending = []
        return pending

    def guard(self, source: str) -> Guard:
        """Return a context in which an exception of the probe's own becomes a degradation."""
        return Guard(self, source)

    def _pending(self) -> list[Degradation]:
        pending: list[Degradation] | None = getattr(self._local, "pending", None)
        if pending is None:
            pending = self._local.pending = []
        return pending


class Guard:
    """Nothing raises into the host: what is raised inside ends here. An interrupt is the host's, and passes."""

    def __init__(self, health: Health, source: str) -> None:
        self._health = health
        self._source = source

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, KeyboardInterrupt) or comes_from_signal_handler(error):
            return False
        self._health.degrade(self._source, "probe_error", f"{type(error).__name__}: {error}")
        return True


def comes_from_signal_handler(error: BaseException) -> bool:
    """Tell whether a handler of the host's raised this while our code ran: then it is the host's, as a timeout is."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
