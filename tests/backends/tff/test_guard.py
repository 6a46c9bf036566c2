"""A guarded server answers the loopback only, wherever it listens itself."""

import contextlib
import errno
import os
import shutil
import socket
import subprocess
import sys

import pytest

from motley_tff.backends.tff import guard as interface_guard
from tests.errors import refused

OWN = sorted(a for a in interface_guard.addresses() if "%" not in a)
has_network = pytest.mark.skipif(not OWN, reason="this machine has no address but the loopback's")


@contextlib.contextmanager
def listener():
    """Listens on all addresses, as gRPC does."""
    with socket.socket(socket.AF_INET6) as listening:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(("::", 0))
        listening.listen()
        listening.settimeout(0.2)
        yield listening


@pytest.fixture
def server():
    with listener() as listening:
        yield listening


def answers(listening, address):
    """Returns whether the server gets a connection to an address."""
    try:
        client = socket.create_connection((address, listening.getsockname()[1]), 5)
    except ConnectionResetError:
        return False
    with client:
        try:
            listening.accept()[0].close()
        except TimeoutError:
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""  # Hung up on, not left waiting.
            return False
    return True


@has_network
def test_other_addresses_are_hung_up_on(server):
    assert all(answers(server, address) for address in OWN)
    guard = interface_guard.Guard(server.getsockname()[1])
    assert not any(answers(server, address) for address in OWN * 3)
    assert answers(server, "127.0.0.1") and answers(server, "::1")
    guard.close()
    guard.close()
    assert all(answers(server, address) for address in OWN)


@has_network
def test_one_address_or_all_can_stay_open(server):
    port = server.getsockname()[1]
    with contextlib.closing(interface_guard.Guard(port, OWN[0])):
        assert [answers(server, address) for address in OWN] == [a == OWN[0] for a in OWN]
    with contextlib.closing(interface_guard.Guard(port, "all")):
        assert answers(server, OWN[0])


def test_an_address_of_another_machine():
    with refused("listen_address", "203.0.113.9", "127.0.0.1"):
        interface_guard.Guard(9, "203.0.113.9")
    with refused("listen_address", "localhost", "127.0.0.1"):
        interface_guard.check("localhost")


PROGRAM = """
import contextlib, subprocess, time
from motley_tff.backends.tff import guard as interface_guard
from tests.backends.tff import test_guard as tests

with tests.listener() as server:
    with contextlib.closing(interface_guard.Guard(server.getsockname()[1])):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "addr", "add", "10.99.0.1/32", "dev", "lo"], check=True)
        deadline = time.monotonic() + 20
        while tests.answers(server, "10.99.0.1"):
            assert time.monotonic() < deadline
print("guarded")
"""


def test_an_address_that_comes_later():
    """In a network namespace of its own, which the test may change."""
    unshare = shutil.which("unshare")
    if unshare is None or not shutil.which("ip"):
        pytest.skip("needs the programs unshare and ip")
    command = [unshare, "--net", sys.executable, "-c", PROGRAM]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=60
    )
    if os.strerror(errno.EPERM) in done.stderr:
        pytest.skip("may not make network namespaces")
    assert done.stdout == "guarded\n", done.stderr


def test_an_interface_that_vanishes_while_it_is_looked_at(server, monkeypatch):
    """Its address was in the list, and is in none when listening on it fails."""
    lists = iter([{"fe80::1%nosuch0"}])
    monkeypatch.setattr(interface_guard, "addresses", lambda: next(lists, set()))
    guard = interface_guard.Guard(server.getsockname()[1])
    guard.close()
    monkeypatch.setattr(interface_guard, "addresses", lambda: {"fe80::1%nosuch0"})
    with pytest.raises(OSError):
        interface_guard.Guard(server.getsockname()[1])
