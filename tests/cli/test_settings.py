"""How `barnabas broker` puts its settings together: file, environment, --override, options; the later wins."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from barnabas.cli import broker as command
from barnabas.cli.broker import collect_settings
from barnabas.errors import BarnabasError, ConfigError


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=5\nlisteners=PLAINTEXT://:9092,OTHER://:9093\nlog.dir=elsewhere\n")
    return file


def test_nothing_given_is_nothing_set() -> None:
    assert collect_settings(None, {}, (), {}) == {}


def test_each_source_wins_over_the_one_before(properties: Path) -> None:
    environ = {"KAFKA_NUM_IO_THREADS": "6"}
    assert collect_settings(properties, {}, (), {})["num.io.threads"] == "5"
    assert collect_settings(properties, environ, (), {})["num.io.threads"] == "6"
    assert collect_settings(properties, environ, ("num.io.threads=7",), {})["num.io.threads"] == "7"


def test_the_port_option_changes_only_the_first_listener(properties: Path) -> None:
    assert collect_settings(properties, {}, (), {"port": 1234})["listeners"] == "PLAINTEXT://:1234,OTHER://:9093"
    assert collect_settings(None, {}, (), {"port": 0})["listeners"] == "PLAINTEXT://127.0.0.1:0"


@pytest.mark.parametrize("text", ["foo", "", "PLAINTEXT://localhost", "PLAINTEXT://[::1]", "foo,OTHER://:9093"])
def test_listeners_that_are_none_are_left_as_they_were_written(text: str) -> None:
    """The error that follows shows them: nobody wrote ":0"."""
    assert collect_settings(None, {}, (f"listeners={text}",), {"port": 0})["listeners"] == text


def test_the_port_option_changes_a_listener_with_an_ipv6_address() -> None:
    given = collect_settings(None, {}, ("listeners=PLAINTEXT://[::1]:9092",), {"port": 0})
    assert given["listeners"] == "PLAINTEXT://[::1]:0"


def test_the_data_directory_option_replaces_both_keys_of_the_file(properties: Path) -> None:
    given = collect_settings(properties, {}, (), {"data_dir": Path("here")})
    assert given["log.dirs"] == "here"
    assert "log.dir" not in given


def test_the_metrics_port_keeps_the_host() -> None:
    given = collect_settings(None, {}, ("barnabas.metrics.listener=0.0.0.0:1",), {"metrics_port": 2})
    assert given["barnabas.metrics.listener"] == "0.0.0.0:2"
    given = collect_settings(None, {}, ("barnabas.metrics.listener=foo",), {"metrics_port": 2})
    assert given["barnabas.metrics.listener"] == "foo"
    given = collect_settings(None, {}, ("barnabas.metrics.listener=",), {"metrics_port": 2})
    assert given["barnabas.metrics.listener"] == "127.0.0.1:2"


def test_names_that_other_tools_put_into_the_environment_are_not_settings() -> None:
    environ = {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_BOOTSTRAP_SERVERS": "a:1", "CLUSTER_ID": "abc", "PATH": "/bin"}
    assert collect_settings(None, environ, (), {}) == {"cluster.id": "abc"}


@pytest.mark.parametrize("text", ["num.io.threads", "=5", ""])
def test_an_override_must_be_key_and_value(text: str) -> None:
    with pytest.raises(ConfigError, match="must be key=value"):
        collect_settings(None, {}, (text,), {})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(BarnabasError) as caught:
        collect_settings(missing, {}, (), {})
    assert str(caught.value) == f"the file of settings {missing} cannot be read: No such file or directory"
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(BarnabasError, match="not UTF-8"):
        collect_settings(binary, {}, (), {})


def test_a_default_metrics_port_that_is_taken_is_avoided_but_a_chosen_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(command, "DEFAULT_METRICS", f"127.0.0.1:{taken.getsockname()[1]}")
        given: dict[str, object] = {}
        command.avoid_taken_default(given)
        assert given == {"barnabas.metrics.listener": "127.0.0.1:0"}
        given = {"barnabas.metrics.listener": "127.0.0.1:9404"}
        command.avoid_taken_default(given)
        assert given == {"barnabas.metrics.listener": "127.0.0.1:9404"}
    given = {}
    command.avoid_taken_default(given)
    assert given == {}
