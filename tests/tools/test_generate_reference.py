"""The reference pages are made from the rows, and tables survive what stands in a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker import metrics, settings, topic_settings
from tools import generate_reference as reference


def test_every_row_is_on_its_page() -> None:
    assert all(f"`{row.name}`" in reference.broker_config_page() for row in settings.BROKER)
    assert all(f"`{row.name}`" in reference.topic_config_page() for row in topic_settings.TOPIC)
    assert all(f"`{row.name}`" in reference.metrics_page() for row in metrics.ROWS)


def test_defaults_that_depend_on_the_build_are_described_not_computed() -> None:
    assert reference.default_text(settings.BROKER["num.io.threads"]) == "2 with the GIL, 8 without"


def test_a_bar_in_a_text_does_not_break_the_table() -> None:
    assert reference.markdown_table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"


def test_a_page_that_differs_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr(reference, "PAGES", {"page.md": lambda: "new"})
    monkeypatch.setattr("sys.argv", ["generate_reference.py", "--check"])
    assert reference.main() == 1
    monkeypatch.setattr("sys.argv", ["generate_reference.py"])
    assert reference.main() == 0
    monkeypatch.setattr("sys.argv", ["generate_reference.py", "--check"])
    assert reference.main() == 0
