"""Size limits of the project's style, measured on the syntax tree.

Role: part of `make check`; fails when a function or file is too long, takes too many parameters, or when fewer than 90 %
of the product's functions fit into 20 lines. Complexity is ruff's C901.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "tools", "bench", "examples")

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 600
MAX_PARAMETERS = 6
SPECIFIED = {"src/barnabas/records/kernel/send_path.py": {"send"}}
"""Functions whose parameters are not ours to choose: `Producer.send` has those that users of the field know."""
SHORT_FUNCTION_LINES = 20
SHORT_SHARE = 0.90

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Findings:
    """What the look at all files brought: the breaches, and the lengths of the product's functions."""

    breaches: list[str] = field(default_factory=list)
    product_lengths: list[int] = field(default_factory=list)

    def short_share(self) -> float:
        short = sum(1 for lines in self.product_lengths if lines <= SHORT_FUNCTION_LINES)
        return short / len(self.product_lengths) if self.product_lengths else 1.0


def python_files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def parameter_count(function: FunctionNode) -> int:
    """Parameters a caller fills in: `self` and `cls` are not counted."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (1 if names[:1] in (["self"], ["cls"]) else 0)


def check_function(function: FunctionNode, place: str, findings: Findings) -> None:
    is_test = place.startswith("tests/")
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if lines > MAX_FUNCTION_LINES:
        findings.breaches.append(
            f"{place}:{function.lineno} {function.name}: {lines} lines, at most {MAX_FUNCTION_LINES}"
        )
    parameters = parameter_count(function)
    if parameters > MAX_PARAMETERS and not is_test and function.name not in SPECIFIED.get(place, ()):
        findings.breaches.append(
            f"{place}:{function.lineno} {function.name}: {parameters} parameters, at most {MAX_PARAMETERS}"
        )
    if place.startswith("src/"):
        findings.product_lengths.append(lines)


def check_file(path: Path, findings: Findings) -> None:
    place = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        findings.breaches.append(f"{place}: {lines} lines, at most {MAX_FILE_LINES}")
    for node in ast.walk(ast.parse(text, filename=place)):
        if isinstance(node, FunctionNode):
            check_function(node, place, findings)


def main() -> int:
    findings = Findings()
    for path in python_files():
        check_file(path, findings)
    share = findings.short_share()
    for breach in findings.breaches:
        print(breach)
    print(
        f"sizes: {share:.1%} of {len(findings.product_lengths)} functions within {SHORT_FUNCTION_LINES} lines "
        f"(at least {SHORT_SHARE:.0%}), {len(findings.breaches)} breaches"
    )
    return 1 if findings.breaches or share < SHORT_SHARE else 0


if __name__ == "__main__":
    sys.exit(main())
