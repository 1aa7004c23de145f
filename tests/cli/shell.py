"""Runs commands of the command line in the test's process, against a broker that they find through the environment."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from barnabas.cli import main
from tests.waiting import wait_until


class Shell:
    """`shell("topics", "--list")` has the result, `shell.ok(…)` the output of what must succeed."""

    def __init__(self, server: str) -> None:
        self._environment = {"KAFKA_BOOTSTRAP_SERVERS": server}

    def __call__(self, *arguments: object, text: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, [str(word) for word in arguments], input=text, env=self._environment)

    def ok(self, *arguments: object, text: str | bytes | None = None) -> str:
        result = self(*arguments, text=text)
        assert result.exit_code == 0, result.output
        return result.stdout

    def rows(self, *arguments: object) -> Any:
        return json.loads(self.ok(*arguments, "--format", "json"))

    def until(self, settings: dict[str, str], *arguments: object) -> None:
        """Until `configs` shows just these settings: Apache Kafka answers a change before the broker itself has heard of it."""
        found: dict[str, str] = {}

        def shown() -> bool:
            found.clear()
            found.update({row["name"]: row["value"] for row in self.rows(*arguments)})
            return found == settings

        wait_until(shown, what=f"{settings} in the answer, which was {found},")

    def records(self, *arguments: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok("consume", *arguments, "-e", "--format", "json").splitlines()]
