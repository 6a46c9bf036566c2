"""Keeps a server that listens on all network interfaces to one address of this machine.

TFF's `worker_binary` listens on the wildcard address and has no flag to change that; whoever
reaches it may run any TensorFlow graph, which can read and write files. No privileges are needed
to close the other addresses: the kernel hands a connection to the listener of exactly its address
before one of the wildcard's, so a `Guard` listens on each of the machine's other addresses, at
the same port (SO_REUSEPORT, same user), and hangs up.

What is left open: an address that the machine gets later, for a second at most;
addresses that the kernel answers to without an interface that has them (`ip route add local`).
"""

import contextlib
import errno
import ipaddress
import itertools
import selectors
import socket
import struct
import threading

import psutil

from motley_tff.core import errors
from motley_tff.core.errors import UserError

LOOPBACK = "127.0.0.1"
ALL = "all"
_UPDATE_SECONDS = 1.0
# An address where another program listens leads to that one; one that is not usable yet may be a
# second later.
_HARMLESS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
# Closing resets the connection: the other side knows at once, and nothing lingers here.
_RESET = struct.pack("ii", 1, 0)


class Guard:
    """Hangs up on who connects to a port through any address but the loopback's and one more."""

    def __init__(self, port: int, allowed: str = LOOPBACK):
        """Starts, or raises a UserError if the machine has no address `allowed`.

        It stays open besides the machine's own loopback; `all` guards nothing.
        """
        check(allowed)
        self._port, self._allowed = port, allowed
        self._listeners: dict[str, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        # Closing one end wakes the thread at the other.
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="interface-guard", daemon=True)
        if allowed != ALL:
            self._update_listeners()
            self._thread.start()

    def close(self) -> None:
        """Stops guarding; to be called after the server's end. Idempotent."""
        self._stop.close()
        if self._thread.is_alive():
            self._thread.join()
        self._selector.close()
        for open_socket in (self._stopped, *self._listeners.values()):
            open_socket.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(_UPDATE_SECONDS):
                if key.fileobj is self._stopped:
                    return
                assert isinstance(key.fileobj, socket.socket)
                with contextlib.suppress(OSError):  # The other side was faster.
                    connection, _ = key.fileobj.accept()
                    with connection:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._update_listeners()

    def _update_listeners(self) -> None:
        """Listens on the addresses the machine has by now."""
        for address in addresses() - self._listeners.keys() - {self._allowed}:
            try:
                family, _, _, _, target = socket.getaddrinfo(
                    address, self._port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
                )[0]
                listener = socket.create_server(target, family=family, reuse_port=True)
            except OSError as error:
                # An interface may be gone since the list was made.
                if error.errno in _HARMLESS or address not in addresses():
                    continue
                raise
            listener.setblocking(False)
            self._listeners[address] = listener
            self._selector.register(listener, selectors.EVENT_READ)


def check(allowed: str) -> None:
    """Raises UserError unless this is an address of the machine or `all`."""
    machine = addresses()
    with contextlib.suppress(ValueError):  # No address at all.
        if allowed == ALL or allowed in machine or _is_loopback(allowed):
            return
    known = ", ".join([LOOPBACK, *sorted(machine)])
    expected = f"an address of this machine ({known}) or {ALL}"
    raise UserError(errors.name("listen_address"), allowed, expected)


def addresses() -> set[str]:
    """Returns the machine's addresses, IPv4 and IPv6, without the loopback's."""
    return {
        entry.address
        for entry in itertools.chain(*psutil.net_if_addrs().values())
        if entry.family in _FAMILIES and not _is_loopback(entry.address)
    }


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
