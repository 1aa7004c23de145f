"""FindCoordinator (key 10), versions 0-6, flexible from version 3.

v1 kinds of key, throttle time, error message; v4 several keys at once (KIP-699); v5 TRANSACTION_ABORTABLE (KIP-890);
v6 share groups (KIP-932). Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, array, field, message, struct


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    key: str = field(STRING, "0-3")
    key_type: int = field(INT8, "1+")
    coordinator_keys: list[str] = array(STRING, "4+")


@struct
class Coordinator(Message):
    key: str = field(STRING, "4+")
    node_id: int = field(INT32, "4+")
    host: str = field(STRING, "4+")
    port: int = field(INT32, "4+")
    error_code: int = field(INT16, "4+")
    error_message: str | None = field(STRING, "4+", nullable="4+", default="")


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0-3")
    error_message: str | None = field(STRING, "1-3", nullable="1-3", default="", ignorable=True)
    node_id: int = field(INT32, "0-3")
    host: str = field(STRING, "0-3")
    port: int = field(INT32, "0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
