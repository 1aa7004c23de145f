"""The texts of the errors in one answer, which may name very many topics, keys or resources.

Role: the first errors are told with their text, further ones by their code only, so that an answer is no multiple of its request.
Clients show the code's own text then. Thread: the one that makes the answer. Lock: none.
"""

from __future__ import annotations

from functools import cache

from barnabas.errors import ErrorCode, KafkaError

MOST_TEXTS = 100


class ErrorTexts:
    """One for each answer."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_TEXTS

    def of(self, error: KafkaError | None) -> str | None:
        """The text to send with an error; None for no error, and for those after the first hundred."""
        if error is None or self._left == 0:
            return None
        self._left -= 1
        return error.message

    def kept(self, error: KafkaError) -> KafkaError:
        """The error, to keep until the answer is made: without the frames that its traceback holds, and after the first hundred one that
        all of its code share."""
        if self._left == 0:
            return _without_text(error.code)
        self._left -= 1
        return error.with_traceback(None)


@cache
def _without_text(code: ErrorCode) -> KafkaError:
    return KafkaError(code)
