"""Bootstrap servers and host names: parsing what users write, and resolving names again and again (PP-24).

Role: `parse_bootstrap` turns `bootstrap.servers` into hosts and ports without asking DNS, `resolved_bootstrap` asks it once, so that a
mistyped name is an error at once; `NodeAddresses` gives the numeric addresses of one host in turn, and asks DNS again when they are
used up or when a connection that stood broke, because brokers move.
Thread: the client's I/O thread (resolving blocks; numeric hosts do not). Lock: none.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterable, Sequence

from barnabas.errors import ConfigError

__all__ = ["NodeAddresses", "Resolver", "parse_bootstrap", "resolve_all", "resolved_bootstrap"]

log = logging.getLogger(__name__)

USUAL_PORT = 9092
_SERVER = re.compile(r"^(?:[0-9A-Za-z_.%-]+://)?(?:\[([0-9A-Fa-f:.%]+)\]|([0-9A-Za-z_.%-]+))(?::(\d{1,5}))?$")

Resolver = Callable[[str], Sequence[str]]


def parse_bootstrap(servers: str | Iterable[str], key: str = "bootstrap.servers") -> list[tuple[str, int]]:
    """(host, port) of each server, in order, without repeats: `host:port`, `[::1]:9092`, `PLAINTEXT://host:port`."""
    given = servers.split(",") if isinstance(servers, str) else list(servers)
    found: dict[tuple[str, int], None] = {}
    for text in (item.strip() for item in given):
        if text:
            found[_parse_server(key, text)] = None
    if not found:
        raise ConfigError(key, servers, "names no server; give host:port, several with commas")
    return list(found)


def _parse_server(key: str, text: str) -> tuple[str, int]:
    match = _SERVER.match(text)
    if match is None or text.isdigit():
        raise ConfigError(key, text, "must be host:port or [IPv6 address]:port")
    if not match[3]:
        raise ConfigError(key, text, f"has no port; write {text}:{USUAL_PORT} if that is where the broker listens")
    port = int(match[3])
    if not 0 < port < 65536:
        raise ConfigError(key, text, "the port must be from 1 to 65535")
    return match[1] or match[2], port


def resolve_all(host: str) -> Sequence[str]:
    """Every numeric address of `host` that has the family of the first one, in the order of DNS; OSError when there is none."""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    family = answers[0][0]
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers if answer[0] == family))


def resolved_bootstrap(servers: str | Iterable[str], resolve: Resolver = resolve_all) -> list[tuple[str, int]]:
    """As `parse_bootstrap`; asks DNS, and refuses servers none of which has an address. One that has none is left to be tried later."""
    found = parse_bootstrap(servers)
    reasons: dict[str, str] = {}
    for host in dict.fromkeys(host for host, _ in found):
        try:
            resolve(host)
        except OSError as error:
            reasons[host] = f"{host}: {error.strerror or error}"
    if len(reasons) == len({host for host, _ in found}):
        text = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found)
        raise ConfigError(
            "bootstrap.servers", text, f"none of the host names can be resolved ({'; '.join(reasons.values())})"
        )
    for reason in reasons.values():
        log.warning("A host of bootstrap.servers cannot be resolved: %s", reason)
    return found


class NodeAddresses:
    """The addresses of one host, one after the other."""

    __slots__ = ("_addresses", "_index", "_last", "_resolve", "host")

    def __init__(self, host: str, resolve: Resolver = resolve_all) -> None:
        self.host = host
        self._resolve = resolve
        self._addresses: Sequence[str] = ()
        self._index = 0
        self._last = ""

    def current(self) -> str:
        """The address to try now; resolves when none is at hand. OSError when the name has no address."""
        if not self._addresses:
            self._addresses = self._resolve(self.host)
            if not self._addresses:
                raise OSError(f"{self.host} has no address")
            # Not at once the address that just failed again, when there is another.
            self._index = 1 if len(self._addresses) > 1 and self._addresses[0] == self._last else 0
        self._last = self._addresses[self._index]
        return self._last

    @property
    def are_used_up(self) -> bool:
        """Whether every address that DNS gave was tried, and DNS is asked before the next attempt."""
        return not self._addresses

    def advance(self) -> None:
        """The current address failed: the next one, and behind the last one DNS."""
        self._index += 1
        if self._index >= len(self._addresses):
            self.forget()

    def forget(self) -> None:
        """Ask DNS before the next attempt."""
        self._addresses = ()
        self._index = 0

    def __repr__(self) -> str:
        return f"<NodeAddresses {self.host} {self._index} of {self._addresses}>"
