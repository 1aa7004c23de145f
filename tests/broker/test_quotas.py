"""Client quotas (RP-39): Kafka's windows and formula, its order of precedence, within ten per cent over ten windows."""

from __future__ import annotations

import itertools
import time
import timeit
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.quotas import MAX_NAME, ClientQuotas, ClientRate, ResourceQuota
from barnabas.clock import ManualClock
from barnabas.metrics import Registry

USER = "user"
CLIENT = "client-id"


class FakeRequest:
    """What quotas read and write of a request."""

    def __init__(self, user: str = "alice", client_id: str | None = "app") -> None:
        self.connection = SimpleNamespace(principal=f"User:{user}")
        self.header = SimpleNamespace(client_id=client_id)
        self.dequeue_ns = 0
        self.local_done_ns = 0
        self.throttle_ms = 0
        self.throttle_kind = ""

    def throttle(self, throttle_ms: int, kind: str) -> None:
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttle_kind = throttle_ms, kind


def request(*arguments: Any) -> Any:
    return FakeRequest(*arguments)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quotas(clock: ManualClock) -> ClientQuotas:
    return ClientQuotas(clock)


def test_without_a_quota_nothing_is_enabled_and_nothing_is_charged(quotas: ClientQuotas) -> None:
    """RP-39."""
    assert not quotas.enabled
    assert quotas.charge_produce(request(), 10**9, exempt=False) == 0
    assert quotas.charge_fetch(request(), 10**9) == 0
    assert quotas.max_fetch_bytes(request()) == float("inf")
    assert list(quotas.samples()) == []


@pytest.mark.serial
def test_the_question_whether_there_are_quotas_costs_less_than_300_ns(quotas: ClientQuotas) -> None:
    """RP-39: what Produce pays when none is configured."""
    rounds = 20_000
    best = min(timeit.repeat("q.enabled and 1", globals={"q": quotas}, number=rounds, repeat=5)) / rounds
    assert best < 0.3e-6


def test_the_throttle_time_is_kafkas_formula(clock: ManualClock) -> None:
    """RP-39: 20 000 bytes at 1000 B/s, first record: W = 10 s, O = 2000 B/s, X = (O-T)/T * W = 10 s."""
    rate = ClientRate(("u", "c"), limit=1000, window_count=11, window_ms=1000)
    now = clock.monotonic_ns() // 1_000_000
    assert rate.record(10_000, now) == 0  # exactly the limit over ten windows
    assert rate.record(10_000, now) == 10_000
    # Half a second later the window is 10.5 s: (20000/10.5 - 1000)/1000 * 10500
    assert rate.record(0, now + 500) == 9_500


def test_windows_that_are_over_are_forgotten(clock: ManualClock) -> None:
    rate = ClientRate(("u", "c"), limit=1000, window_count=11, window_ms=1000)
    now = 5_000_000
    rate.record(1_000_000, now)
    assert rate.rate(now + 10_999) > 0
    assert rate.rate(now + 11_000) == 0
    assert rate.record(100, now + 11_000) == 0


def test_taking_back_leaves_the_sum_as_it_was() -> None:
    rate = ClientRate(("u", "c"), limit=1000, window_count=11, window_ms=1000)
    rate.record(500, 1_000)
    before = rate.rate(2_000)
    rate.record(10**6, 2_000)
    rate.unrecord(10**6, 2_000)
    assert rate.rate(2_000) == before


@pytest.mark.parametrize("chunk", [200, 5_000, 40_000])
def test_a_client_that_obeys_gets_its_rate_within_ten_per_cent_over_ten_windows(
    quotas: ClientQuotas, clock: ManualClock, chunk: int
) -> None:
    """RP-39, fault row 35: produces as fast as it may, waits for as long as it is told to."""
    quotas.update(((USER, "alice"),), "producer_byte_rate", 10_000)
    history: list[tuple[float, int]] = []
    sent, seconds = 0, 0.0
    while seconds < 200:
        one = request()
        throttle_ms = quotas.charge_produce(one, chunk, exempt=False)
        assert one.throttle_ms == throttle_ms
        sent += chunk
        history.append((seconds, sent))
        clock.advance(throttle_ms / 1000 + 0.0001)
        seconds = clock.monotonic_ns() / 1e9 - 1
    # The first burst fills the windows once; it is no part of the steady rate.
    (begin, before), (end, after) = next(entry for entry in history if entry[0] > 30), history[-1]
    assert (after - before) / (end - begin) == pytest.approx(10_000, rel=0.1)


def test_a_throttled_fetch_is_not_counted_and_the_consumer_gets_its_rate(
    quotas: ClientQuotas, clock: ManualClock
) -> None:
    """RP-39: the answer is empty then, so its bytes are taken back."""
    quotas.update({CLIENT: "app"}, "consumer_byte_rate", 10_000)
    assert quotas.max_fetch_bytes(request()) == 100_000
    got, start, elapsed = 0, clock.monotonic_ns(), 0.0
    while elapsed < 100:
        throttle_ms = quotas.charge_fetch(request(), 4_000)
        if throttle_ms == 0:
            got += 4_000
        clock.advance(throttle_ms / 1000 + 0.001)
        elapsed = (clock.monotonic_ns() - start) / 1e9
    assert got / elapsed == pytest.approx(10_000, rel=0.1)


def test_request_time_is_a_percentage_and_throttles_at_most_one_window(
    quotas: ClientQuotas, clock: ManualClock
) -> None:
    """RP-39: 10 % of one thread, a request of 5 s."""
    quotas.update({USER: None}, "request_percentage", 10)
    one = request()
    one.dequeue_ns = clock.monotonic_ns()
    clock.advance(5)
    assert quotas.charge_time(one) == 1000
    assert (one.throttle_ms, one.throttle_kind) == (1000, "Request")
    other = request("bob")
    other.dequeue_ns = clock.monotonic_ns()
    assert quotas.charge_time(other) == 0


def test_acks_0_is_exempt_from_the_request_quota(quotas: ClientQuotas, clock: ManualClock) -> None:
    quotas.update({USER: None}, "request_percentage", 1)
    one = request()
    one.dequeue_ns = clock.monotonic_ns()
    clock.advance(5)
    assert quotas.charge_produce(one, 10, exempt=True) == 0
    assert quotas.charge_produce(one, 10, exempt=False) == 1000


def test_the_time_of_other_apis_goes_into_their_answer(quotas: ClientQuotas, clock: ManualClock) -> None:
    quotas.update({USER: "alice"}, "request_percentage", 1)
    one, message = request(), SimpleNamespace(throttle_time_ms=0)
    one.dequeue_ns = clock.monotonic_ns()
    clock.advance(5)
    quotas.charge_other(one, message)
    assert message.throttle_time_ms == 1000


LEVELS: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({USER: "alice", CLIENT: "app"}, ("alice", "app")),
    ({USER: "alice", CLIENT: None}, ("alice", "app")),
    ({USER: "alice"}, ("alice", "")),
    ({USER: None, CLIENT: "app"}, ("alice", "app")),
    ({USER: None, CLIENT: None}, ("alice", "app")),
    ({USER: None}, ("alice", "")),
    ({CLIENT: "app"}, ("", "app")),
    ({CLIENT: None}, ("", "app")),
]


def test_the_most_specific_of_all_levels_wins() -> None:
    """RP-39: for every pair of Kafka's eight levels the more specific one applies, whatever the order of setting."""
    for (high, low), reverse in itertools.product(itertools.combinations(range(8), 2), (False, True)):
        quota = ResourceQuota("Produce", 11, 1000)
        for level in (low, high) if reverse else (high, low):
            quota.set_limit(LEVELS[level][0], 100 + level)
        assert quota.limit_of("alice", "app") == 100 + high
        rate = quota.rate_of("alice", "app")
        assert rate is not None
        assert (rate.user, rate.client_id) == LEVELS[high][1]


def test_a_user_quota_is_shared_by_all_clients_of_the_user_but_not_by_others() -> None:
    quota = ResourceQuota("Produce", 11, 1000)
    quota.set_limit({USER: None}, 100)
    assert quota.rate_of("alice", "a") is quota.rate_of("alice", "b")
    assert quota.rate_of("alice", "a") is not quota.rate_of("bob", "a")


def test_a_changed_limit_applies_to_a_client_that_is_being_measured() -> None:
    quota = ResourceQuota("Produce", 11, 1000)
    quota.set_limit({USER: "alice"}, 100)
    rate = quota.rate_of("alice", "a")
    assert rate is not None
    assert rate.record(2_000, 1_000_000) == 10_000
    quota.set_limit({USER: "alice"}, 1_000_000)
    assert quota.rate_of("alice", "a") is rate
    assert rate.record(1, 1_000_000) == 0


def test_very_many_limits_are_set_in_no_time_whoever_is_being_measured() -> None:
    """Each limit copied all of them, and looked at every client that was being measured: minutes, at each start again."""
    quota = ResourceQuota("Produce", 11, 1000)
    quota.set_limit({CLIENT: None}, 100)
    for number in range(2_000):
        assert quota.rate_of("alice", f"client-{number}") is not None
    begun = time.thread_time()
    for number in range(20_000):
        quota.set_limit({CLIENT: f"client-{number}"}, number + 1)
    assert time.thread_time() - begun < 2
    rate = quota.rate_of("alice", "client-7")
    assert rate is not None
    assert rate.limit == quota.limit_of("alice", "client-7") == 8
    for number in range(20_000):
        quota.set_limit({CLIENT: f"client-{number}"}, None)
    assert len(quota.rates()) == 2_000
    quota.set_limit({CLIENT: None}, None)
    assert quota.rates() == []
    assert quota.rate_of("alice", "client-7") is None


def test_removing_the_last_limit_disables_quotas_again(quotas: ClientQuotas) -> None:
    quotas.update({USER: "alice"}, "producer_byte_rate", 1)
    quotas.update({CLIENT: None}, "request_percentage", 1)
    assert quotas.enabled
    quotas.update({USER: "alice"}, "producer_byte_rate", None)
    assert quotas.enabled
    assert quotas.charge_produce(request(), 10**6, exempt=True) == 0
    quotas.update({CLIENT: None}, "request_percentage", None)
    assert not quotas.enabled


def test_quotas_of_other_owners_are_left_to_them(quotas: ClientQuotas) -> None:
    quotas.update({"ip": "10.0.0.1"}, "connection_creation_rate", 1)
    quotas.update({USER: "alice"}, "controller_mutation_rate", 1)
    assert not quotas.enabled


def test_stored_quotas_are_loaded(quotas: ClientQuotas) -> None:
    quotas.load({((CLIENT, "app"), (USER, "alice")): {"producer_byte_rate": 5.0, "consumer_byte_rate": 7.0}})
    assert quotas.produce.limit_of("alice", "app") == 5.0
    assert quotas.fetch.limit_of("alice", "app") == 7.0
    assert quotas.fetch.limit_of("alice", "other") is None


def test_the_number_of_measured_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.quotas.MAX_CLIENTS", 50)
    quota = ResourceQuota("Produce", 11, 1000)
    quota.set_limit({CLIENT: None}, 100)
    for number in range(500):
        assert quota.rate_of("alice", f"client-{number}") is not None
    assert len(quota.rates()) == 50


def test_clients_that_are_gone_are_forgotten(quotas: ClientQuotas, clock: ManualClock) -> None:
    """Issue 18: whoever sends under many client ids leaves nothing behind; Kafka forgets them after an hour too."""
    quotas.update({CLIENT: None}, "producer_byte_rate", 10**9)
    for number in range(1000):
        quotas.charge_produce(request("alice", f"client-{number}"), 1, exempt=True)
    clock.advance(1800)
    quotas.charge_produce(request("alice", "stays"), 1, exempt=True)
    assert len(quotas.produce.rates()) == 1001
    clock.advance(1801)
    quotas.charge_produce(request("alice", "stays"), 1, exempt=True)
    assert [rate.client_id for rate in quotas.produce.rates()] == ["stays"]


def test_a_long_client_id_is_not_kept_and_still_tells_clients_apart(quotas: ClientQuotas) -> None:
    """Issue 18: 10 000 clients times three resources times 32 KB."""
    names = ["x" * 32_000 + end for end in "ab"]
    quotas.update({CLIENT: names[0]}, "producer_byte_rate", 100)
    assert quotas.charge_produce(request("alice", names[0]), 2_000, exempt=True) == 10_000
    assert quotas.charge_produce(request("alice", names[1]), 2_000, exempt=True) == 0
    assert max(len(rate.client_id) for rate in quotas.produce.rates()) <= MAX_NAME


def test_the_metrics_page_has_the_clients_that_are_throttled_most(
    quotas: ClientQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 18: peers choose how many client ids there are."""
    monkeypatch.setattr("barnabas.broker.quotas.MAX_LINES", 10)
    registry = Registry()
    quotas.register(registry)
    quotas.update({CLIENT: None}, "producer_byte_rate", 100)
    for number in range(50):
        quotas.charge_produce(request("alice", f"client-{number}"), 1000 + number * 100, exempt=True)
    lines = [sample.labels for sample in quotas.samples()]
    assert len(lines) == 10
    assert '{resource="Produce",user="",clientId="client-49"}' in lines
    assert registry.value("barnabas_metrics_left_out", what="clients") == 40


def test_clients_whose_names_print_alike_share_a_line(quotas: ClientQuotas) -> None:
    """A page with the same line twice is refused by Prometheus."""
    quotas.update({CLIENT: None}, "producer_byte_rate", 100)
    quotas.charge_produce(request("alice", "a\n"), 2_000, exempt=True)
    quotas.charge_produce(request("alice", "a\\n"), 3_000, exempt=True)
    assert [(sample.value, sample.labels) for sample in quotas.samples()] == [
        (20_000, '{resource="Produce",user="",clientId="a\\\\n"}')
    ]


def test_the_last_throttle_time_is_a_metric(quotas: ClientQuotas) -> None:
    """RP-32, RP-39."""
    quotas.update({USER: "alice", CLIENT: "app"}, "producer_byte_rate", 100)
    quotas.charge_produce(request(), 2_000, exempt=True)
    samples = list(quotas.samples())
    assert samples == [(10_000, '{resource="Produce",user="alice",clientId="app"}', "")]


def test_a_limit_of_zero_throttles_without_dividing_by_it() -> None:
    rate = ClientRate(("u", "c"), limit=0, window_count=11, window_ms=1000)
    assert rate.record(1, 1_000) > 0
    assert rate.record(0, 100_000) == 0
