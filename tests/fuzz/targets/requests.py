"""Requests: the header, then the decoders of every API and version, generated and in C; what was decoded is encoded again.

Input: the payload of a frame.
"""

from __future__ import annotations

import random

from barnabas.errors import MalformedRequest
from barnabas.protocol.api import APIS
from barnabas.protocol.codec import encode
from barnabas.protocol.header import RequestHeader, encode_request_header, parse_request_header, parse_response_header
from tests.fuzz import messages
from tests.fuzz.mutation import mutated_request
from tests.fuzz.target import Instrument, must, outcome


def run(data: bytes) -> None:
    for version in (0, 1):
        outcome((MalformedRequest,), parse_response_header, data, version)
    found = outcome((MalformedRequest,), parse_request_header, data)
    view = outcome((MalformedRequest,), parse_request_header, memoryview(data))
    must(repr(found) == repr(view), f"{found} of bytes, {view} of a view of them")
    header: RequestHeader | None = found.value
    if header is None or header.api is None or not messages.has(header.api, header.api_version):
        return
    must(header.body_offset <= len(data), f"the body begins at {header.body_offset}, behind the {len(data)} bytes")
    again = encode_request_header(header.api_key, header.api_version, header.correlation_id, header.client_id)
    read = parse_request_header(again)
    must(
        (read.client_id, read.correlation_id) == (header.client_id, header.correlation_id),
        f"{header} was written and read as {read}",
    )
    messages.check(header.api.request, header.api_version, data, header.body_offset)


def instrument(with_coverage: Instrument) -> None:
    messages.make_sources(with_coverage, request=True)


def mutate(data: bytes, size: int, seed: int) -> bytes:
    """Half of the time a field of the decoded message is changed; else bytes, as libFuzzer does."""
    import atheris

    rng = random.Random(seed)
    if rng.random() < 0.5:
        changed = mutated_request(rng, data)
        if changed is not None and len(changed) <= size:
            return changed
    return atheris.Mutate(data, size)  # type: ignore[no-any-return]


def seeds() -> dict[str, bytes]:
    """A request of every API in its oldest, its newest and one version between."""
    from tests.protocol.oracle import sample  # loads kio, which takes seconds

    found = {}
    for api in APIS.values():
        for version in sorted({api.min_version, (api.min_version + api.max_version) // 2, api.max_version}):
            head = encode_request_header(api.key, version, 7, "fuzz")
            found[f"{api.name}-{version}"] = head + b"".join(map(bytes, encode(sample(api.request, version), version)))
    return found
