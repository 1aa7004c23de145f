"""Says whether this environment already has everything that pyproject.toml names.

Role: lets `make setup` go on without a network (tools/setup_venv.sh). Exit code 0 when all requirements are met.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?")


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def unmet(requirement: str) -> str | None:
    """Why `requirement` is not met, or None. Only `name>=version`, an upper bound and a marker are used in our pyproject."""
    _, _, marker = requirement.partition(";")
    if marker and not _applies(marker):
        return None
    match = REQUIREMENT.match(requirement)
    if match is None:
        return f"cannot read {requirement!r}"
    name, least = match.groups()
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    if least and version_tuple(found) < version_tuple(least):
        return f"{name} {found} is older than {least}"
    return None


def _applies(marker: str) -> bool:
    """Whether a requirement is one of this platform. Where pytest is missing, and `packaging` with it, more is missing than this."""
    try:
        from packaging.markers import Marker
    except ImportError:
        return True
    return Marker(marker).evaluate()


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [project["name"], *project["dependencies"], *project["optional-dependencies"]["dev"]]
    problems = [problem for requirement in wanted if (problem := unmet(requirement))]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
