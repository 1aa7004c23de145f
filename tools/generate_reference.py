"""Writes docs/reference from the rows that the code declares: settings, topic configs, metrics, error codes, APIs, options of Spark.

Role: `make reference` writes, `--check` (part of `make check`) fails when a page is not what the rows say.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from barnabas.broker import metrics, settings, topic_settings
from barnabas.broker.apis import table
from barnabas.client.admin_config import ADMIN_ROWS
from barnabas.client.config import COMMON_ROWS
from barnabas.config import ConfigDef, ConfigKey, to_text
from barnabas.consumer.config import CONSUMER_ROWS
from barnabas.errors import ErrorCode
from barnabas.producer.config import OBJECT_ROWS, PRODUCER_ROWS
from barnabas.spark import options as spark_options

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
HEADING = re.compile(r"^\w+ \(key \d+\), versions? [\d-]+( \([^)]*\))?[.:]?\s*")
NOTE = "Written by `make reference` from the rows in `{source}`; do not edit.\n"

# The same page must come out of every build of Python, so defaults that depend on the build are described, not computed.
DEPENDS_ON_BUILD = {
    "num.network.threads": "1 with the GIL, 3 without",
    "num.io.threads": "2 with the GIL, 8 without",
}


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def default_text(row: ConfigKey) -> str:
    if row.name in DEPENDS_ON_BUILD:
        return DEPENDS_ON_BUILD[row.name]
    text = to_text(row.default)
    return f"`{text}`" if text else "none"


def config_rows(definition: ConfigDef) -> Iterable[Sequence[str]]:
    for row in sorted(definition, key=lambda row: row.name):
        allowed = row.allowed.words.removeprefix("must be ") if row.allowed else ""
        yield f"`{row.name}`", row.type.name.lower(), default_text(row), allowed, "yes" if row.dynamic else "", row.doc


def broker_config_page() -> str:
    head = ("key", "type", "default", "allowed", "changes at run time", "what it does")
    return (
        "# Broker settings\n\n"
        + NOTE.format(source="src/barnabas/broker/settings.py")
        + "\nNames are Kafka's; keys of our own begin with `barnabas.`. In the environment `KAFKA_NUM_IO_THREADS` means "
        "`num.io.threads`: `_` is a dot, `__` a dash, `___` an underscore. Unknown keys are warned about, never an error.\n"
        "`listener.name.<name>.max.connections` and `listener.name.<name>.max.connection.creation.rate` limit one listener.\n\n"
        + markdown_table(head, config_rows(settings.BROKER))
    )


def topic_config_page() -> str:
    head = ("key", "type", "default", "allowed", "broker setting behind it", "what it does")
    rows = (
        (*cells[:4], f"`{topic_settings.TOPIC[cells[0].strip('`')].fallback}`".replace("``", ""), cells[5])
        for cells in config_rows(topic_settings.TOPIC)
    )
    return (
        "# Topic configs\n\n"
        + NOTE.format(source="src/barnabas/broker/topic_settings.py")
        + "\nA config that the topic does not set has the value of the broker setting behind it, else the default. All of them "
        "change at run time.\n\n" + markdown_table(head, rows)
    )


def metrics_page() -> str:
    rows = (
        (f"`{row.name}`", row.kind, ", ".join(f"`{label}`" for label in row.labels), row.help)
        for row in sorted(metrics.ROWS, key=lambda row: row.name)
    )
    return (
        "# Metrics\n\n"
        + NOTE.format(source="src/barnabas/broker/metrics.py")
        + "\nServed as Prometheus text at `/metrics` on `barnabas.metrics.listener`. The names are those that Kafka's MBeans have "
        "behind the JMX exporter, so that existing boards work; each `…timems` summary has a histogram in seconds beside it.\n"
        "For every request the total time is the sum of its parts, throttle time included.\n\n"
        + markdown_table(("name", "kind", "labels", "meaning"), rows)
    )


def errors_page() -> str:
    rows = (
        (str(code.value), f"`{code.name}`", "yes" if code.retriable else "", code.text)
        for code in sorted(ErrorCode, key=lambda code: code.value)
    )
    return (
        "# Error codes\n\n"
        + NOTE.format(source="src/barnabas/errors.py")
        + "\n"
        + markdown_table(("code", "name", "retriable", "meaning"), rows)
    )


def summary_of(module: str) -> str:
    """What an API file says of itself, read without importing it: its first line, less the key and versions that it begins with;
    when nothing more stands there, the first sentence below it."""
    path = ROOT / "src" / Path(*table.PACKAGE.split(".")) / f"{module}.py"
    head, _, rest = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")
    sentence = " ".join(rest.partition("\n\n")[0].split()).partition(". ")[0]
    return (HEADING.sub("", head) or sentence).rstrip(".")


def apis_page() -> str:
    rows = (
        (
            str(row.key),
            row.module.title().replace("_", ""),
            f"{row.min_version}-{row.max_version}"
            + (f" (advertised from {row.advertised_min})" if row.advertised_min != row.min_version else ""),
            "yes" if row.inline else "",
            summary_of(row.module),
        )
        for row in sorted(table.ROWS, key=lambda row: row.key)
    )
    return (
        "# APIs\n\n"
        + NOTE.format(source="src/barnabas/broker/apis/table.py")
        + "\nWhat is not in this list is not advertised; SKIPPED.md says why and when it comes. Inline: the processor may run it "
        "itself (docs/adr/0001).\n\n" + markdown_table(("key", "API", "versions", "inline", "what it does"), rows)
    )


def client_config_page() -> str:
    head = ("key", "type", "default", "allowed", "what it does")
    tables = [
        f"\n## {title}\n\n"
        + markdown_table(head, ((*cells[:4], cells[5]) for cells in config_rows(ConfigDef(title, rows))))
        for title, rows in CLIENT_SETTINGS.items()
    ]
    return (
        "# Settings of the clients\n\n"
        + NOTE.format(
            source="src/barnabas/client/config.py, src/barnabas/producer/config.py, src/barnabas/consumer/config.py"
        )
        + "\nNames are Kafka's; keys of our own begin with `barnabas.`. Unknown keys are warned about, with the nearest known name.\n"
        + "".join(tables)
    )


def spark_options_page() -> str:
    head = ("option", "value", "default", "of", "what it does")
    rows = (
        (
            f"`{row.name}`" + (" (ours)" if row.ours else ""),
            row.kind,
            f"`{row.default}`" if row.default else "",
            ", ".join(use.value for use in spark_options.Use if use in row.uses),
            row.text,
        )
        for row in spark_options.ROWS
    )
    return (
        "# Options of the Spark connector\n\n"
        + NOTE.format(source="src/barnabas/spark/options.py")
        + '\nFor `format("barnabas")`, with the names and meanings of Spark\'s own Kafka connector; names may be written in any case. '
        "Every other `kafka.*` option is a [setting of the client](client-config.md). An unknown option is an error.\n\n"
        + markdown_table(head, rows)
    )


CLIENT_SETTINGS = {
    "All clients": COMMON_ROWS,
    "Producer": (*PRODUCER_ROWS, *OBJECT_ROWS),
    "Consumer": CONSUMER_ROWS,
    "Admin": ADMIN_ROWS,
}

PAGES: dict[str, Callable[[], str]] = {
    "broker-config.md": broker_config_page,
    "client-config.md": client_config_page,
    "topic-config.md": topic_config_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "apis.md": apis_page,
    "spark-options.md": spark_options_page,
}


def main() -> int:
    check = "--check" in sys.argv[1:]
    FOLDER.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    verb = "stale, run `make reference`" if check else "written"
    print(f"reference: {', '.join(stale)} {verb}" if stale else f"reference: {len(PAGES)} pages up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
