"""Every public name is documented, and the example in its documentation runs as it stands: only the address is another one."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

import barnabas.consumer
import barnabas.producer
import barnabas.testing
from barnabas import Admin, Consumer, Producer
from tests.both_brokers import Broker, broker_for_test

MODULES = (barnabas, barnabas.producer, barnabas.consumer, barnabas.testing)
PUBLIC: dict[str, Any] = {name: getattr(module, name) for module in MODULES for name in module.__all__}
TOPIC = "orders"
SECONDS = 20
ENOUGH = 3


class Enough(BaseException):
    """An example that reads for ever has printed some lines."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with broker_for_test({TOPIC: 1}) as running:
        with Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for number in range(10):
                producer.send(TOPIC, b"%d" % number)
        yield running


def examples(documentation: str) -> list[str]:
    """The paragraphs of a docstring that are code: they parse, and call something."""
    found = []
    for paragraph in re.split(r"\n\s*\n", documentation):
        code = textwrap.dedent(re.sub(r"^\s*(>>>|\.\.\.) ?", "", paragraph, flags=re.MULTILINE)).strip()
        try:
            tree = ast.parse(compiled_source(code))
        except SyntaxError:
            continue
        if any(isinstance(node, ast.Call) for node in ast.walk(tree)):
            found.append(code)
    return found


def compiled_source(code: str) -> str:
    """Top-level `async with` parses inside of a function only."""
    if "async " not in code:
        return code
    return "async def example():\n" + "".join(f"    {line}\n" for line in code.splitlines())


def run(code: str, names: dict[str, Any]) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled: CodeType = compile(code, "<example>", "exec", flags=flags)
    outcome = eval(compiled, names)
    if inspect.iscoroutine(outcome):

        async def within_time() -> None:
            async with asyncio.timeout(SECONDS):
                await outcome

        asyncio.run(within_time())


def test_the_code_in_a_text_is_found() -> None:
    text = (
        'A text, with (brackets).\n\n    print("one")\n\nMore text.\n\n>>> async with a() as b:\n...     await b.c()\n'
    )
    assert examples(text) == ['print("one")', "async with a() as b:\n    await b.c()"]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_method_is_documented(name: str) -> None:
    members = inspect.getmembers(PUBLIC[name], lambda each: inspect.isroutine(each) or isinstance(each, property))
    ours = [(member, each) for member, each in members if not member.startswith("_") and _is_ours(each)]
    assert [member for member, each in ours if not inspect.getdoc(each)] == []


def _is_ours(member: object) -> bool:
    function = member.fget if isinstance(member, property) else member
    return str(getattr(function, "__module__", "")).startswith("barnabas")


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_example_of_a_public_name_runs(name: str, broker: Broker) -> None:
    found = examples(inspect.getdoc(PUBLIC[name]) or "")
    assert found, f"the documentation of {name} has no example"
    servers = broker.bootstrap_servers
    printed: list[tuple[object, ...]] = []

    def take(*words: object) -> None:
        printed.append(words)
        if len(printed) >= ENOUGH:
            raise Enough

    settings = {"bootstrap.servers": servers}
    with Producer(settings) as producer, Consumer(settings) as consumer, Admin(settings) as admin:
        consumer.assign([(TOPIC, 0)])
        for code in found:
            names = {**PUBLIC, "producer": producer, "consumer": consumer, "admin": admin, "print": take}
            with contextlib.suppress(Enough):
                run(_with_a_fresh_topic(code, broker).replace("localhost:9092", servers), names)


def _with_a_fresh_topic(code: str, broker: Broker) -> str:
    """What makes a topic must make one that is not there yet."""
    return code.replace('"orders"', f'"{broker.unique_topic_name("made")}"') if "NewTopic(" in code else code
