"""The agent of this process: what the hooks call, and how a call becomes events."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from sglang_probe.agent import exceptions, messages, provenance
from sglang_probe.agent.calls import Attributes, Call
from sglang_probe.agent.health import Health
from sglang_probe.agent.hooks import Hooks
from sglang_probe.agent.identity import Identity
from sglang_probe.agent.nvml import Nvml
from sglang_probe.agent.pipeline import Pipeline
from sglang_probe.agent.readers import reader_of
from sglang_probe.agent.readings import Readings, delta
from sglang_probe.agent.runs import Run, join_run
from sglang_probe.agent.writer import Writer
from sglang_probe.catalogue.targets import Target
from sglang_probe.events import names
from sglang_probe.events.envelope import READING_KEYS
from sglang_probe.events.names import NOT_YET_REASONS as NOT_YET

_agent: Agent | None = None
_starting = threading.RLock()  # two threads may import target modules; nothing is written under it but the first lines


def agent() -> Agent:
    """Return the agent of this process, starting it at the first call: when the first target module has loaded."""
    global _agent
    with _starting:
        if _agent is None:
            _agent = Agent(join_run())
            os.register_at_fork(after_in_child=_agent.after_fork)
            _agent.report_start()
        return _agent


class Agent:
    """Turns calls of hooked functions into events. No method raises; what fails is degraded and said."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.health = Health()
        self.identity = Identity(run.run_id)
        self.writer = Writer(run)
        self._nvml = Nvml(self.health)
        self._readings = Readings(self.health, self._nvml)
        self._pipeline = Pipeline(self.writer, self.identity.fields)
        self._hooks = Hooks(self)
        self._local = threading.local()
        self._ids = itertools.count(1)
        self._capturing = 0
        self._said_args = False
        self._said_health: tuple[int, dict[str, int]] = (0, {})
        self._roles_seen = False

    def hook(self, module: ModuleType) -> None:
        """Hook the targets of a module that has just loaded."""
        self._hooks.install(module)

    # Calls: begin, then failed or ended, each guarded as a whole: SGLang's function runs exactly once whatever we do.

    def begin(
        self,
        target: Target,
        wrapped: Callable[..., Any],
        instance: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Call | None:
        """Open a span for a call, or return None where this call is not for us."""
        call: Call | None = None
        with self.health.guard("hook"):
            parent = self._current()
            if target.root_only and parent is not None:
                return None
            if target.outermost and any(open_.target.role == target.role for open_ in self._stack()):
                return None
            call = Call(self, target, wrapped, instance, args, kwargs, parent)
            self._open(call)
            return call
        if call is not None:
            self._abandon(call)
        return None

    def ended(self, call: Call | None, result: Any) -> None:
        """Close the span of a call that returned."""
        if call is not None:
            call.result = result
            with self.health.guard("hook"):
                self._close(call, "end")

    def failed(self, call: Call | None, error: BaseException) -> None:
        """Close the span of a call that raised; the exception itself is not touched."""
        if call is not None:
            call.error = error
            try:
                with self.health.guard("hook"):
                    self._close(call, "error")
            finally:
                call.error = None

    def _open(self, call: Call) -> None:
        target = call.target
        exceptions.forget(self._local)  # a call that begins is no longer on an exception's way out
        self._tell_worker(call)
        self._stack().append(call)
        call.began_ns = time.monotonic_ns()
        attributes = self._read(call, reader_of(target).begin)
        if target.use != "span":
            return
        call.span_id = f"{next(self._ids):x}"
        if target.role == "graph.capture":
            self._capturing += 1
        # Nothing is collective yet where a rank begins: who holds the device already is asked here, and else at ends.
        call.before = self.reading(processes=target.role == "scheduler.init")
        self._emit_call(call, "begin", attributes, before=call.before)
        call.began_ns = time.monotonic_ns()  # the span is the call, without our own reading before it

    def _abandon(self, call: Call) -> None:
        """Undo what opening a span had begun when it failed: SGLang's function runs without one."""
        if any(opened is call for opened in self._stack()):
            self._pop(call)
        if call.span_id and call.target.role == "graph.capture":
            self._capturing -= 1

    def _close(self, call: Call, kind: str) -> None:
        duration = time.monotonic_ns() - call.began_ns
        target = call.target
        try:
            if target.use == "observe":
                self._read(call, reader_of(target).end)
                return
            if kind == "end":
                exceptions.forget(self._local)
            if target.role == "graph.capture":
                self._capturing -= 1
            after = self.reading(processes=not target.in_collective)
            attributes = self._read(call, reader_of(target).end)
            if target.use == "sample":
                call.span_id = f"{next(self._ids):x}"
                self._emit_call(call, "sample", attributes, after=after)
                return
            self._emit_call(
                call,
                kind,
                attributes,
                before=call.before,
                after=after,
                delta=delta(call.before, after),
                duration_ns=duration,
                outcome="ok" if kind == "end" else "error",
                exception=exceptions.describe(call.error, self._local) if call.error is not None else None,
            )
        finally:
            self._pop(call)
            if target.role == "scheduler.init" and not self._stack():
                self._report_health()

    def _read(self, call: Call, reader: Callable[[Call], Attributes]) -> Attributes:
        """Ask a reader; a release that has moved what it reads costs that attribute, not the event."""
        with self.health.guard(f"reader:{call.target.path}"):
            return reader(call)
        return {}

    def _tell_worker(self, call: Call) -> None:
        parent, subject = call.parent, call.subject
        is_draft = call.kwargs.get("is_draft_worker", getattr(subject, "is_draft_worker", None))
        if call.target.worker is not None:
            call.worker = call.target.worker
        elif isinstance(is_draft, bool):
            call.worker = "draft" if is_draft else "target"
            index = getattr(subject, "draft_model_idx", None)
            call.draft_index = index if isinstance(index, int) and is_draft else None
        elif parent is not None:
            call.worker, call.draft_index = parent.worker, parent.draft_index

    def _emit_call(self, call: Call, kind: str, attributes: Attributes, **fields: Any) -> None:
        role = call.target.role or ""
        self._roles_seen = self._roles_seen or role not in ("", "scheduler.init")
        degraded = self.health.take()
        level = "error" if kind == "error" else "warning" if degraded else "info"
        self._pipeline.emit(
            level,
            names.memory_event(role, kind),
            role=role,
            kind=kind,
            message=messages.of_call(role, kind, attributes, fields),
            worker=call.worker,
            draft_index=call.draft_index,
            span={"id": call.span_id, "parent": self._parent_id(call)},
            attributes={"target": call.target.name, **attributes},
            degraded=degraded,
            **fields,
        )

    @staticmethod
    def _parent_id(call: Call) -> str | None:
        parent = call.parent
        while parent is not None and not parent.span_id:  # observers have no span of their own
            parent = parent.parent
        return None if parent is None else parent.span_id

    # Readings for the hooks and the readers.

    def reading(self, *, processes: bool) -> dict[str, Any]:
        """Return a reading of this rank's device, empty while another thread captures graphs."""
        identity = self.identity
        stack = self._stack()
        mine = any(call.target.role == "graph.capture" for call in stack)
        if self._capturing and not mine:
            self.health.degrade("readings", "graph_capture", "another thread is capturing CUDA graphs")
            return dict.fromkeys(READING_KEYS)
        return self._readings.read(identity.kind, identity.index, identity.uuid, processes=processes)

    def device_free(self) -> int | None:
        """Return the bytes free on this rank's device."""
        return self._readings.device_free(self.identity.kind, self.identity.index)

    def private_pools(self) -> int | None:
        """Return the bytes torch holds in private (CUDA graph) pools."""
        return self._readings.private_pools(self.identity.index)

    # Reports about the process itself.

    def report_start(self) -> None:
        """Write what this process is, the first line of its file."""
        with self.health.guard("provenance"):
            attributes = provenance.process_start(self.run)
            if provenance.is_launcher():
                self.identity.role = "launcher"
            self._emit_probe(names.PROCESS_START, f"{self.identity.role} process started", attributes)
            given = provenance.given_arguments()
            if given is not None:
                self._emit_probe(names.SERVER_ARGS, "server arguments as given", {"given": given, "effective": None})

    def report_target(self, target: Target, state: str, reason: str | None, body: str | None) -> None:
        """Write what became of one row of the table."""
        if state in ("failed", "displaced"):
            self.health.degrade("hook", f"target_{state}", f"{target.name}: {reason}")
        with self.health.guard("hook"):
            attributes = {
                "target": target.name,
                "role": target.role,
                "state": state,
                "reason": reason,
                "fingerprint": body,
            }
            self._emit_probe(names.TARGET, f"{target.path} {state}", attributes)

    def report_displaced(self) -> None:
        """Write which hooks somebody has replaced since."""
        reason = "calls no longer reach the hook: another tool replaced it, or put the original back"
        for target in self._hooks.displaced():
            self.report_target(target, "displaced", reason, None)

    def _report_health(self) -> None:
        """After a root span: write what was lost or failed since the last time, so that the file itself tells."""
        counts = {name: n for name, n in self.health.counts.items() if name.partition(":")[2] not in NOT_YET}
        lost = self.writer.dropped
        blind = not self._roles_seen
        if (lost, counts) == self._said_health and not blind:
            return
        self._said_health = (lost, counts)
        attributes = {"counts": counts, "dropped_events": lost, "no_memory_role": blind}
        level = "error" if blind else "warning"
        message = "no memory role was hooked in this rank" if blind else "what the probe missed so far"
        self._pipeline.emit(level, names.DEGRADED, message=message, attributes=attributes, degraded=self.health.take())

    def report_role(self, call: Call) -> None:
        """Write what SGLang uses this process for."""
        role = self.identity.role
        self._emit_probe(names.PROCESS_ROLE, f"this process is the {role}", {"role": role, "target": call.target.name})

    def report_server_args(self, server_args: Any) -> None:
        """Write SGLang's resolved arguments, once a process."""
        if server_args is None or self._said_args:
            return
        self._said_args = True
        effective = provenance.effective_arguments(server_args)
        self._emit_probe(names.SERVER_ARGS, "server arguments as resolved", {"given": None, "effective": effective})

    def _emit_probe(self, event: str, message: str, attributes: Attributes) -> None:
        degraded = self.health.take()
        self._pipeline.emit(
            "warning" if degraded else "info", event, message=message, attributes=attributes, degraded=degraded
        )

    # Threads and forks.

    def after_fork(self) -> None:
        """In a forked child: a file, a sequence and a stack of its own, no rank, and no NVML."""
        self._local = threading.local()
        self._capturing = 0
        for step in (self.identity.renew, self._pipeline.restart, self._nvml.forget, self.writer.forget):
            with self.health.guard("fork"):
                step()

    def _stack(self) -> list[Call]:
        stack: list[Call] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def _current(self) -> Call | None:
        stack = self._stack()
        return stack[-1] if stack else None

    def _pop(self, call: Call) -> None:
        stack = self._stack()
        while stack and stack.pop() is not call:
            pass
        if not stack:
            exceptions.forget(self._local)
