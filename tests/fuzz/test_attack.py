"""The whole broker under mutated frames of every API; `make fuzz` sends a million."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.api import APIS
from barnabas.protocol.codec import decode_request, encode
from barnabas.protocol.header import encode_request_header, parse_request_header
from tests.fuzz.attack import attack
from tests.fuzz.mutation import mutate_bytes, mutated_request, swap_version
from tests.fuzz.work import Work

FRAMES = 5_000
DEADLINE_SECONDS = 60.0


@pytest.mark.timeout(600)
def test_mutated_frames_of_every_api_disturb_nobody() -> None:
    """RP-29: a bystander is answered, nothing is logged as an error, memory and descriptors come back, the stop is in order and the log
    is whole."""
    report = attack(FRAMES, 18, DEADLINE_SECONDS)
    assert not report.problems, str(report)
    assert report.frames >= FRAMES
    assert report.counts["closed"]


def payloads() -> list[bytes]:
    work = Work(random.Random(1), ())
    return [
        encode_request_header(api.key, version, 1, "fuzz")
        + b"".join(map(bytes, encode(work.message(api.request, version), version)))
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    ]


def test_what_is_to_be_broken_works() -> None:
    for payload in payloads():
        header = parse_request_header(payload)
        decode_request(header.api_key, header.api_version, payload, header.body_offset)


def test_changed_fields_make_requests_that_can_be_read() -> None:
    rng = random.Random(2)
    for payload in payloads():
        changed = [mutated_request(rng, payload) for _ in range(20)]
        assert any(changed)
        for each in changed:
            if each is not None:
                header = parse_request_header(each)
                decode_request(header.api_key, header.api_version, each, header.body_offset)


def test_mutations_are_the_same_for_the_same_seed() -> None:
    def mutated(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [mutate_bytes(rng, swap_version(rng, payload)) for payload in payloads()]

    assert mutated(5) == mutated(5)
    assert mutated(5) != mutated(6)
