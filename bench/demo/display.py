"""What the demo shows while it runs: a picture that is drawn anew at a terminal, a line now and then everywhere else.

Role: turns figures into text; asks nobody for anything.
Thread: the demo's own, and rich's refresh thread at a terminal, which draws the last picture again. Lock: rich's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of the run at one moment."""

    elapsed: float
    seconds: float
    """How long the run will be; 0: until Ctrl-C."""
    written: int
    late: int
    queries: tuple[BatchLog, ...]
    latest: tuple[Mapping[str, object], ...]
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

    def show(self, figures: Figures) -> None:
        if self._live is not None:
            self._live.update(self._picture(figures), refresh=True)
        elif figures.elapsed >= self._next_line:
            self._next_line = figures.elapsed + SECONDS_PER_LINE
            self.console.print(self._line(figures), soft_wrap=True)

    def _rate(self, name: str, figures: Figures, count: int) -> str:
        return number(round(self._rates.setdefault(name, Rate()).of(figures.elapsed, count)))

    # ---------------------------------------------------------------- at a terminal

    def _picture(self, figures: Figures) -> RenderableType:
        length = f"of {clock(figures.seconds)}" if figures.seconds else "until Ctrl-C"
        parts: list[RenderableType] = [
            Text.assemble((f"{clock(figures.elapsed)} ", "bold"), (length, "dim")),
            self._flow(figures),
            latest_window(figures.latest),
        ]
        if figures.apis:
            parts.append(table_of(list(figures.apis[:APIS_SHOWN]), self.console.width))
        return Group(*parts)

    def _flow(self, figures: Figures) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("")
        for name in ("rows", "rows/s", "lag", "batch", "batch time"):
            table.add_column(name, justify="right")
        rate = self._rate("orders", figures, figures.written)
        table.add_row("orders sent", number(figures.written), rate, f"{number(figures.late)} late", "", "")
        for log in figures.queries:
            last = log.last
            cells = (str(last.number), f"{last.seconds:.1f} s") if last else ("", "starting")
            lag = number(max(figures.written - log.rows, 0))
            table.add_row(f"query {log.name}", number(log.rows), self._rate(log.name, figures, log.rows), lag, *cells)
        return table

    # ---------------------------------------------------------------- everywhere else

    def _line(self, figures: Figures) -> str:
        parts = [
            f"{clock(figures.elapsed):>5}  sent {number(figures.written)} ({self._rate('orders', figures, figures.written)}/s)"
        ]
        for log in figures.queries:
            rate, lag = self._rate(log.name, figures, log.rows), number(max(figures.written - log.rows, 0))
            batch = f", batch {log.last.number} took {log.last.seconds:.1f} s" if log.last else ", starting"
            parts.append(f"{log.name} {number(log.rows)} ({rate}/s), lag {lag}{batch}")
        return "; ".join(parts)


def latest_window(totals: tuple[Mapping[str, object], ...]) -> RenderableType:
    """The last window that the pipeline closed, as it came out of the topic."""
    if not totals:
        return Text("no window is closed yet\n", style="dim")
    window = f"{str(totals[0]['start'])[11:19]} to {str(totals[0]['end'])[11:19]}"
    table = Table(title=f"Topic revenue, the window from {window}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("category")
    for name in ("orders", "pieces", "revenue"):
        table.add_column(name, justify="right")
    for total in sorted(totals, key=lambda each: str(each["category"])):
        cells = (f"{total[name]:,}".replace(",", " ") for name in ("orders", "pieces", "revenue"))
        table.add_row(str(total["category"]), *cells)
    return table
