"""The example runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from barnabas.testing import EmbeddedBroker

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "produce.py"


def test_the_producers_example_runs() -> None:
    with EmbeddedBroker() as broker:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), broker.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        assert "the first record has offset 0" in done.stdout
        assert len(broker.records("example-orders")) == 20_101
