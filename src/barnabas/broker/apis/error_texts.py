"""The texts of the errors in one answer, which may name very many topics, keys or resources.

Role: the first errors are told with their text, further ones by their code only, so that an answer is no multiple of its request.
Clients show the code's own text then. Thread: the one that makes the answer. Lock: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.errors import KafkaError

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
