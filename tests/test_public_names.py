"""What `barnabas` itself offers: the public names, documented, and loaded only when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import barnabas

HEAVY = ("barnabas.broker", "barnabas.client", "barnabas.consumer", "barnabas.producer", "barnabas.records", "asyncio")
ASK = f"import sys, barnabas; print([name for name in sys.modules if name.startswith({HEAVY!r})])"


@pytest.mark.parametrize("name", barnabas.__all__)
def test_a_public_name_is_there_and_its_documentation_has_an_example(name: str) -> None:
    found = getattr(barnabas, name)
    assert found.__name__ == name
    assert found.__doc__ is not None
    assert any(use in found.__doc__ for use in (f"{name}(", f"{name}.", f"except {name}", "for record in"))
    assert name in dir(barnabas)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Broker'"):
        barnabas.Broker  # noqa: B018


def test_the_package_alone_imports_no_client_and_no_broker() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
