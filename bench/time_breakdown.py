"""Where request time went, read from a broker's /metrics page: per API the mean of each part of a request's time (RP-31).

Pure functions over the text of the page, and one that fetches it.
"""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

# The parts in the order in which a request passes through them: metric name, what to call it, colour.
PARTS = (
    ("requestqueue", "request\nqueue", "yellow"),
    ("local", "handler", "green"),
    ("remote", "waiting", "blue"),
    ("throttle", "throttled", "red"),
    ("responsequeue", "response\nqueue", "magenta"),
    ("responsesend", "sending", "cyan"),
)
BAR_CELLS = 24
WIDE = 110
_SAMPLE = re.compile(
    r'^kafka_network_requestmetrics_(?P<part>\w+?)time_seconds_(?P<what>sum|count)\{request="(?P<api>\w+)"\} (?P<value>\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class ApiTime:
    """One API: how many requests, and the mean seconds of each part."""

    api: str
    requests: int
    means: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.means)


def fetch_page(url: str, timeout: float = 10) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return bytes(answer.read()).decode()


def parse(page: str) -> list[ApiTime]:
    """The APIs that were called, the busiest first."""
    samples = {(m["api"], m["part"], m["what"]): float(m["value"]) for m in _SAMPLE.finditer(page)}
    counts = {api: int(value) for (api, part, what), value in samples.items() if (part, what) == ("total", "count")}
    found = [
        ApiTime(api, count, tuple(samples.get((api, part, "sum"), 0.0) / count for part, _, _ in PARTS))
        for api, count in counts.items()
        if count and api != "Fetch"  # Fetch is the sum of FetchConsumer and FetchFollower
    ]
    return sorted(found, key=lambda each: -each.requests)


def duration(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def bar(api: ApiTime) -> Text:
    """A bar whose coloured stretches are the shares of the parts; largest remainders get the cells that rounding leaves over."""
    shares = [mean / api.total * BAR_CELLS if api.total else 0.0 for mean in api.means]
    cells = [int(share) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda index: cells[index] - shares[index])
    for index in by_rest[: round(sum(shares)) - sum(cells)]:
        cells[index] += 1
    text = Text()
    for count, (_, _, colour) in zip(cells, PARTS, strict=True):
        text.append("█" * count, style=colour)
    return text


def table_of(apis: list[ApiTime], width: int = WIDE) -> Table:
    """Parts that no request spent any time in have no column; a narrow terminal gets no bars."""
    shown = [index for index in range(len(PARTS)) if any(api.means[index] for api in apis)]
    title = "Where the request time went, mean per request"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=width < WIDE)
    table.add_column("API", no_wrap=True)
    for name in ("requests", "total"):
        table.add_column(name, justify="right")
    for index in shown:
        table.add_column(PARTS[index][1], justify="right", style=PARTS[index][2])
    if width >= WIDE:
        table.add_column("share of each part", no_wrap=True)
    for api in apis:
        parts = [duration(api.means[index]) if api.means[index] else "" for index in shown]
        cells = [api.api, f"{api.requests:,}".replace(",", " "), duration(api.total), *parts]
        table.add_row(*cells, *([bar(api)] if width >= WIDE else []))
    return table
