"""Whose a log directory is: the node, the cluster and the id of the directory in meta.properties.

Role: written once and compared at every start, so that a directory of another broker is refused before anything in it is touched.
Thread: the manager's at start. Lock: none; the lock file of the directory is held.
"""

from __future__ import annotations

import logging
import os
import uuid

from barnabas.broker.log import checkpoints
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.results import ForeignLogDir

log = logging.getLogger(__name__)

_NODE, _CLUSTER, _DIRECTORY = "node.id", "cluster.id", "directory.id"


def stored_cluster_id(files: FileSystem, directory: str) -> str:
    """What meta.properties says; nothing when it cannot be read, which `claim` will report."""
    try:
        return checkpoints.read_properties(files, _path(directory)).get(_CLUSTER, "")
    except (OSError, checkpoints.PropertiesDamaged):
        return ""


def claim(files: FileSystem, directory: str, node_id: int, cluster_id: str, wanted_cluster_id: str = "") -> None:
    """Note whose a directory is; ForeignLogDir when it is another's, OSError when that cannot be read or written.

    `wanted_cluster_id` is what the user demands, `cluster_id` what it is: both must be what is stored, as far as they are known.
    """
    path = _path(directory)
    old = _read(files, path)
    stored_node = old.get(_NODE) or old.get("broker.id") or str(node_id)
    if int(stored_node) != node_id:
        raise ForeignLogDir(_NODE, str(node_id), stored_node, path)
    stored_cluster = old.get(_CLUSTER, "")
    for given in (wanted_cluster_id, cluster_id):
        if given and stored_cluster and given != stored_cluster:
            raise ForeignLogDir(_CLUSTER, given, stored_cluster, path)
    new = {
        "version": "1",
        _NODE: str(node_id),
        _CLUSTER: cluster_id or stored_cluster,
        _DIRECTORY: old.get(_DIRECTORY) or checkpoints.encode_topic_id(uuid.uuid4()),
    }
    if {**old, **new} != old:
        checkpoints.write_properties(files, path, {**old, **new})


def _read(files: FileSystem, path: str) -> dict[str, str]:
    try:
        return checkpoints.read_properties(files, path)
    except checkpoints.PropertiesDamaged as damage:
        kept = checkpoints.keep_damaged(files, path)
        log.warning(
            "%s is damaged (%s): it is written anew with a new directory.id, and kept as %s", path, damage, kept
        )
        return {}


def _path(directory: str) -> str:
    return os.path.join(directory, checkpoints.META_PROPERTIES_FILE)
