"""AlterConfigs (key 33), versions 0-2, flexible from version 2.

Deprecated full replace; v2 is the first flexible version.
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, field, message, struct


@struct
class AlterableConfig(Message):
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


@struct
class AlterConfigsResource(Message):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = field(BOOL, "0+")


@struct
class AlterConfigsResourceResponse(Message):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    throttle_time_ms: int = field(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
