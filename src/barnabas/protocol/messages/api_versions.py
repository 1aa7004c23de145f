"""ApiVersions (key 18), versions 0-4, flexible from version 3.

v3 adds the client's software name and version and the feature lists (KIP-511, KIP-584); v4 allows a feature
minimum of 0 (KAFKA-17492). The response header is v0 in every version.
Pure declarations: any thread, no lock.
"""

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message, struct


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    client_software_name: str = field(STRING, "3+", ignorable=True)
    client_software_version: str = field(STRING, "3+", ignorable=True)


@struct
class ApiVersion(Message):
    api_key: int = field(INT16, "0+")
    min_version: int = field(INT16, "0+")
    max_version: int = field(INT16, "0+")


@struct
class SupportedFeatureKey(Message):
    name: str = field(STRING, "3+")
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


@struct
class FinalizedFeatureKey(Message):
    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    error_code: int = field(INT16, "0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field(BOOL, "3+", tag=3, ignorable=True)
