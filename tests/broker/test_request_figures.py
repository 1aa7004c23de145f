"""The figures of requests count the same in both of their forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.request_figures import PARTS
from tests.records.kernel.forms import COMPILED, PLAIN, load

STAMP = st.integers(0, 2**62 - 1)


@given(st.lists(st.tuples(st.tuples(*[STAMP] * 6), st.integers(0, 10**12), st.integers(0, 2**31)), max_size=20))
def test_both_forms_agree(requests: list[tuple[tuple[int, ...], int, int]]) -> None:
    plain, compiled = load(PLAIN), load(COMPILED)
    assert plain is not None
    if compiled is None:
        pytest.skip("the package was built without a C compiler: there is only one form")
    figures = [form.module("barnabas.broker.request_figures").RequestFigures() for form in (plain, compiled)]
    for stamps, throttle, size in requests:
        first, second = (each.record(stamps, throttle, size) for each in figures)
        assert first == second
    for part in PARTS:
        first, second = (each.histogram(part) for each in figures)
        assert (first.buckets, first.sum, first.max) == (second.buckets, second.sum, second.max)
    assert figures[0].request_bytes().buckets == figures[1].request_bytes().buckets


@pytest.mark.parametrize("form", [PLAIN, COMPILED])
def test_a_sum_goes_on_beyond_64_bits_also_when_shards_are_merged(form: str) -> None:
    kernel = load(form)
    if kernel is None:
        pytest.skip("the package was built without a C compiler: there is only one form")
    module = kernel.module("barnabas.broker.request_figures")
    shards = [module.RequestFigures(), module.RequestFigures()]
    for shard in shards:
        for _ in range(3):
            shard.record((0, 2**63 - 1, 0, 0, 0, 0), 0, 1)
    total = module.RequestFigures()
    for shard in shards:
        total.merge(shard)
    assert total.histogram("queue").sum == 6 * (2**63 - 1)
    assert total.count == 6
    assert repr(total) == "<RequestFigures count=6>"
