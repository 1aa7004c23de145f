"""AlterClientQuotas (key 49), versions 0-1, flexible from version 1.

`remove` deletes the key (KIP-546). Kafka calls the structs of the answer EntryData and EntityData too; here the
answer's entry is EntryDataResponse.
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import BOOL, FLOAT64, INT16, INT32, STRING, Message, array, field, message, struct


@struct
class EntityData(Message):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


@struct
class OpData(Message):
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")
    remove: bool = field(BOOL, "0+")


@struct
class EntryData(Message):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = field(BOOL, "0+")


@struct
class EntryDataResponse(Message):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    entries: list[EntryDataResponse] = array(EntryDataResponse, "0+")
