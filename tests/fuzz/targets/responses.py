"""Responses of a hostile broker: the decoders of every API and version, in both forms, and what the clients make of the messages.

Input: API key, version (two bytes each), the body.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

from barnabas.client import admin_messages
from barnabas.client.api_versions import NodeApiVersions, decode_api_versions, fallback_version
from barnabas.client.cluster import EMPTY_CLUSTER
from barnabas.client.metadata_answer import LeaderEpochs, is_stale_leader_error, read_answer
from barnabas.errors import KafkaError, MalformedRequest
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.codec import encode
from tests.fuzz import messages
from tests.fuzz.mutation import mutated_response
from tests.fuzz.target import Instrument, outcome

HEAD = struct.Struct(">hh")


def _metadata(answer: Any) -> None:
    cluster, _ = read_answer(answer, EMPTY_CLUSTER, LeaderEpochs(), lambda _: True)
    is_stale_leader_error(cluster)
    repr(cluster)
    admin_messages.read_topics(answer)
    admin_messages.read_cluster(answer)


def _api_versions(answer: Any) -> None:
    NodeApiVersions(answer)
    fallback_version(answer)


READERS: dict[int, Callable[[Any], object]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: admin_messages.read_created_topics,
    ApiKey.DELETE_TOPICS: admin_messages.read_deleted_topics,
    ApiKey.CREATE_PARTITIONS: admin_messages.read_created_partitions,
    ApiKey.DESCRIBE_CONFIGS: admin_messages.read_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: admin_messages.read_altered_configs,
    ApiKey.DELETE_RECORDS: admin_messages.read_deleted_records,
    ApiKey.DESCRIBE_LOG_DIRS: admin_messages.read_log_dirs,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: admin_messages.read_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: admin_messages.read_altered_quotas,
}
"""What the clients do with an answer before anybody looks at it."""


def run(data: bytes) -> None:
    if len(data) < HEAD.size:
        return
    key, version = HEAD.unpack_from(data)
    api = APIS.get(key)
    if api is None or not messages.has(api, version):
        return
    message = messages.check(api.response, version, data, HEAD.size)
    if message is not None and key in READERS:
        outcome((KafkaError,), READERS[key], message)
    if key == ApiKey.API_VERSIONS:
        outcome((MalformedRequest,), decode_api_versions, version, data, HEAD.size)


def instrument(with_coverage: Instrument) -> None:
    messages.make_sources(with_coverage, request=False)


def mutate(data: bytes, size: int, seed: int) -> bytes:
    """Half of the time a field of the decoded message is changed; else bytes, as libFuzzer does."""
    import atheris

    rng = random.Random(seed)
    if rng.random() < 0.5:
        changed = mutated_response(rng, data)
        if changed is not None and len(changed) <= size:
            return changed
    return atheris.Mutate(data, size)  # type: ignore[no-any-return]


def seeds() -> dict[str, bytes]:
    """A response of every API in its oldest, its newest and one version between."""
    from tests.protocol.oracle import sample  # loads kio, which takes seconds

    found = {}
    for api in APIS.values():
        for version in sorted({api.min_version, (api.min_version + api.max_version) // 2, api.max_version}):
            body = b"".join(map(bytes, encode(sample(api.response, version), version)))
            found[f"{api.name}-{version}"] = HEAD.pack(api.key, version) + body
    return found
