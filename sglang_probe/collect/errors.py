"""The one exception of this room: input that a person must change."""

from __future__ import annotations


class InputError(Exception):
    """What was given cannot be read as probe events.

    `message` says what was found, with the value; `hint` what to do next. The command line prints both and exits 2.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint
