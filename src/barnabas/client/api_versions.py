"""Version negotiation: which version of each API a node and this client both know (PP-18).

Role: `NodeApiVersions` is the answer of one node, reduced to the highest common version per API. Brokers from 2.1 on are served: the
newest ApiVersions request is tried first; a broker that refuses it says so in the oldest form (KIP-511) and is asked again.
Thread: the I/O thread reads and writes; other threads may read, a node's entry is replaced whole. Lock: none.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from barnabas.client.errors import UnsupportedVersion
from barnabas.errors import ErrorCode
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.wire import Buffer

__all__ = [
    "NodeApiVersions",
    "api_versions_request",
    "client_must_wait",
    "decode_api_versions",
    "fallback_version",
]

SOFTWARE_NAME: Final = "barnabas"
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
UNSUPPORTED: Final = int(ErrorCode.UNSUPPORTED_VERSION)
NEWEST_API_VERSIONS: Final = APIS[API_VERSIONS].max_version

# KIP-219: from this version on the broker answers at once and expects the client to be silent for throttle_time_ms; before it, the
# broker held the answer back itself. APIs that are not here never make the client wait.
_CLIENT_WAITS_FROM: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 0,
    ApiKey.ALTER_CLIENT_QUOTAS: 0,
}


def client_must_wait(api_key: int, api_version: int) -> bool:
    """Whether the client itself has to honour the throttle time of this response."""
    first = _CLIENT_WAITS_FROM.get(api_key)
    return first is not None and api_version >= first


@cache
def _software_version() -> str:
    """Looked up once: that reads files, and every connection sends it."""
    try:
        return version(SOFTWARE_NAME)
    except PackageNotFoundError:
        return "unknown"


def api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=_software_version())


def decode_api_versions(api_version: int, buffer: Buffer, offset: int) -> ApiVersionsResponse:
    """A refusal is written in version 0 whatever was asked for, because an old broker cannot know the new form."""
    refused = int.from_bytes(buffer[offset : offset + 2], "big", signed=True) == UNSUPPORTED
    response = decode_response(API_VERSIONS, 0 if refused else api_version, buffer, offset)
    assert isinstance(response, ApiVersionsResponse)
    return response


def fallback_version(response: ApiVersionsResponse) -> int:
    """The version to ask again with after a refusal: the broker's own newest if it says it (2.4 and later), else 0."""
    newest = (row.max_version for row in response.api_keys if row.api_key == API_VERSIONS)
    return min(next(newest, 0), NEWEST_API_VERSIONS)


class NodeApiVersions:
    """What one node supports."""

    __slots__ = ("_ranges", "_usable", "finalized_features", "finalized_features_epoch")

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.finalized_features = {row.name: row.max_version_level for row in response.finalized_features}
        self.finalized_features_epoch = response.finalized_features_epoch
        self._usable = {
            key: min(high, APIS[key].max_version)
            for key, (low, high) in self._ranges.items()
            if key in APIS and max(low, APIS[key].min_version) <= min(high, APIS[key].max_version)
        }

    def supported_range(self, api_key: int) -> tuple[int, int] | None:
        """What the node said of the API, or None when it has none."""
        return self._ranges.get(api_key)

    def usable(self, api_key: int, min_version: int = 0, max_version: int = 32767) -> int:
        """The highest version that both sides know and the request allows; UnsupportedVersion when there is none."""
        highest = self._usable.get(api_key, -1)
        if highest > max_version:
            highest = max_version if max_version >= self._lowest(api_key) else -1
        if highest < min_version or highest < 0:
            raise UnsupportedVersion(self._refusal(api_key, min_version, max_version))
        return highest

    def _lowest(self, api_key: int) -> int:
        return max(self._ranges[api_key][0], APIS[api_key].min_version)

    def _refusal(self, api_key: int, min_version: int, max_version: int) -> str:
        api = APIS[api_key]
        wanted = f"{max(min_version, api.min_version)} to {min(max_version, api.max_version)}"
        ranges = self._ranges.get(api_key)
        if ranges is None:
            return f"the broker has no {api.name} API (this client would use version {wanted})"
        return f"the broker has {api.name} versions {ranges[0]} to {ranges[1]}, this client needs {wanted}"

    def __repr__(self) -> str:
        return f"<NodeApiVersions {self._usable}>"
