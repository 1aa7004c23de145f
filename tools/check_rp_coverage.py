"""Every numbered line of the specifications in docs/spec (RP-n, PP-n) is named by a test or excused in SKIPPED.md.

Role: part of `make check`; without `--check` it also writes the pages `docs/reference/*-coverage.md`, with it they must be up to date.
A test names a line in its own name, its docstring, or a comment: `RP-12`, `RP-12, PP-13` or `rp_12`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MENTION = re.compile(r"\b(RP|PP)-(\d+)\b|_(rp|pp)_?(\d+)(?=_|\b)", re.IGNORECASE)
MAX_SHOWN = 6
ABOUT_TOOLS = "tests/tools/"  # tests of this very file: the lines that they name are examples

Line = tuple[str, int]  # ("RP", 12)
Coverage = dict[Line, list[str]]


@dataclass(frozen=True, slots=True)
class Specification:
    """One specification with numbered lines."""

    prefix: str
    title: str

    @property
    def name(self) -> str:
        return self.title.replace(" ", "-")

    @property
    def lines(self) -> list[Line]:
        text = (ROOT / "docs" / "spec" / f"{self.name}.md").read_text()
        return [(self.prefix, int(number)) for number in re.findall(rf"^- {self.prefix}-(\d+) ", text, re.MULTILINE)]

    @property
    def page(self) -> Path:
        return ROOT / "docs" / "reference" / f"{self.name}-coverage.md"


SPECIFICATIONS = (Specification("RP", "request path"), Specification("PP", "producer path"))


def mentions(text: str) -> set[Line]:
    return {((a or c).upper(), int(b or d)) for a, b, c, d in MENTION.findall(text)}


def tests_of(path: Path) -> list[tuple[str, str]]:
    """(name, source) of each test function of a file, with its class in front when it has one."""
    text = path.read_text()
    tree = ast.parse(text, filename=str(path))
    found: list[tuple[str, str]] = []
    scopes: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for scope in scopes:
        prefix = f"{scope.name}::" if isinstance(scope, ast.ClassDef) else ""
        found += [
            (prefix + node.name, ast.get_source_segment(text, node) or "")
            for node in scope.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
        ]
    return found


def covered_lines() -> Coverage:
    coverage: Coverage = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(ABOUT_TOOLS):
            continue
        for name, source in tests_of(path):
            for line in mentions(source):
                coverage[line].append(f"{place}::{name}")
    return coverage


def skipped_lines() -> dict[Line, str]:
    """The reasons in SKIPPED.md: table rows `| RP-n | not tested: why |`. Other rows name parts of a line, and excuse nothing."""
    reasons: dict[Line, str] = {}
    path = ROOT / "SKIPPED.md"
    for row in path.read_text().splitlines() if path.exists() else []:
        match = re.match(r"^\| (.+?) \| not tested: (.+?) \|", row)
        if match:
            reasons.update(dict.fromkeys(mentions(match.group(1)), match.group(2)))
    return reasons


def page(specification: Specification, coverage: Coverage, skipped: dict[Line, str]) -> str:
    rows = [
        f"# Which test proves which line of the {specification.title}",
        "",
        f"Written by `make reference` from the tests; do not edit. The lines: [{specification.title}](../spec/{specification.name}.md).",
        "",
        "| line | tests | for example |",
        "|---|---|---|",
    ]
    for line in specification.lines:
        tests = coverage.get(line, [])
        shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[:MAX_SHOWN])
        reason = f"left out: {skipped[line]}" if line in skipped and not tests else ""
        rows.append(f"| {name_of(line)} | {len(tests)} | {shown or reason} |")
    return "\n".join(rows) + "\n"


def name_of(line: Line) -> str:
    return f"{line[0]}-{line[1]}"


def examine(specification: Specification, coverage: Coverage, skipped: dict[Line, str], check: bool) -> bool:
    """Write or compare the page of one specification, and say what is missing; True when all is well."""
    lines = specification.lines
    missing = [line for line in lines if not coverage.get(line) and line not in skipped]
    text = page(specification, coverage, skipped)
    path = specification.page
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    stale = not path.exists() or path.read_text() != text
    if missing:
        print("named by no test and not in SKIPPED.md: " + ", ".join(map(name_of, missing)))
    if stale:
        print(f"{path.relative_to(ROOT)} is stale: run `make reference`")
    print(f"{specification.title}: {len(lines) - len(missing)} of {len(lines)} lines accounted for")
    return bool(lines) and not missing and not stale


def main() -> int:
    coverage, skipped = covered_lines(), skipped_lines()
    check = "--check" in sys.argv[1:]
    well = [examine(specification, coverage, skipped, check) for specification in SPECIFICATIONS]
    return 1 if check and not all(well) else 0


if __name__ == "__main__":
    sys.exit(main())
