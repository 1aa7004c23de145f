"""What AlterConfigs and IncrementalAlterConfigs share: resource types, and one resource's change with its answer.

Role: finds the owner of a resource's configs and turns its refusal into an error code. Thread: any handler.
Lock: none of its own; `Topics` and `DynamicBrokerConfig` make read, check and store one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.broker.apis.error_texts import ErrorTexts
from barnabas.broker.topic_names import check_name
from barnabas.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.services import BrokerServices

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's ConfigResource types."""

CHANGE = 200
"""How many elements of a list one changed resource weighs: it is a commit of its own."""

ConfigEdit = Callable[[Mapping[str, str]], Mapping[str, str]]


class ConfigResource(Protocol):
    """A resource as either request names it."""

    resource_type: int
    resource_name: str


Resource = TypeVar("Resource", bound=ConfigResource)


def change_each(
    resources: Sequence[Resource],
    broker: BrokerServices,
    validate_only: bool,
    edit_of: Callable[[Resource], ConfigEdit],
) -> list[KafkaError | None]:
    """Change each resource by itself; of each, why it was refused, if it was. `edit_of` may refuse, too."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    refused: list[KafkaError | None] = []
    texts = ErrorTexts()
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if times[key] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            change(broker, key, edit_of(resource), validate_only)
        except KafkaError as error:
            refused.append(texts.kept(error))
        else:
            refused.append(None)
    return refused


def change(broker: BrokerServices, resource: tuple[int, str], edit: ConfigEdit, validate_only: bool) -> None:
    """Replace the configs of `(type, name)` by `edit(configs)`; raises `KafkaError`."""
    kind, name = resource
    if kind == TOPIC:
        check_name(name)
        broker.topics.edit_configs(name, edit, validate_only)
    elif kind == BROKER:
        broker.dynamic_config.edit(name, edit, validate_only)
    else:
        raise unsupported(kind)


def unsupported(kind: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Configs of resource type {kind} are not supported by this broker")


def refuse_duplicate_keys(names: list[str]) -> None:
    """Raises INVALID_REQUEST when a request names a config twice: which of the two would count?"""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")
