"""Errors: one row per Kafka error code, and the exceptions that the product raises.

Role: the peer's fault (`MalformedRequest`), an answer of an API (`KafkaError`), the user's fault (`ConfigError`) and the end
of the broker (`FatalBrokerError`) are different exceptions; anything else is a bug.
Thread: any. Lock: none, everything here is immutable.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

R = True  # retriable


class ErrorCode(IntEnum):
    """Kafka's error codes; `retriable` says whether a client may try the same request again."""

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool, text: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "the broker met an unexpected error"
    NONE = 0, False, "no error"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset is outside the range that the partition holds"
    CORRUPT_MESSAGE = 2, R, "the record batch fails its checksum or is damaged"
    UNKNOWN_TOPIC_OR_PARTITION = 3, R, "this broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, False, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, R, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, R, "this broker does not lead the partition"
    REQUEST_TIMED_OUT = 7, R, "the request timed out"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, R, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, False, "the record batch is larger than max.message.bytes"
    STALE_CONTROLLER_EPOCH = 11, False, "the controller has moved to another broker"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata of the committed offset is too large"
    NETWORK_EXCEPTION = 13, R, "the connection broke before a response came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, R, "the coordinator is still loading"
    COORDINATOR_NOT_AVAILABLE = 15, R, "the coordinator is not available"
    NOT_COORDINATOR = 16, R, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, False, "the topic name is not allowed"
    RECORD_LIST_TOO_LARGE = 18, False, "the record batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, R, "fewer in-sync replicas than required"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, R, "written, but to fewer in-sync replicas than required"
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, False, "the generation of the group is another one"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member's protocols do not fit those of the group"
    INVALID_GROUP_ID = 24, False, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, False, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside the allowed range"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing, join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the committed offset data is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, False, "the record timestamp is outside the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the broker does not support this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, False, "the broker does not support this version of the API"
    TOPIC_ALREADY_EXISTS = 36, False, "the topic exists already"
    INVALID_PARTITIONS = 37, False, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, False, "the replication factor must be 1 (or -1, the default) on one node"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is invalid"
    INVALID_CONFIG = 40, False, "a configuration value is invalid"
    NOT_CONTROLLER = 41, R, "this broker is not the controller"
    INVALID_REQUEST = 42, False, "the request does not make sense"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the message format does not support this request"
    POLICY_VIOLATION = 44, False, "a policy of the broker forbids it"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "the producer's sequence number is out of order"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the broker has this sequence number already"
    INVALID_PRODUCER_EPOCH = 47, False, "the producer's epoch is old"
    INVALID_TXN_STATE = 48, False, "the transaction is in another state"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the transactional id belongs to another producer id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout is above transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, R, "the producer's previous transaction is still being completed"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "the transaction coordinator was replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, False, "the broker runs without an authorizer"
    OPERATION_NOT_ATTEMPTED = 55, False, "not attempted, because an earlier part of the request failed"
    KAFKA_STORAGE_ERROR = 56, R, "the log directory of the partition failed"
    LOG_DIR_NOT_FOUND = 57, False, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, False, "the broker knows nothing of this producer id any more"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the delegation token belongs to somebody else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "delegation tokens need an authenticated connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "the principal type is unknown"
    NON_EMPTY_GROUP = 68, False, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, R, "no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, R, "the fetch session is at another epoch"
    LISTENER_NOT_FOUND = 72, R, "the leader has no such listener"
    TOPIC_DELETION_DISABLED = 73, False, "delete.topic.enable is false"
    FENCED_LEADER_EPOCH = 74, R, "the leader epoch of the request is old"
    UNKNOWN_LEADER_EPOCH = 75, R, "the leader epoch of the request is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "the compression codec is not supported here"
    STALE_BROKER_EPOCH = 77, False, "the broker epoch is old"
    OFFSET_NOT_AVAILABLE = 78, R, "the leader cannot give offsets yet"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id given here"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, R, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group has the maximum number of members"
    FENCED_INSTANCE_ID = 82, False, "another member uses this instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, R, "no eligible leader is available"
    ELECTION_NOT_NEEDED = 84, R, "the partition needs no election"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "no reassignment is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group still subscribes to the topic"
    INVALID_RECORD = 87, False, "the broker refused a record"
    UNSTABLE_OFFSET_COMMIT = 88, R, "offsets of an open transaction are not decided yet"
    THROTTLING_QUOTA_EXCEEDED = 89, R, "a quota of the broker was exceeded"
    PRODUCER_FENCED = 90, False, "a newer producer took over the transactional id"
    RESOURCE_NOT_FOUND = 91, False, "no such resource"
    DUPLICATE_RESOURCE = 92, False, "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential does not meet the rules"
    INCONSISTENT_VOTER_SET = 94, False, "the voters are not those of the quorum"
    INVALID_UPDATE_VERSION = 95, False, "the update version is invalid"
    FEATURE_UPDATE_FAILED = 96, False, "the feature cannot be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, R, "this broker has no topic of that id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "a broker of this id is registered already"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker of that id is registered"
    INCONSISTENT_TOPIC_ID = 103, R, "the topic's id in the log is another one"
    INCONSISTENT_CLUSTER_ID = 104, False, "the cluster id is another one"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, R, "the fetch session mixes topic names and ids"
    INELIGIBLE_REPLICA = 107, False, "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, False, "the change elected a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = 110, False, "the member's epoch is fenced, rejoin"
    UNRELEASED_INSTANCE_ID = 111, False, "another member still holds this instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "the group has no such assignor"
    STALE_MEMBER_EPOCH = 113, False, "the member's epoch is old"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request came to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "the endpoint type is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription is another one"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry is too large"
    INVALID_REGISTRATION = 119, False, "the registration is invalid"
    TRANSACTION_ABORTABLE = 120, False, "the transaction must be aborted"
    INVALID_RECORD_STATE = 121, False, "the record is in another state"
    SHARE_SESSION_NOT_FOUND = 122, R, "no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, R, "the share session is at another epoch"
    FENCED_STATE_EPOCH = 124, False, "the share state epoch is old"
    INVALID_VOTER_KEY = 125, False, "the voter key is another one"
    DUPLICATE_VOTER = 126, False, "the voter is there already"
    VOTER_NOT_FOUND = 127, False, "no such voter"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, False, "the client must start again from its bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the topology epoch is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the topology epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, R, "no room for another share session"


_BY_NUMBER = {int(code): code for code in ErrorCode}


def error_of(number: int) -> ErrorCode:
    """The row of an error code from the wire; a code that is newer than this table counts as an unknown error."""
    return _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


class BarnabasError(Exception):
    """Root of every exception that the product raises on purpose."""


LONGEST_MESSAGE = 1000
"""What a message repeats of a request may be as long as the request, and a string of the protocol has 32 767 bytes at most."""


class KafkaError(BarnabasError):
    """An error that an API answers with: a code of the protocol and a message for the person who reads it, cut when it is long.

    try:
        producer.send("orders", b"value").result(10)
    except KafkaError as error:
        print(error.code.name, error.retriable, error.message)
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        text = message or code.text
        self.message = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}… ({len(text)} characters)"
        super().__init__(f"{code.name}: {self.message}")

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable


class MalformedRequest(BarnabasError):
    """The peer's bytes do not follow the protocol: its connection is closed, nobody else is disturbed (RP-29)."""


_MOST_SHOWN = 200


def shown(value: object) -> str:
    """What somebody else wrote, for a message: in one line, without control characters, and cut when it is long."""
    text = value if isinstance(value, str) else str(value)
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_MOST_SHOWN])
    return line if len(text) <= _MOST_SHOWN else f"{line}… ({len(text)} characters)"


def _quoted(value: object) -> str:
    return f"'{shown(value)}'" if isinstance(value, str) else shown(value)


class ConfigError(BarnabasError):
    """A setting cannot be used. The text names the key, the value and what is allowed, in one line of bounded length."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"{shown(key)} = {_quoted(value)}: {allowed}")


class FatalBrokerError(BaseException):
    """The broker cannot go on: it ends with a non-zero exit code. Not an `Exception`, so that no handler swallows it."""
