"""Every test of the codec runs with both of its forms: generated Python source, and C that follows a table."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from unittest import mock

import pytest

from barnabas import native
from barnabas.protocol import codec

SOURCE, NATIVE = "source", "native"


@pytest.fixture(scope="module", autouse=True, params=[SOURCE, NATIVE])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """The form that runs. What one form has made is not left to the other."""
    chosen = codec.SourceForm
    if request.param == NATIVE:
        if not codec_is_built():
            pytest.skip("the package was built without a C compiler: there is no codec in C")
        chosen = importlib.import_module("barnabas.protocol.native.plan").Plan
    tables = (codec._request_decoders, codec._response_decoders, codec._encoders, codec._framers)
    with mock.patch.object(codec, "_Form", chosen):
        for table in tables:
            table.clear()
        yield request.param
    for table in tables:
        table.clear()


def codec_is_built() -> bool:
    with mock.patch.dict(os.environ, {native.SWITCH: "1"}):
        native.is_codec_native.cache_clear()
        try:
            return native.is_codec_native()
        finally:
            native.is_codec_native.cache_clear()
