"""The entry point: help, version, unknown commands, and the printed settings."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from barnabas import __version__
from barnabas.broker.settings import BROKER
from barnabas.broker.topic_settings import TOPIC
from barnabas.cli import COMMANDS, main


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_help_lists_every_command(runner: CliRunner) -> None:
    text = runner.invoke(main, ["--help"]).output
    assert all(name in text and help_text in text for name, help_text in COMMANDS.items())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(runner: CliRunner, name: str) -> None:
    result = runner.invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_the_version_is_the_package_s(runner: CliRunner) -> None:
    assert runner.invoke(main, ["--version"]).output == f"barnabas {__version__}\n"


def test_an_unknown_command_is_refused(runner: CliRunner) -> None:
    assert runner.invoke(main, ["brokr"]).exit_code == 2


def test_the_module_runs_like_the_command() -> None:
    output = subprocess.run([sys.executable, "-m", "barnabas", "--version"], capture_output=True, text=True, check=True)
    assert output.stdout == f"barnabas {__version__}\n"


def test_asking_for_the_version_imports_no_command() -> None:
    code = (
        "import sys\nfrom barnabas.cli import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in sys.modules if m.startswith(('barnabas.broker', 'rich', 'psutil', 'cramjam'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1] == "[]"


def test_the_settings_are_printed_from_their_rows(runner: CliRunner) -> None:
    rows = json.loads(runner.invoke(main, ["settings", "broker", "--format", "json"]).output)
    assert [row["name"] for row in rows] == [row.name for row in BROKER]
    text = runner.invoke(main, ["settings", "topic", "retention"]).output
    names = [row.name for row in TOPIC if "retention" in row.name]
    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == names


def test_settings_are_found_under_their_former_name(runner: CliRunner) -> None:
    assert runner.invoke(main, ["config", "topic"]).output == runner.invoke(main, ["settings", "topic"]).output
    assert "config " not in runner.invoke(main, ["--help"]).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.properties", "b.properties"], "only one file"),
        (["--memory", "--data-dir", "x"], "exclude each other"),
        (["--port", "70000"], "0<=x<=65535"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(runner: CliRunner, arguments: list[str], words: str) -> None:
    result = runner.invoke(main, ["broker", *arguments])
    assert result.exit_code == 2
    assert words in result.output
