"""`barnabas log verify|dump|repair PATH`: the files of a log, looked at from outside.

Role: options, progress bar and exit codes; the work is in `broker/log/inspection`, the looks are in `log_text.py`.
Thread: the main thread. Lock: none; repair takes the lock of the log directory.

Exit codes: 0 nothing is damaged, 1 something is (or is left), 2 the command cannot be done.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice

import click

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.inspection import dump, repair, targets, verify
from barnabas.cli import log_text
from barnabas.errors import BarnabasError

DAMAGED = 1
CANNOT = 2
LONG_WORK_BYTES = 16 * 1024 * 1024

PATH = click.argument("path", type=click.Path(exists=True))
FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print it."
)
PARTS = (dump.BATCHES, dump.INDEXES, dump.SNAPSHOTS, dump.CHECKPOINTS)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """What the user can mend is one line on standard error and exit code 2."""
    try:
        yield
    except BrokenPipeError:
        raise  # cli/__init__.py: the reader of the output has left
    except (BarnabasError, OSError) as error:
        print(f"barnabas: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(CANNOT)


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error for long work at a terminal; it is gone afterwards."""
    if total < LONG_WORK_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=log_text.console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@click.group("log")
def command() -> None:
    """Verify, dump or repair the files of a log, without a broker.

    PATH is a log directory (an entry of log.dirs), the directory of a partition, or one file of it.
    """


@command.command("verify", short_help="Check every batch, record and index.")
@PATH
@FORMAT
@click.option("--all", "all_findings", is_flag=True, help="Print every finding and every partition, however many.")
def verify_command(path: str, form: str, all_findings: bool) -> None:
    """Check every batch, every record, and the indexes, snapshots and checkpoints beside them.

    Reads only and takes no lock: it works while a broker runs, and what that is writing meanwhile is no damage.
    Exit code 0: nothing is damaged; 1: something is; 2: there is nothing to check.
    """
    files = FileSystem()
    with user_errors():
        target = targets.find(files, path)
        with progress_bar("verifying", verify.total_bytes(files, target)) as progress:
            report = verify.verify_target(files, target, progress)
    if form == "json":
        click.echo(json.dumps(log_text.verify_json(report), indent=2))
    else:
        log_text.print_verify(report, all_findings)
    sys.exit(0 if report.clean else DAMAGED)


@command.command("dump", short_help="Print batches, records, indexes, snapshots, checkpoints.")
@PATH
@FORMAT
@click.option("--records", "--deep", "records", is_flag=True, help="Also the records inside the batches.")
@click.option(
    "--show",
    type=click.Choice([*PARTS, "all"]),
    multiple=True,
    help="What to print; may be repeated. Without it: batches, or the file that PATH names.",
)
@click.option("--from-offset", "first", type=click.IntRange(0), default=0, help="The first offset.")
@click.option("--to-offset", "last", type=click.IntRange(0), default=dump.LAST_OFFSET, help="The last offset.")
@click.option("-n", "--limit", type=click.IntRange(0), default=None, help="Print at most this many rows.")
@click.option(
    "--bytes",
    "bytes_as",
    type=click.Choice(sorted(log_text.BYTES)),
    default="auto",
    show_default=True,
    help="How keys and values are printed; auto: text where they are text, else hexadecimal.",
)
@click.option("--full", is_flag=True, help="Do not shorten long keys and values.")
def dump_command(
    path: str, form: str, records: bool, show: tuple[str, ...], limit: int | None, **options: object
) -> None:
    """Print what is in the files: batches, records, indexes, snapshots of producers, checkpoints.

    With --format json each row is one line. Reads only and takes no lock.
    """
    files = FileSystem()
    parts = set(PARTS if "all" in show else show or (dump.BATCHES,)) | ({dump.RECORDS} if records else set())
    selection = dump.Selection(
        frozenset(parts),
        log_text.BYTES[str(options["bytes_as"])],
        int(str(options["first"])),
        int(str(options["last"])),
    )
    with user_errors():
        found = islice(dump.rows(files, targets.find(files, path), selection), limit)
        if form == "json":
            for row in found:
                click.echo(json.dumps(row))
        else:
            log_text.print_rows(found, full=bool(options["full"]))


@command.command("repair", short_help="Rebuild what can be, cut a torn tail, take out damage.")
@PATH
@FORMAT
@click.option("--dry-run", is_flag=True, help="Say what would be done and write nothing.")
@click.option(
    "--drop-damaged",
    is_flag=True,
    help="Take damaged batches out of the middle of a log; their bytes are kept in .damaged files.",
)
def repair_command(path: str, form: str, dry_run: bool, drop_damaged: bool) -> None:
    """Rebuild indexes and snapshots and cut a torn tail; with --drop-damaged also take out what is damaged in the middle.

    Refuses while a broker uses the directory. What leaves a segment is kept in a file beside it, batches behind it
    keep their offsets. Exit code 0: all is well now; 1: damage is left (or --dry-run found some); 2: it cannot be done.
    """
    files = FileSystem()
    with user_errors():
        target = targets.find(files, path)
        options = repair.RepairOptions(drop_damaged=drop_damaged, dry_run=dry_run)
        with progress_bar("repairing", verify.total_bytes(files, target)) as progress:
            report = repair.repair_target(files, target, options, progress)
    if form == "json":
        click.echo(json.dumps(log_text.repair_json(report), indent=2))
    else:
        log_text.print_repair(report)
    sys.exit(0 if report.clean else DAMAGED)
