"""`python -m tests.history FILE...`: check histories and say what was found; the exit code is 1 when one of them fails."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from tests.history.checker import check_file


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--no-final-read", is_flag=True, help="The history does not end with a read of everything: no `unseen`.")
def main(files: tuple[Path, ...], no_final_read: bool) -> None:
    """Check histories (JSON lines, see tests/history/record.py) for the anomalies of faults.md, section 2."""
    good = True
    for file in files:
        began = time.monotonic()
        report = check_file(file, final_read=not no_final_read)
        click.echo(f"{file} (checked in {time.monotonic() - began:.1f} s)\n{report.text()}")
        good = good and report.ok
    sys.exit(0 if good else 1)


main()
