from sglang.srt.utils.common import *  # noqa: F403
