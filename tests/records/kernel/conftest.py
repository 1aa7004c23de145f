"""Every test of the kernel runs with both of its forms."""

from __future__ import annotations

import pytest

from tests.records.kernel.forms import COMPILED, PLAIN, Kernel, load


@pytest.fixture(scope="session", params=[PLAIN, COMPILED])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    loaded = load(request.param)
    if loaded is None:
        pytest.skip("the package was built without a C compiler: there is no compiled kernel")
    return loaded
