"""Dynamic broker settings: two layers, stored, applied in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.broker.catalog import Catalog
from barnabas.broker.dynamic_config import CLUSTER_DEFAULT, DynamicBrokerConfig
from barnabas.broker.settings import broker_config
from barnabas.clock import SystemClock
from barnabas.config import Config
from barnabas.errors import ErrorCode, KafkaError

ME = "1"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog.open(tmp_path / "metadata", SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def config() -> Config:
    return broker_config({"num.io.threads": 4})


@pytest.fixture
def dynamic(config: Config, catalog: Catalog) -> DynamicBrokerConfig:
    return DynamicBrokerConfig(config, catalog, 1)


def test_the_nodes_own_layer_wins_over_the_default_and_that_over_the_file(
    config: Config, dynamic: DynamicBrokerConfig
) -> None:
    dynamic.edit(CLUSTER_DEFAULT, lambda _: {"num.io.threads": "5"})
    assert config["num.io.threads"] == 5
    dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert config["num.io.threads"] == 6
    dynamic.edit(ME, lambda _: {})
    assert config["num.io.threads"] == 5
    dynamic.edit(CLUSTER_DEFAULT, lambda _: {})
    assert config["num.io.threads"] == 4


def test_stored_values_are_applied_at_start(catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig) -> None:
    catalog.set_broker_configs(ME, {"num.io.threads": "9"})
    dynamic.load()
    assert config["num.io.threads"] == 9


def test_a_stored_value_that_is_no_longer_accepted_is_left_out_with_a_warning(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.set_broker_configs(CLUSTER_DEFAULT, {"num.io.threads": "nine", "node.id": "3", "max.connections": "7"})
    with caplog.at_level(logging.WARNING):
        dynamic.load()
    assert (config["num.io.threads"], config["max.connections"]) == (4, 7)
    assert "num.io.threads" in caplog.text
    dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert config["num.io.threads"] == 6


def test_a_listener_that_fails_is_reported_and_the_value_stays_stored(
    catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig
) -> None:
    def fail(_: Config) -> None:
        raise RuntimeError("no threads left")

    config.on_change(["num.io.threads"], fail)
    with pytest.raises(KafkaError, match="no threads left") as caught:
        dynamic.edit(ME, lambda _: {"num.io.threads": "6"})
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert catalog.snapshot.broker_configs == {ME: {"num.io.threads": "6"}}


def test_concurrent_edits_lose_nothing(catalog: Catalog, config: Config, dynamic: DynamicBrokerConfig) -> None:
    keys = ["num.io.threads", "num.network.threads", "max.connections", "max.connection.creation.rate"]

    def count(key: str) -> None:
        for number in range(1, 11):

            def edit(before: Mapping[str, str], number: int = number) -> dict[str, str]:
                return {**before, key: str(number)}

            dynamic.edit(ME, edit)

    threads = [threading.Thread(target=count, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert catalog.snapshot.broker_configs == {ME: dict.fromkeys(keys, "10")}
    assert [config[key] for key in keys] == [10, 10, 10, 10]
