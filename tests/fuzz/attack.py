"""Mutated frames of every API, over real connections, to a live broker, with a bystander beside them.

The broker must answer the bystander all the time, log no error, keep its memory, give connections and descriptors back, stop in order, and
leave a log directory that `barnabas log verify` finds nothing wrong with.

Role: `Attack` sends; `attack` is a whole run. Thread: the caller's; the bystander has its own. Lock: none.
"""

from __future__ import annotations

import os
import random
import re
import selectors
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import psutil

from barnabas.errors import BarnabasError
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.codec import decode_response, encode, encode_request_frame
from barnabas.protocol.header import encode_request_header, parse_response_header
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.schema import Message
from bench.brokers import OURS, BrokerProcess
from tests import wire
from tests.fuzz import mutation
from tests.fuzz.mutation import mutate_bytes, mutated_request, swap_version
from tests.fuzz.probe import CLIENT, TOPIC, Probe
from tests.fuzz.work import PARTITIONS, TEXTS, TOPICS, Work
from tests.live_broker import error_lines
from tests.waiting import wait_until

LANES = 16
PATIENCE_SECONDS = 0.5
"""After which a connection is given up whose answer does not come: a legal Fetch may wait for minutes."""
TIDY_EVERY = 5_000
SETTINGS = {"auto.create.topics.enable": "false", "log.retention.ms": "-1", "log.segment.bytes": "1048576"}
TOPIC_CONFIGS = {
    "fuzz-compacted": {"cleanup.policy": "compact"},
    "fuzz-timed": {"message.timestamp.type": "LogAppendTime"},
}
MEMORY_GROWTH = 200 << 20
SPARE_DESCRIPTORS = 40
_PING_ID = 0x7A7A7A7A
_SIZE = struct.Struct(">i")


def _frame(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload


PING = _frame(encode_request_header(ApiKey.API_VERSIONS, 0, _PING_ID, "fuzz"))


class Lane:
    """One connection: the next frames are sent when the ping behind the last ones was answered."""

    def __init__(self, port: int) -> None:
        self.sock = wire.connect(port, timeout=5)
        self.sock.setblocking(False)
        self.deadline = 0.0
        self.waiting = False
        self._received = bytearray()

    def send(self, data: bytes, pieces: list[int]) -> None:
        """All of it, in pieces; what the broker does not take at once is not sent."""
        for start, stop in zip([0, *pieces], [*pieces, len(data)], strict=True):
            try:
                if self.sock.send(data[start:stop]) < stop - start:
                    break
            except BlockingIOError:
                break
        self.waiting = True
        self.deadline = time.monotonic() + PATIENCE_SECONDS

    def receive(self) -> bool:
        """Take what came; False when the connection has ended."""
        try:
            data = self.sock.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        while len(self._received) >= 8:
            size, correlation = struct.unpack_from(">ii", self._received)
            if len(self._received) < size + 4:
                break
            del self._received[: size + 4]
            if correlation == _PING_ID:
                self.waiting = False
        return bool(data)


@dataclass
class Attack:
    """Sends mutated frames; the same for the same seed, as far as the broker answers alike."""

    port: int
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._work = Work(self._rng, ())
        self._messages = [
            (api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
        ]
        self._texts = (*mutation.TEXTS, *TEXTS)
        self._selector = selectors.DefaultSelector()
        self._lanes: list[Lane] = []

    # What is sent.

    def payload(self) -> bytes:
        """A request, broken in one of the ways."""
        rng = self._rng
        api, version = rng.choice(self._messages)
        message = self._work.message(api.request, version)
        head = encode_request_header(api.key, version, rng.randrange(1 << 30), "fuzz")
        payload = head + b"".join(map(bytes, encode(message, version)))
        choice = rng.random()
        if choice < 0.45:
            return mutated_request(rng, payload, self._texts) or payload
        if choice < 0.80:
            return payload[:4] + mutate_bytes(rng, payload[4:])
        if choice < 0.90:
            return swap_version(rng, payload)
        if choice < 0.95 and api.key == ApiKey.PRODUCE:
            return payload
        return mutate_bytes(rng, payload)

    def bundle(self) -> tuple[bytes, int]:
        """Some frames, then the ping; and how many frames. One in twenty has a wrong size."""
        rng = self._rng
        payloads = [self.payload() for _ in range(rng.choice((1, 1, 2, 5)))]
        data = b"".join(map(_frame, payloads))
        if rng.random() < 0.05:
            size = rng.choice((-1, 0, 2**31 - 1, 104_857_600, 104_857_601, rng.randrange(-(2**31), 2**31)))
            data += _SIZE.pack(size) + payloads[0][: rng.randrange(len(payloads[0]) + 1)]
        return data + PING, len(payloads)

    # How it is sent.

    def run(self, frames: int) -> None:
        """Send about so many frames."""
        done = 0
        self._lanes = [self._open() for _ in range(LANES)]
        try:
            while done < frames:
                if done // TIDY_EVERY != (done - 1) // TIDY_EVERY:
                    self._work.topic_ids = tidy(self.port)
                for number, lane in enumerate(self._lanes):
                    if not lane.waiting:
                        done += self._next(number, lane)
                self._collect()
        finally:
            for lane in self._lanes:
                self._close(lane)
            self._selector.close()
        self.counts["frames"] += done

    def _next(self, number: int, lane: Lane) -> int:
        data, frames = self.bundle()
        cuts = sorted(self._rng.randrange(len(data)) for _ in range(self._rng.choice((0, 0, 1, 3))))
        try:
            lane.send(data, cuts)
        except OSError:
            self._reopen(number, "closed")
        return frames

    def _collect(self) -> None:
        """Wait for an answer, a closed connection or the end of somebody's patience."""
        free = any(not lane.waiting for lane in self._lanes)
        for key, _ in self._selector.select(0 if free else 0.05):
            if not self._lanes[key.data].receive():
                self._reopen(key.data, "closed")
        now = time.monotonic()
        for number, lane in enumerate(self._lanes):
            if lane.waiting and lane.deadline < now:
                self._reopen(number, "given up")

    def _open(self) -> Lane:
        lane = Lane(self.port)
        self._selector.register(lane.sock, selectors.EVENT_READ, len(self._lanes))
        return lane

    def _reopen(self, number: int, reason: str) -> None:
        self.counts[reason] += 1
        lane = Lane(self.port)
        self._close(self._lanes[number])
        self._lanes[number] = lane
        self._selector.register(lane.sock, selectors.EVENT_READ, number)

    def _close(self, lane: Lane) -> None:
        self._selector.unregister(lane.sock)
        if self._rng.random() < 0.3:  # with a reset
            lane.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        lane.sock.close()


# -------------------------------------------------------------------- the topics


def _ask(sock: socket.socket, message: Message, version: int) -> Message:
    key = message.schema.api_key or 0
    answer = wire.ask(sock, b"".join(map(bytes, encode_request_frame(message, version, 1, "fuzz-tidy"))))
    if not answer:
        raise BarnabasError(f"{message.schema.name} was not answered")
    offset = parse_response_header(answer, APIS[key].response_header_version(version))[1]
    return decode_response(key, version, answer, offset)


def tidy(port: int) -> tuple[uuid.UUID, ...]:
    """Delete the topics that the attack has made, make those anew that it has deleted; the ids of what is there."""
    keep = (*TOPICS, TOPIC)
    with wire.connect(port, timeout=60) as sock:
        known = {topic.name: topic.topic_id for topic in _ask(sock, MetadataRequest(topics=None), 12).topics}  # type: ignore[attr-defined]
        doomed = [DeleteTopicState(name=name) for name in known if name not in keep]
        if doomed:
            _ask(sock, DeleteTopicsRequest(topics=doomed, timeout_ms=30_000), 6)
        missing = [_new_topic(name) for name in keep if name not in known]
        if missing:
            _ask(sock, CreateTopicsRequest(topics=missing, timeout_ms=30_000), 7)
        answer = _ask(sock, MetadataRequest(topics=None), 12)
        return tuple(topic.topic_id for topic in answer.topics if topic.name in TOPICS)  # type: ignore[attr-defined]


def _new_topic(name: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in TOPIC_CONFIGS.get(name, {}).items()]
    return CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, configs=configs)


def unthrottle_the_probe(port: int) -> None:
    """Quotas of its own, because the attack sets some for everybody."""
    entity = [EntityData(entity_type="client-id", entity_name=CLIENT)]
    ops = [OpData(key=key, value=1e12) for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage")]
    with wire.connect(port) as sock:
        _ask(sock, AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)


# -------------------------------------------------------------------- a whole run


@dataclass(frozen=True, slots=True)
class Report:
    """What a run showed; `problems` is empty when all promises were kept."""

    frames: int
    seconds: float
    counts: Counter[str]
    probe: str
    memory_mb: tuple[int, int]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        begin, end = self.memory_mb
        text = f"{'broker':12} {self.frames:>9} frames  {self.frames / self.seconds:.0f}/s  closed {self.counts['closed']}, "
        text += f"given up {self.counts['given up']}  probe {self.probe}  memory {begin} -> {end} MB  "
        return text + ("no finding" if not self.problems else "FINDING: " + "\n".join(self.problems))


def attack(frames: int, seed: int, deadline: float) -> Report:
    """Start a broker, attack it, stop it, look at what it left."""
    with BrokerProcess(OURS, SETTINGS) as broker:
        port = broker.place.port
        tidy(port)
        unthrottle_the_probe(port)
        process = psutil.Process(broker.process.pid)
        attackers = Attack(port, seed)
        before = process.memory_info().rss, process.num_fds()
        probe = Probe(port, deadline)
        probe.start()
        began = time.monotonic()
        problems: list[str] = []
        try:
            attackers.run(frames // 4)
            tidy(port)
            before = process.memory_info().rss, process.num_fds()
            attackers = Attack(port, seed + 1, attackers.counts)
            attackers.run(frames - frames // 4)
        except (OSError, BarnabasError) as error:
            problems += [f"the broker cannot be talked to: {error!r}", broker.log_tail(30)]
        seconds = time.monotonic() - began
        problem = probe.stop()
        problems += [problem] if problem else []
        memory = _look_at_process(broker, process, before, problems) if broker.process.poll() is None else 0
        _look_behind(broker, problems)
        done = (before[0] >> 20, memory >> 20)
        return Report(attackers.counts["frames"], seconds, attackers.counts, probe.figures, done, tuple(problems))


def _look_at_process(
    broker: BrokerProcess, process: psutil.Process, before: tuple[int, int], problems: list[str]
) -> int:
    """Connections, descriptors and memory of the broker, which still runs; its memory."""
    tidy(broker.place.port)
    rest = 1  # what listens has none, the last one may still be closing
    wait_until(lambda: len(_connections(process)) <= rest, 30, "the end of all connections of the attack")
    wait_until(lambda: process.num_fds() <= before[1] + SPARE_DESCRIPTORS, 30, f"{before[1]} descriptors as before")
    memory = process.memory_info().rss
    if memory > before[0] + MEMORY_GROWTH:
        problems.append(f"memory grew from {before[0] >> 20} to {memory >> 20} MB")
    return int(memory)


def _connections(process: psutil.Process) -> list[object]:
    return [each for each in process.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED]


def _look_behind(broker: BrokerProcess, problems: list[str]) -> None:
    """The end of the broker, its log and its data."""
    code = broker.stop()
    if code:
        problems.append(f"exit code {code}")
    problems += _errors_in(broker)
    verify = [sys.executable, "-m", "barnabas", "log", "verify", str(broker.place.directory / "data")]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))
    if done.returncode:
        problems.append(f"log verify: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _errors_in(broker: BrokerProcess) -> list[str]:
    """How often each kind of error stands in the broker's log: the last line of its traceback, with numbers left out."""
    lines = broker.log_file.read_text(errors="replace").splitlines()
    if not error_lines(broker):
        return []
    ends = [
        line for before, line in pairwise(lines) if before.startswith("  ") and not line.startswith((" ", "20", "^"))
    ]
    found = Counter(re.sub(r"\d+", "N", line)[:300] for line in ends if line.strip())
    found.update(re.sub(r"\d+", "N", line)[:300] for line in error_lines(broker) if not line.startswith("Traceback"))
    return [f"{count} × {text}" for text, count in found.most_common(12)]


def attack_and_report(frames: int, seed: int, deadline: float = 30.0) -> int:
    """For `make fuzz`: print a line; how many findings."""
    report = attack(frames, seed or random.randrange(1 << 30), deadline)
    print(report, flush=True)
    return len(report.problems)
