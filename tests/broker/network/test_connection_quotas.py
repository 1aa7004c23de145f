"""Connection limits and creation rates (RP-9, RP-10, RP-11): the behaviours of Kafka's ConnectionQuotasTest."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from barnabas.broker.network.connection_quotas import (
    MAX_IDLE_ADDRESSES,
    UNLIMITED,
    AcceptorStopped,
    ConnectionQuotas,
    ConnectionThrottled,
    TooManyConnections,
)
from barnabas.broker.network.rate import SampledRate
from barnabas.clock import ManualClock
from barnabas.config import Config
from barnabas.errors import BarnabasError
from tests.broker.network.toy_broker import toy_config
from tests.waiting import wait_until

IP, OTHER = "10.0.0.1", "10.0.0.2"
SECOND = 1_000_000_000


def quotas_with(clock: ManualClock | None = None, **settings: object) -> ConnectionQuotas:
    return quotas_of(toy_config(**settings), clock)


def quotas_of(config: Config, clock: ManualClock | None = None) -> ConnectionQuotas:
    quotas = ConnectionQuotas(config, clock or ManualClock())
    quotas.add_listener("PLAINTEXT")
    quotas.add_listener("OTHER")
    return quotas


def sleepers(quotas: ConnectionQuotas) -> int:
    """How many sleep in `acquire`: each has looked at the clock and at the limits, and nobody has woken it since."""
    return len(quotas._changed._waiters)  # type: ignore[attr-defined]


class Waiting:
    """An `acquire` on a thread of its own, which has returned or sleeps, with `others` that sleep already."""

    def __init__(self, quotas: ConnectionQuotas, listener: str = "PLAINTEXT", ip: str = IP, others: int = 0) -> None:
        self.result: object = None
        self.stop = False
        self._thread = threading.Thread(target=self._run, args=(quotas, listener, ip))
        self._thread.start()
        wait_until(lambda: self.done() or sleepers(quotas) > others, what="the acquire to wait")

    def _run(self, quotas: ConnectionQuotas, listener: str, ip: str) -> None:
        try:
            self.result = quotas.acquire(listener, ip, lambda: not self.stop)
        except BarnabasError as error:
            self.result = error

    def done(self) -> bool:
        return not self._thread.is_alive()

    def stays(self, seconds: float = 0.05) -> bool:
        self._thread.join(seconds)
        return self._thread.is_alive()

    def join(self) -> object:
        self._thread.join(10)
        assert self.done()
        return self.result


def test_an_unknown_listener_is_an_error() -> None:
    with pytest.raises(BarnabasError, match="no listener NOWHERE"):
        quotas_with().acquire("NOWHERE", IP)


def test_giving_back_a_connection_of_an_unknown_address_is_an_error() -> None:
    with pytest.raises(BarnabasError, match=r"10\.0\.0\.1 has no connection"):
        quotas_with().release("PLAINTEXT", IP)


def test_there_is_no_limit_by_default() -> None:
    quotas = quotas_with()
    for _ in range(2000):
        assert quotas.acquire("PLAINTEXT", IP) == 0
    assert (quotas.total, quotas.count(IP), quotas.listener_count("PLAINTEXT")) == (2000, 2000, 2000)
    assert not quotas.exceeded("PLAINTEXT")
    for _ in range(2000):
        quotas.release("PLAINTEXT", IP)
    assert (quotas.total, quotas.count(IP), quotas.listener_count("PLAINTEXT")) == (0, 0, 0)


def test_above_the_limit_of_an_address_connections_are_refused_and_not_counted() -> None:
    quotas = quotas_with(max_connections_per_ip=2)
    quotas.acquire("PLAINTEXT", IP)
    quotas.acquire("OTHER", IP)
    with pytest.raises(TooManyConnections) as refused:
        quotas.acquire("PLAINTEXT", IP)
    assert (refused.value.address, refused.value.limit) == (IP, 2)
    assert (quotas.total, quotas.count(IP)) == (2, 2)
    quotas.acquire("PLAINTEXT", OTHER)
    quotas.release("OTHER", IP)
    quotas.acquire("PLAINTEXT", IP)


def test_a_limit_of_zero_refuses_everybody_but_the_overrides() -> None:
    quotas = quotas_with(max_connections_per_ip=0, max_connections_per_ip_overrides=f"{IP}:1")
    quotas.acquire("PLAINTEXT", IP)
    for address in (IP, OTHER):
        with pytest.raises(TooManyConnections):
            quotas.acquire("PLAINTEXT", address)


def test_overrides_may_name_hosts_and_ipv6_addresses(caplog: pytest.LogCaptureFixture) -> None:
    quotas = quotas_with(max_connections_per_ip_overrides="localhost:1,[::1]:2,no.such.host.invalid:3")
    wait_until(lambda: "is not known" in caplog.text)
    quotas.acquire("PLAINTEXT", "127.0.0.1")
    with pytest.raises(TooManyConnections):
        quotas.acquire("PLAINTEXT", "127.0.0.1")
    quotas.acquire("PLAINTEXT", "::1")
    assert "no.such.host.invalid is not known" in caplog.text


def test_name_servers_that_do_not_answer_hold_up_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change waited up to 5 s for them, and began a thread of its own."""
    asked, answer, real = threading.Event(), threading.Event(), socket.getaddrinfo

    def slow(host: Any, *arguments: Any, **names: Any) -> Any:
        if str(host).endswith(".invalid"):
            asked.set()
            answer.wait(30)
        return real(host, *arguments, **names)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    config = toy_config()
    quotas = quotas_of(config)
    key = "max.connections.per.ip.overrides"
    try:
        for number in range(3):
            config.set_dynamic({key: f"a{number}.invalid:5,localhost:1,{OTHER}:0"})
            quotas.configure(config)
        assert asked.wait(30)
        with pytest.raises(TooManyConnections):
            quotas.acquire("PLAINTEXT", OTHER)
        assert sum(thread.name == "barnabas-resolver" for thread in threading.enumerate()) == 1
    finally:
        answer.set()
    wait_until(lambda: quotas._overrides.get("127.0.0.1") == 1)
    config.set_dynamic({})
    quotas.configure(config)
    assert quotas._overrides == {}


@pytest.mark.parametrize(
    "settings", [{"max_connections": 2}, {"listener_name_plaintext_max_connections": 2}], ids=["broker", "listener"]
)
def test_above_the_limit_of_broker_or_listener_the_acceptor_waits_for_a_slot(settings: dict[str, object]) -> None:
    quotas = quotas_with(**settings)
    quotas.acquire("PLAINTEXT", IP)
    quotas.acquire("PLAINTEXT", OTHER)
    waiting = Waiting(quotas)
    assert waiting.stays()
    quotas.release("PLAINTEXT", OTHER)
    assert isinstance(waiting.join(), int)
    assert quotas.total == 2


def test_a_full_listener_does_not_stop_the_others() -> None:
    quotas = quotas_with(listener_name_plaintext_max_connections=1)
    quotas.acquire("PLAINTEXT", IP)
    assert quotas.acquire("OTHER", IP) == 0


def test_the_inter_broker_listener_is_protected_from_the_broker_limit() -> None:
    quotas = quotas_with(max_connections=1, **{"inter.broker.listener.name": "OTHER"})
    quotas.acquire("PLAINTEXT", IP)
    assert quotas.acquire("OTHER", IP) == 0
    assert quotas.exceeded("PLAINTEXT")
    assert not quotas.exceeded("OTHER")
    waiting = Waiting(quotas)
    assert waiting.stays()
    waiting.stop = True
    quotas.configure(quotas._config)
    assert isinstance(waiting.join(), AcceptorStopped)


def test_the_inter_broker_listener_has_its_own_limit_all_the_same() -> None:
    settings = {"inter.broker.listener.name": "OTHER", "listener.name.other.max.connections": 1}
    quotas = quotas_with(**settings)
    quotas.acquire("OTHER", IP)
    waiting = Waiting(quotas, "OTHER")
    assert waiting.stays()
    quotas.release("OTHER", IP)
    waiting.join()


def test_the_only_listener_is_not_protected() -> None:
    quotas = quotas_with(max_connections=1, **{"inter.broker.listener.name": "PLAINTEXT"})
    quotas.remove_listener("OTHER")
    quotas.acquire("PLAINTEXT", IP)
    waiting = Waiting(quotas)
    assert waiting.stays()
    quotas.release("PLAINTEXT", IP)
    waiting.join()


def test_a_waiting_acceptor_ends_when_it_is_stopped_or_its_listener_goes() -> None:
    quotas = quotas_with(max_connections=0)
    stopped, removed = Waiting(quotas), Waiting(quotas, "OTHER", others=1)
    assert stopped.stays()
    stopped.stop = True
    quotas.remove_listener("OTHER")
    assert isinstance(stopped.join(), AcceptorStopped)
    assert isinstance(removed.join(), AcceptorStopped)
    assert quotas.total == 0


def change(config: Config, quotas: ConnectionQuotas, **settings: object) -> None:
    config.set_dynamic({name.replace("_", "."): str(value) for name, value in settings.items()})
    quotas.configure(config)


def test_every_limit_changes_at_run_time() -> None:
    """RP-9: dynamic; an acceptor that waits looks again."""
    config = toy_config(max_connections=1, max_connections_per_ip=5)
    quotas = quotas_of(config)
    quotas.acquire("PLAINTEXT", IP)
    waiting = Waiting(quotas)
    assert waiting.stays()
    change(config, quotas, max_connections=2)
    waiting.join()
    change(config, quotas, max_connections=9, max_connections_per_ip=2)
    with pytest.raises(TooManyConnections):
        quotas.acquire("PLAINTEXT", IP)
    change(config, quotas, max_connections=9, max_connections_per_ip=2, max_connections_per_ip_overrides=f"{IP}:3")
    quotas.acquire("PLAINTEXT", IP)
    change(config, quotas, max_connections=9, listener_name_plaintext_max_connections=3)
    full = Waiting(quotas, ip=OTHER)
    assert full.stays()
    change(config, quotas, max_connections=9, listener_name_plaintext_max_connections=4)
    full.join()


def test_lowering_the_broker_limit_makes_connections_excess() -> None:
    """RP-18."""
    config = toy_config()
    quotas = quotas_of(config)
    for _ in range(3):
        quotas.acquire("PLAINTEXT", IP)
    change(config, quotas, max_connections=2)
    assert quotas.exceeded("PLAINTEXT")
    quotas.release("PLAINTEXT", IP)
    assert not quotas.exceeded("PLAINTEXT")


# ---- rates -----------------------------------------------------------------------------------------------------------


def drive(quotas: ConnectionQuotas, clock: ManualClock, waiting: Waiting) -> None:
    """Let a waiting acquire see time pass, until it is done: it sees every step before the next one."""
    for _ in range(2000):
        wait_until(lambda: not waiting.stays(0.001) or sleepers(quotas), what="the acquire to look at the clock")
        if waiting.done():
            return
        clock.advance(0.02)
        with quotas._changed:
            quotas._changed.notify_all()
    raise AssertionError("the acquire did not end")


def acquire_steadily(quotas: ConnectionQuotas, clock: ManualClock, seconds: int, per_second: int) -> int:
    """How long acceptors were blocked in all, in ns."""
    return sum(_one_of_a_steady_stream(quotas, clock, 1 / per_second) for _ in range(seconds * per_second))


def _one_of_a_steady_stream(quotas: ConnectionQuotas, clock: ManualClock, step: float) -> int:
    clock.advance(step)
    return quotas.acquire("PLAINTEXT", IP)


@pytest.mark.parametrize(
    "settings",
    [{"max_connection_creation_rate": 20}, {"listener_name_plaintext_max_connection_creation_rate": 20}],
    ids=["broker", "listener"],
)
def test_below_the_rate_nobody_waits(settings: dict[str, object]) -> None:
    clock = ManualClock()
    quotas = quotas_with(clock, **settings)
    assert acquire_steadily(quotas, clock, 20, 19) == 0
    assert quotas.throttled_ms("PLAINTEXT") == (0, 0)


@pytest.mark.parametrize(
    "settings",
    [{"max_connection_creation_rate": 2}, {"listener_name_plaintext_max_connection_creation_rate": 2}],
    ids=["broker", "listener"],
)
def test_above_the_rate_the_acceptor_waits(settings: dict[str, object]) -> None:
    """RP-10: after the burst that the windows allow, accepts keep to the rate within 10 %."""
    clock = ManualClock()
    quotas = quotas_with(clock, **settings)
    burst = 20  # 10 full windows of 2
    for _ in range(burst):
        assert quotas.acquire("PLAINTEXT", IP) == 0
    start_ns = clock.monotonic_ns()
    for _ in range(40):
        waiting = Waiting(quotas)
        drive(quotas, clock, waiting)
        assert isinstance(waiting.join(), int)
    seconds = (clock.monotonic_ns() - start_ns) / SECOND
    assert (40 + burst) / (seconds + 10) == pytest.approx(2, rel=0.1)
    assert quotas.throttled_ms("PLAINTEXT")[0] > 0


def test_the_broker_rate_does_not_touch_the_inter_broker_listener() -> None:
    quotas = quotas_with(max_connection_creation_rate=1, **{"inter.broker.listener.name": "OTHER"})
    for _ in range(100):
        assert quotas.acquire("OTHER", IP) == 0
    assert quotas.creation_rate("OTHER") == pytest.approx(10)
    assert quotas.creation_rate() == 0


def test_an_address_above_its_rate_is_refused_for_a_while_and_counts_nowhere() -> None:
    clock = ManualClock()
    quotas = quotas_with(clock)
    quotas.set_ip_rate(IP, 2)
    for _ in range(20):
        quotas.acquire("PLAINTEXT", IP)
    with pytest.raises(ConnectionThrottled) as throttled:
        quotas.acquire("PLAINTEXT", IP)
    assert 0 < throttled.value.throttle_ms <= 1000
    assert quotas.total == 20
    assert quotas.creation_rate() == pytest.approx(2)  # the refused one was taken back
    assert quotas.throttled_ms("PLAINTEXT")[1] > 0
    quotas.acquire("PLAINTEXT", OTHER)
    clock.advance(11)
    quotas.acquire("PLAINTEXT", IP)


def test_ip_rates_have_a_default_and_change_at_run_time() -> None:
    clock = ManualClock()
    quotas = quotas_with(clock)
    assert quotas.ip_rate(IP) == UNLIMITED
    quotas.set_ip_rate(None, 1)
    quotas.set_ip_rate(OTHER, 50)
    assert (quotas.ip_rate(IP), quotas.ip_rate(OTHER)) == (1, 50)
    for _ in range(10):
        quotas.acquire("PLAINTEXT", IP)
    with pytest.raises(ConnectionThrottled):
        quotas.acquire("PLAINTEXT", IP)
    quotas.set_ip_rate(IP, 100)  # the sensor that exists takes the new limit
    quotas.acquire("PLAINTEXT", IP)
    quotas.set_ip_rate(IP, None)
    with pytest.raises(ConnectionThrottled):
        quotas.acquire("PLAINTEXT", IP)
    quotas.set_ip_rate(None, None)
    quotas.acquire("PLAINTEXT", IP)


def test_ip_and_listener_rates_hold_together() -> None:
    clock = ManualClock()
    quotas = quotas_with(clock, listener_name_plaintext_max_connection_creation_rate=3)
    quotas.set_ip_rate(IP, 1)
    for _ in range(10):
        quotas.acquire("PLAINTEXT", IP)
    with pytest.raises(ConnectionThrottled):
        quotas.acquire("PLAINTEXT", IP)
    for _ in range(20):
        assert quotas.acquire("PLAINTEXT", OTHER) == 0
    waiting = Waiting(quotas, ip=OTHER)
    drive(quotas, clock, waiting)
    assert isinstance(waiting.join(), int)


def test_count_and_rate_limits_hold_together() -> None:
    clock = ManualClock()
    quotas = quotas_with(clock, max_connections=5, max_connection_creation_rate=100)
    for _ in range(5):
        quotas.acquire("PLAINTEXT", IP)
    waiting = Waiting(quotas)
    clock.advance(5)
    assert waiting.stays()
    quotas.release("PLAINTEXT", IP)
    drive(quotas, clock, waiting)


def test_a_rate_that_changes_at_run_time_holds_for_the_next_connection() -> None:
    config = toy_config(max_connection_creation_rate=1)
    clock = ManualClock()
    quotas = quotas_of(config, clock)
    for _ in range(10):
        quotas.acquire("PLAINTEXT", IP)
    change(config, quotas, max_connection_creation_rate=1000)
    assert quotas.acquire("PLAINTEXT", IP) == 0


def test_idle_addresses_are_forgotten() -> None:
    """Addresses are chosen by peers, so their number must have a bound."""
    clock = ManualClock()
    quotas = quotas_with(clock)
    quotas.set_ip_rate(None, 5)
    for number in range(MAX_IDLE_ADDRESSES):
        quotas.acquire("PLAINTEXT", f"address-{number}")
    clock.advance(20)
    quotas.acquire("PLAINTEXT", IP)
    assert len(quotas._ip_rates) == 1


def test_counters_are_exact_under_threads() -> None:
    """RP-11."""
    quotas = quotas_with(max_connections=20, max_connections_per_ip=15)

    def churn(ip: str) -> None:
        for _ in range(300):
            try:
                quotas.acquire("PLAINTEXT", ip)
            except TooManyConnections:
                continue
            quotas.release("PLAINTEXT", ip)

    threads = [threading.Thread(target=churn, args=(ip,)) for ip in (IP, OTHER) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (quotas.total, quotas.count(IP), quotas.count(OTHER), quotas.listener_count("PLAINTEXT")) == (0, 0, 0, 0)
    assert "total=0/20" in repr(quotas)


def test_a_sampled_rate_forgets_old_windows() -> None:
    rate = SampledRate(10, 3, SECOND)
    for _ in range(10):
        assert rate.record(0) == 0
    assert rate.rate(0) == pytest.approx(5)
    assert rate.rate(3 * SECOND) == 0
    assert rate.record(4 * SECOND) == 0
    assert "count=1" in repr(rate)


def test_a_rate_of_zero_waits_a_whole_window() -> None:
    assert SampledRate(0, 3, SECOND).record(0) == 1000


def test_a_waiting_acquire_reports_how_long_it_was_blocked() -> None:
    """RP-9: metered."""
    clock = ManualClock()
    quotas = quotas_with(clock, max_connections=1)
    quotas.acquire("PLAINTEXT", IP)
    waiting = Waiting(quotas)
    assert not waiting.done()
    clock.advance(2)
    quotas.release("PLAINTEXT", IP)
    assert waiting.join() == 2 * SECOND
