"""`python -m bench.peers`: fetch Apache Kafka's jars. With `--optional` a missing Java or Maven is one line, not an error."""

from __future__ import annotations

import sys

from bench.peers.jars import PeerUnavailable, ensure_jars


def main(arguments: list[str]) -> int:
    try:
        jars = ensure_jars()
    except PeerUnavailable as missing:
        print(f"Apache Kafka is not here: {missing}", file=sys.stderr)
        return 0 if "--optional" in arguments else 1
    print(f"Apache Kafka: {len(list(jars.glob('*.jar')))} jars in {jars}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
