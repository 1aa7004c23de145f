"""The columns of a data frame that is written, checked on the driver before a task runs.

Role: from a schema to the columns that are sent. Names are exact and other columns are left out, as in Spark's connector; only a name that
differs in case is refused, because it is a mistake that would lose data.
Thread: the driver's. Lock: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import BarnabasError
from barnabas.spark.columns import SINK_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["TOPIC", "SinkColumns", "WrongColumns", "sink_columns"]

TOPIC = "topic"


class WrongColumns(BarnabasError, ValueError):
    """The data frame cannot be written as it is; nothing was."""


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """What is sent of each row, and where to: the topic of the option, or that of the row."""

    sent: tuple[str, ...]
    topic: str | None


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """The columns to send; raises `WrongColumns` with everything that is wrong. The option `topic` goes before the column."""
    fields = {field.name: field.dataType.simpleString() for field in schema.fields}
    wanted = [name for name in SINK_COLUMNS if name != TOPIC or topic is None]
    wrong = [text for name in wanted if (text := _fault(name, fields)) is not None]
    if wrong:
        raise WrongColumns("; ".join(wrong))
    return SinkColumns(tuple(name for name in wanted if name in fields and name != TOPIC), topic)


def _fault(name: str, fields: dict[str, str]) -> str | None:
    found = fields.get(name)
    if found is None:
        return _fault_of_absence(name, fields)
    allowed = SINK_COLUMNS[name]
    return None if found in allowed else f"the column {name} is {found}; it must be {' or '.join(allowed)}"


def _fault_of_absence(name: str, fields: dict[str, str]) -> str | None:
    alike = next((other for other in fields if other.lower() == name), None)
    if alike is not None:
        return f"the column {alike} must be written {name}, or be renamed if it is something else"
    has = f"the data frame has {', '.join(fields) or 'no columns'}"
    if name == "value":
        return f"the column value is missing; {has}"
    if name == TOPIC:
        return f"no topic: set the option topic, or add a column topic; {has}"
    return None
