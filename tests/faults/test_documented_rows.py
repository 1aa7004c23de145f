"""docs/faults.md says which row is tested where: it and the tests agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "faults.md"
ROW = re.compile(r"^\| (\d+) \|.*?`(test_\w+\.py)`", re.MULTILINE)


def reported_rows() -> set[tuple[int, str]]:
    """(row, file) of every call of `report` in the tests of this directory."""
    found = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "report":
                assert isinstance(node.args[0], ast.Constant), f"{path.name}: the row is not a number"
                found.add((int(str(node.args[0].value)), path.name))
    return found


def test_every_row_that_is_tested_is_documented_and_the_other_way_round() -> None:
    documented = {(int(row), file) for row, file in ROW.findall(PAGE.read_text())}
    assert reported_rows() == documented
