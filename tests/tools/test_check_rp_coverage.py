"""Which lines of the specification count as named by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_rp_coverage as coverage


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(coverage, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("RP-12", {("RP", 12)}),
        ("RP-1, PP-39", {("RP", 1), ("PP", 39)}),
        ("def test_x_rp_7_y", {("RP", 7)}),
        ("rp12x, QP-3, XRP-5", set()),
    ],
)
def test_lines_are_found_in_names_docstrings_and_comments(text: str, found: set[coverage.Line]) -> None:
    assert coverage.mentions(text) == found


def test_only_tests_count_not_what_stands_around_them(tree: Path) -> None:
    source = (
        '"""RP-1"""\n# RP-2\ndef helper():\n    "RP-3"\ndef test_a():\n    "RP-4"\n'
        'class TestB:\n    def test_c(self):\n        "PP-5"\n'
    )
    (tree / "tests" / "test_x.py").write_text(source)
    assert dict(coverage.covered_lines()) == {
        ("RP", 4): ["tests/test_x.py::test_a"],
        ("PP", 5): ["tests/test_x.py::TestB::test_c"],
    }


def test_a_line_is_excused_only_by_an_explicit_row(tree: Path) -> None:
    (tree / "SKIPPED.md").write_text(
        "| RP-8, PP-1 | not tested: no such disk here | later |\n| RP-9 | a part is missing | later |\n"
    )
    assert coverage.skipped_lines() == {("RP", 8): "no such disk here", ("PP", 1): "no such disk here"}


def test_a_missing_line_and_a_stale_page_fail(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["check_rp_coverage.py", "--check"])
    spec = tree / "docs" / "spec"
    spec.mkdir(parents=True)
    (spec / "request-path.md").write_text("- RP-1 A line.\n- RP-2 A line of\n  RP-1 and more.\n- RP-3 The last.\n")
    (spec / "producer-path.md").write_text("- PP-1 One.\n- PP-2 Two.\n")
    (tree / "tests" / "test_x.py").write_text("def test_a():\n    'RP-1, RP-2'\n")
    assert coverage.main() == 1
    output = capsys.readouterr().out
    assert "RP-3\n" in output
    assert "PP-1, PP-2" in output
    assert "stale" in output
    assert "2 of 3 lines" in output
