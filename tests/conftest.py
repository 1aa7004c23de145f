"""What holds for every test: no broker thread outlives the test that started it.

Sockets and files need no check of their own: `filterwarnings = error` turns a ResourceWarning into a failure. A test that
hangs is ended by pytest-timeout, and pytest's faulthandler prints all stacks shortly before; for a test that may take longer than others
only pytest-timeout does, because stacks of a test that passes look like a failure.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
from collections.abc import Iterator

import hypothesis
import pytest

from tests.waiting import wait_until

# In the tests' own process the request path is plain Python, whose objects can be looked into, replaced and made to fail. Brokers in
# processes of their own are compiled (bench/brokers.py).
os.environ.setdefault("BARNABAS_NATIVE", "0")

# A suite that was started in the background ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A landing does not hang on luck: every run of the suite tries the same generated examples. `make search` looks for new ones.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", max_examples=3000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("suite")

LEAK_DEADLINE_SECONDS = 20.0
OUR_THREADS = ("data-plane-", "control-plane-", "barnabas-", "ExpirationReaper-", "kafka-producer-network-thread")
WIDER_FIXTURES = ("session", "package", "module", "class")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """For tools/run_tests.py, which runs failed tests again. With xdist the workers' reports pass through the controller too."""
    path = os.environ.get("BARNABAS_FAILED_TESTS")
    if path and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"test": report.nodeid, "text": report.longreprtext}) + "\n")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("timeout") is not None:
        faulthandler.cancel_dump_traceback_later()


def _our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(OUR_THREADS)}


def _uses_a_wider_fixture(request: pytest.FixtureRequest) -> bool:
    """A broker of a wider scope is first started inside some test and lives on: nothing can be said of that test."""
    definitions = getattr(request.node, "_fixtureinfo", None)
    by_name = definitions.name2fixturedefs if definitions else {}
    return any(
        found[-1].scope in WIDER_FIXTURES and not name.startswith("_")
        for name, found in by_name.items()
        if found[-1].baseid.startswith("tests") or name.startswith("kafka_")
    )


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _our_threads()
    yield
    if not _uses_a_wider_fixture(request):
        wait_until(
            lambda: not (_our_threads() - before), LEAK_DEADLINE_SECONDS, "the end of the threads that the test started"
        )


@pytest.fixture(scope="session", autouse=True)
def _shared_brokers_end_with_the_session() -> Iterator[None]:
    yield
    from tests.live_broker import (
        stop_shared_brokers,  # not above: bench must not import the package before BARNABAS_NATIVE is set
    )

    stop_shared_brokers()
