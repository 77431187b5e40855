"""The launcher's own part: requests in, text out."""

from __future__ import annotations

from sglang._fake.mixins import TokenizerCommunicatorMixin, TokenizerManagerMultiItemMixin
from sglang.srt.server_args import PortArgs, ServerArgs


class TokenizerManager(TokenizerCommunicatorMixin, TokenizerManagerMultiItemMixin):
    def __init__(self, server_args: ServerArgs, port_args: PortArgs) -> None:
        self.server_args, self.port_args = server_args, port_args
        self.max_req_input_len: int | None = None
