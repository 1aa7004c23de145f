"""`python -m tests.fuzz` runs all targets and attacks a broker, `python -m tests.fuzz TARGET FILE ...` tries inputs again."""

from __future__ import annotations

import os
import sys

os.environ["BARNABAS_NATIVE"] = "0"

from tests.fuzz.campaign import main

sys.exit(main(sys.argv[1:]))
