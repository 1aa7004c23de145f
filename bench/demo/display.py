"""What the demo shows while it runs: a picture that is drawn anew at a terminal, a line now and then everywhere else.

Role: turns figures into text; asks nobody for anything.
Thread: the demo's own, and rich's refresh thread at a terminal, which draws the last picture again. Lock: rich's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench.demo.batches import BatchLog
from bench.demo.proof import number
from bench.time_breakdown import ApiTime, table_of

RATE_SECONDS = 5.0
SECONDS_PER_LINE = 5.0
APIS_SHOWN = 5
TALL = 32
SIDE_BY_SIDE = 124


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of the run at one moment."""

    elapsed: float
    seconds: float
    """How long the run will be; 0: until Ctrl-C."""
    draining: bool
    """No more orders are sent, and the queries read what is left."""
    written: int
    late: int
    sending_seconds: float
    """How long orders have been sent; it stands still while the queries read what is left."""
    queries: tuple[BatchLog, ...]
    latest: tuple[Mapping[str, Any], ...]
    """The totals of the window that was closed last."""
    apis: tuple[ApiTime, ...]


class Rate:
    """Of a count that grows: how much per second, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, now: float, count: int) -> float:
        self._seen.append((now, count))
        while now - self._seen[0][0] > RATE_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        since, before = self._seen[0]
        return (count - before) / (now - since) if now > since else 0.0


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Display:
    """Shows figures; `running()` is the time during which it may draw."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._rates: dict[str, Rate] = {}
        self._live: Live | None = None
        self._next_line = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False, transient=False) as self._live:
            yield
        self._live = None

    def show(self, figures: Figures, last: bool = False) -> None:
        """Draw now at a terminal; elsewhere a line when it is time for one, and for the last figures."""
        if self._live is not None:
            self._live.update(self._picture(figures), refresh=True)
        elif figures.elapsed >= self._next_line or last:
            self._next_line = figures.elapsed + SECONDS_PER_LINE
            self.console.print(self._line(figures), soft_wrap=True)

    def _rate(self, name: str, figures: Figures, count: int) -> str:
        return number(round(self._rates.setdefault(name, Rate()).of(figures.elapsed, count)))

    def _rate_of_sending(self, figures: Figures) -> str:
        """Of the last seconds; when no more orders are sent, of the whole time in which they were."""
        if figures.draining and figures.sending_seconds > 0:
            return number(round(figures.written / figures.sending_seconds))
        return self._rate("generator", figures, figures.written)

    # ---------------------------------------------------------------- at a terminal

    def _picture(self, figures: Figures) -> RenderableType:
        flow, totals = self._flow(figures), latest_window(figures.latest)
        parts: list[RenderableType] = [headline(figures), ""]
        if self.console.width >= SIDE_BY_SIDE:
            beside = Table.grid(padding=(0, 3))
            beside.add_row(flow, totals)
            parts.append(beside)
        else:
            parts += [flow, totals] if self.console.height >= TALL else [flow]
        if figures.apis:
            parts.append(request_times(list(figures.apis[:APIS_SHOWN]), self.console.width))
        return Group(*parts)

    def _flow(self, figures: Figures) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("", no_wrap=True)
        for name in ("records", "per second", "lag", "batches", "last one"):
            table.add_column(name, justify="right")
        table.add_row("generator", number(figures.written), self._rate_of_sending(figures), "", "", "")
        for log in figures.queries:
            last = log.last
            cells = (number(last.number + 1), f"{last.seconds:.1f} s") if last else ("", "")
            lag = number(max(figures.written - log.rows, 0))
            table.add_row(f"query {log.name}", number(log.rows), self._rate(log.name, figures, log.rows), lag, *cells)
        return table

    # ---------------------------------------------------------------- everywhere else

    def _line(self, figures: Figures) -> str:
        sent = f"sent {number(figures.written)} ({self._rate_of_sending(figures)}/s)"
        parts = [f"{clock(figures.elapsed):>5}  {sent}"]
        for log in figures.queries:
            rate, lag = self._rate(log.name, figures, log.rows), number(max(figures.written - log.rows, 0))
            batch = f", batch {log.last.number} took {log.last.seconds:.1f} s" if log.last else ", starting"
            parts.append(f"{log.name} {number(log.rows)} ({rate}/s), lag {lag}{batch}")
        return "; ".join(parts)


def request_times(apis: list[ApiTime], width: int) -> RenderableType:
    note = "The waiting of FetchConsumer is the long poll of readers that have caught up."
    return Group(table_of(apis, width), Text(note, style="dim"))


def headline(figures: Figures) -> Text:
    if figures.draining:
        state = "no more orders; the queries read what is left"
    else:
        state = f"of {clock(figures.seconds)}" if figures.seconds else "until Ctrl-C"
    sent = f"{number(figures.written)} orders sent, {number(figures.late)} of them late"
    return Text.assemble((clock(figures.elapsed), "bold"), f" {state}; {sent}")


def latest_window(totals: tuple[Mapping[str, Any], ...]) -> RenderableType:
    """The window of now that the pipeline closed last, as it came out of the topic."""
    if not totals:
        return Text("\nno window is closed yet", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{totals[0]['start'][11:19]} – {totals[0]['end'][11:19]}")
    for name in ("orders", "pieces", "revenue"):
        table.add_column(name, justify="right")
    for total in sorted(totals, key=lambda each: str(each["category"])):
        cells = (f"{total[name]:,}".replace(",", " ") for name in ("orders", "pieces", "revenue"))
        table.add_row(str(total["category"]), *cells)
    return table
