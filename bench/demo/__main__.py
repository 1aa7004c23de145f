"""Runs the demo: `python -m bench.demo [--seconds 60] [--rate 20000] [--folder demo-data]`. Exit code 0 says that the proof holds.

Role: starts the parts in order, watches them, stops them in order, and says what came of it.
Thread: the main one; the generator has a thread of its own, the broker and Spark have processes of theirs. Lock: none.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.markup import escape

from barnabas import Admin, NewTopic
from barnabas.errors import BarnabasError
from bench.brokers import OURS, BrokerFailed, BrokerProcess
from bench.demo.batches import BatchLog, QueryFailed
from bench.demo.display import Display, Figures, request_times
from bench.demo.proof import Run, prove
from bench.demo.results import Results
from bench.demo.session import NoJava, SparkStart
from bench.time_breakdown import fetch_page, parse
from examples import orders_pipeline
from examples.orders_generator import OrderGenerator

PARTITIONS = 6
LOOK_SECONDS = 0.5
START_SECONDS = 120.0
DRAIN_SECONDS = 180.0
MARK = "made-by-make-demo"
Stop = threading.Event


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    seconds: float
    rate: int
    folder: Path


class DemoFailed(Exception):
    """The demo could not do its work; the text says why."""


def prepared(folder: Path) -> Path:
    """An empty folder. What an earlier demo left there is removed, anything else is not touched."""
    if folder.exists():
        if not (folder / MARK).exists():
            raise DemoFailed(f"{folder} exists and was not made by the demo; choose another with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder.resolve()


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """The first Ctrl-C stops in order, the second at once."""
    stop = Stop()

    def first(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def running(generator: OrderGenerator) -> Iterator[None]:
    """Sends orders during the block; at its end all of them are written."""
    stop = Stop()
    worker = threading.Thread(target=generator.run, args=(stop,), name="orders-generator")
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()
    if generator.error is not None:
        raise DemoFailed(f"the generator failed: {generator.error}")


class Demo:
    """One run, with the broker and Spark up."""

    def __init__(self, options: Options, broker: BrokerProcess, spark: SparkSession, display: Display) -> None:
        self._options = options
        self._broker = broker
        self._spark = spark
        self._display = display
        self._generator = OrderGenerator(broker.bootstrap, options.rate)
        self._logs: list[BatchLog] = []
        self._began = 0.0
        self._draining = False
        self._sent_for = 0.0

    def run(self, stop: Stop) -> bool:
        """True when everything was proved."""
        create_topics(self._broker.bootstrap)
        self._start_queries(stop)
        with (
            contextlib.closing(Results(self._broker.bootstrap, orders_pipeline.REVENUE)) as results,
            self._display.running(),
        ):
            self._began = time.monotonic()
            with running(self._generator):
                self._watch(results, lambda: self._is_over(stop))
            self._drain(results)
        for log in self._logs:
            log.query.stop()
        return self._prove()

    def _start_queries(self, stop: Stop) -> None:
        """One after the other, each until its first batch is done: Spark gives a Python worker ten seconds to start, which is little
        on a busy machine."""
        servers, folder = self._broker.bootstrap, str(self._options.folder)
        orders = orders_pipeline.priced(self._spark, orders_pipeline.read_orders(self._spark, servers))
        with self._display.console.status("starting the first query"):
            self._await_first_batch(orders_pipeline.keep_orders(orders, folder), stop)
        with self._display.console.status("starting the second query"):
            self._await_first_batch(orders_pipeline.publish_revenue(orders, servers, folder), stop)

    def _await_first_batch(self, query: StreamingQuery, stop: Stop) -> None:
        log = BatchLog(query)
        self._logs.append(log)
        deadline = time.monotonic() + START_SECONDS
        while log.last is None and not stop.wait(LOOK_SECONDS):
            log.update()
            if time.monotonic() > deadline:
                raise DemoFailed(f"the query {log.name} has not started within {START_SECONDS:.0f} s")

    def _is_over(self, stop: Stop) -> bool:
        if self._broker.process.poll() is not None:
            raise DemoFailed(f"the broker ended:\n{self._broker.log_tail()}")
        time_is_up = self._options.seconds and time.monotonic() - self._began >= self._options.seconds
        return stop.wait(LOOK_SECONDS) or bool(time_is_up) or self._generator.error is not None

    def _drain(self, results: Results) -> None:
        """Until the queries have read everything and no window is left to close: then `stop` cannot come in the middle of a batch."""
        self._draining = True
        self._sent_for = time.monotonic() - self._began
        waiting = threading.Thread(target=self._await_queries, name="drain", daemon=True)
        waiting.start()
        deadline = time.monotonic() + DRAIN_SECONDS

        def drained() -> bool:
            if time.monotonic() > deadline:
                raise DemoFailed(f"the queries have not read everything within {DRAIN_SECONDS:.0f} s")
            waiting.join(LOOK_SECONDS)
            return not waiting.is_alive()

        self._watch(results, drained)

    def _await_queries(self) -> None:
        for log in self._logs:
            with contextlib.suppress(PySparkException):  # `BatchLog.update` tells of it
                log.query.processAllAvailable()

    def _watch(self, results: Results, over: Callable[[], bool]) -> None:
        ended = False
        while not ended:
            ended = over()
            for log in self._logs:
                log.update()
            self._display.show(self._figures(results), last=ended and self._draining)

    def _figures(self, results: Results) -> Figures:
        generator = self._generator
        return Figures(
            elapsed=time.monotonic() - self._began,
            seconds=self._options.seconds,
            draining=self._draining,
            written=generator.written,
            late=generator.late,
            sending_seconds=self._sent_for or time.monotonic() - self._began,
            queries=tuple(self._logs),
            latest=results.update(),
            apis=tuple(parse(fetch_page(self._broker.metrics_url))),
        )

    def _prove(self) -> bool:
        console = self._display.console
        lake, revenue = self._logs
        run = Run(self._spark, self._broker.bootstrap, self._options.folder, self._generator, lake, revenue)
        console.print("\n[bold]Proof[/]")
        proved = True
        with console.status("checking"):
            for claim in prove(run):
                console.print(
                    "[green]✓[/]" if claim.holds else "[red]✗[/]", claim.text, soft_wrap=not console.is_terminal
                )
                proved = proved and claim.holds
        return proved


def create_topics(servers: str) -> None:
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics(
            [NewTopic(orders_pipeline.ORDERS, partitions=PARTITIONS), NewTopic(orders_pipeline.REVENUE)]
        )


def show(options: Options, console: Console) -> bool:
    with BrokerProcess(OURS, parent_directory=options.folder) as broker:
        console.print(
            f"broker at {broker.bootstrap}, answering after {broker.started_in:.2f} s; Spark is starting", style="dim"
        )
        with stopped_by_signals() as stop, contextlib.ExitStack() as stack:
            with console.status("starting Spark") as status:
                starting = SparkStart(options.folder)
                while not starting.is_over(LOOK_SECONDS):
                    if stop.is_set():
                        status.update("stopping, as soon as Spark has started; Ctrl-C stops at once")
                spark = stack.enter_context(starting.session())
            if stop.is_set():
                raise KeyboardInterrupt
            proved = Demo(options, broker, spark, Display(console)).run(stop)
        if not console.is_terminal:
            console.print("", request_times(parse(fetch_page(broker.metrics_url)), console.width), sep="\n")
        code = broker.stop()
        if code:
            raise DemoFailed(f"the broker ended with exit code {code}:\n{broker.log_tail()}")
        (broker.place.directory / "data").rename(options.folder / "broker")
        broker.log_file.rename(options.folder / "broker.log")
    return proved


def tell_of_files(folder: Path, console: Console) -> None:
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    parquet = list((folder / "lake").glob("*.parquet"))
    size = sum(file.stat().st_size for file in parquet) / 1e6
    console.print(f"\n[bold]Files[/] in {folder}")
    for name, text in (
        ("lake", f"every order, {len(parquet)} Parquet files, {size:.0f} MB"),
        ("broker", f"the topics; to look into them: barnabas broker --data-dir {folder / 'broker'}"),
        ("checkpoints", "where the queries stopped"),
        ("spark.log", "what Spark said"),
        ("broker.log", "what the broker said"),
    ):
        console.print(f"  {name:<12} {text}", soft_wrap=True)


def options_from(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description="The main job, end to end, with a proof.")
    parser.add_argument("--seconds", type=float, default=60, help="how long orders are sent; 0: until Ctrl-C")
    parser.add_argument("--rate", type=int, default=20_000, help="orders per second")
    parser.add_argument("--folder", type=Path, default=Path("demo-data"), help="for all files; emptied at the start")
    return Options(**vars(parser.parse_args(arguments)))


def main(arguments: list[str] | None = None) -> int:
    options = options_from(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
    )  # so that every block below ends in order
    console.print(
        "[bold]Barnabas[/]: orders from a shop, through a broker and Spark, to Parquet and to a topic of revenue\n"
    )
    try:
        options = replace(options, folder=prepared(options.folder))
        proved = show(options, console)
    except KeyboardInterrupt:
        console.print("stopped, nothing was proved")
        return 130
    except (DemoFailed, QueryFailed, NoJava, BrokerFailed, BarnabasError, PySparkException, OSError) as error:
        console.print(f"[red]the demo failed:[/] {escape(str(error))}", soft_wrap=True)  # a path stays whole
        if isinstance(error, (QueryFailed, PySparkException)):
            more = "has more; barnabas doctor spark looks for the usual causes"
            console.print(f"{options.folder / 'spark.log'} {more}", soft_wrap=True)
        return 1
    tell_of_files(options.folder, console)
    console.print("\n[bold green]PROVED[/]" if proved else "\n[bold red]NOT PROVED[/]: see the lines marked with ✗")
    return 0 if proved else 1


if __name__ == "__main__":
    sys.exit(main())
