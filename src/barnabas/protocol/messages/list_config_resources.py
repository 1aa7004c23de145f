"""ListConfigResources (key 74), versions 0-1, flexible from version 0.

v0 lists client-metrics resources only; v1 any type (KIP-1142).
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, array, field, message, struct


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Message):
    resource_types: list[int] = array(INT8, "1+")


@struct
class ConfigResource(Message):
    resource_name: str = field(STRING, "0+")
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
