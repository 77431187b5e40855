from sglang.srt.distributed.parallel_state import *  # noqa: F403
