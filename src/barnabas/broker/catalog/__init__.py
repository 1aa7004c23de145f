"""The catalog: what this cluster of one node knows about itself, in one SQLite file.

Topics and their ids, topic and broker configs, client quotas, the cluster id and blocks of producer ids. Readers take
`catalog.snapshot`, which never changes, and need no lock; every change is on disk before the next snapshot is seen.
"""

from barnabas.broker.catalog.catalog import CATALOG_FILE_NAME, Catalog
from barnabas.broker.catalog.model import (
    CatalogSnapshot,
    NewTopic,
    QuotaEntity,
    TopicInfo,
    quota_entity,
    uuid_text,
)
from barnabas.broker.catalog.producer_ids import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlocks

__all__ = [
    "CATALOG_FILE_NAME",
    "PRODUCER_ID_BLOCK_SIZE",
    "Catalog",
    "CatalogSnapshot",
    "NewTopic",
    "ProducerIdBlocks",
    "QuotaEntity",
    "TopicInfo",
    "quota_entity",
    "uuid_text",
]
