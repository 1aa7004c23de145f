"""DescribeClientQuotas (key 48), versions 0-1, flexible from version 1.

Match types: 0 exact, 1 default, 2 any (KIP-546).
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Message, array, field, message, struct


@struct
class ComponentData(Message):
    entity_type: str = field(STRING, "0+")
    match_type: int = field(INT8, "0+")
    match: str | None = field(STRING, "0+", nullable="0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = field(BOOL, "0+")


@struct
class EntityData(Message):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


@struct
class ValueData(Message):
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")


@struct
class EntryData(Message):
    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")
