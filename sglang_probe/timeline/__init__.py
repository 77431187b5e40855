"""Records in, a Timeline out: `build` makes it, `shown` and `to_json` shape it."""

from sglang_probe.timeline.build import build
from sglang_probe.timeline.liveness import ProcessId, is_alive
from sglang_probe.timeline.model import Timeline
from sglang_probe.timeline.shape import shown, to_json

__all__ = ["ProcessId", "Timeline", "build", "is_alive", "shown", "to_json"]
