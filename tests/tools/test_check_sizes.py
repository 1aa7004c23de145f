"""The size limits are measured as the style page says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import check_sizes
from tools.check_sizes import Findings, check_file, check_function, parameter_count


def function(source: str) -> check_sizes.FunctionNode:
    node = ast.parse(source).body[0]
    assert isinstance(node, check_sizes.FunctionNode)
    return node


def body(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


def test_self_is_not_a_parameter() -> None:
    assert parameter_count(function("def f(self, a, *, b=1): ...")) == 2
    assert parameter_count(function("def f(a, b): ...")) == 2


@pytest.mark.parametrize(("lines", "breaches"), [(60, 0), (61, 1)])
def test_a_function_has_at_most_60_lines(lines: int, breaches: int) -> None:
    findings = Findings()
    check_function(function(body(lines)), "src/x.py", findings)
    assert len(findings.breaches) == breaches


def test_a_function_has_at_most_6_parameters_except_in_tests() -> None:
    findings = Findings()
    many = function("def f(a, b, c, d, e, g, h): ...")
    check_function(many, "tests/x.py", findings)
    assert not findings.breaches
    check_function(many, "src/x.py", findings)
    assert "7 parameters" in findings.breaches[0]


def test_a_file_has_at_most_600_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_sizes, "ROOT", tmp_path)
    file = tmp_path / "long.py"
    findings = Findings()
    file.write_text("x = 1\n" * 601)
    check_file(file, findings)
    assert "601 lines" in findings.breaches[0]


def test_the_share_of_short_functions_is_of_the_product_only() -> None:
    findings = Findings()
    check_function(function(body(30)), "tests/x.py", findings)
    check_function(function(body(30)), "src/x.py", findings)
    check_function(function(body(5)), "src/x.py", findings)
    assert findings.short_share() == 0.5
