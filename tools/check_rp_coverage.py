"""Every line of the request-path specification (RP-1 to RP-42) is named by a test or excused in SKIPPED.md.

Role: part of `make check`; without `--check` it also writes docs/reference/request-path-coverage.md, with it the page must
be up to date. A test names a line in its own name, its docstring, or a comment: `RP-12`, `RP-12, RP-13` or `rp_12`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "request-path-coverage.md"
LINES = range(1, 43)
MENTION = re.compile(r"\bRP-(\d+)\b|_rp_?(\d+)(?=_|\b)", re.IGNORECASE)
MAX_SHOWN = 6
ABOUT_TOOLS = "tests/tools/"  # tests of this very file: the lines that they name are examples

Coverage = dict[int, list[str]]


def mentions(text: str) -> set[int]:
    return {int(a or b) for a, b in MENTION.findall(text)}


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


def skipped_lines() -> dict[int, str]:
    """The reasons in SKIPPED.md: table rows `| RP-n | not tested: why |`. Other rows name parts of a line, and excuse nothing."""
    reasons: dict[int, str] = {}
    path = ROOT / "SKIPPED.md"
    for row in path.read_text().splitlines() if path.exists() else []:
        match = re.match(r"^\| RP-(\d+) \| not tested: (.+?) \|", row)
        if match:
            reasons[int(match.group(1))] = match.group(2)
    return reasons


def page(coverage: Coverage, skipped: dict[int, str]) -> str:
    rows = [
        "# Which test proves which line of the request path",
        "",
        "Written by `make reference` from the tests; do not edit.",
        "",
        "| line | tests | for example |",
        "|---|---|---|",
    ]
    for line in LINES:
        tests = coverage.get(line, [])
        shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[:MAX_SHOWN])
        reason = f"left out: {skipped[line]}" if line in skipped else ""
        rows.append(f"| RP-{line} | {len(tests)} | {'<br>'.join(part for part in (shown, reason) if part)} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    coverage, skipped = covered_lines(), skipped_lines()
    missing = [line for line in LINES if not coverage.get(line) and line not in skipped]
    text = page(coverage, skipped)
    check, stale = "--check" in sys.argv[1:], False
    if check:
        stale = not PAGE.exists() or PAGE.read_text() != text
    else:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text)
    if missing:
        print("named by no test and not in SKIPPED.md: " + ", ".join(f"RP-{line}" for line in missing))
    if stale:
        print(f"{PAGE.relative_to(ROOT)} is stale: run `make reference`")
    print(f"request path: {len(LINES) - len(missing)} of {len(LINES)} lines accounted for")
    return 1 if check and (missing or stale) else 0


if __name__ == "__main__":
    sys.exit(main())
