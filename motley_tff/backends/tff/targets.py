"""Where TFF workers are: `host:port`, as on the command line."""

import collections
import re
from collections.abc import Sequence

from motley_tff.core import errors
from motley_tff.core.errors import UserError

_TARGET = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%\w+)?\]):(?P<port>\d{1,5})")


def parse(target: str) -> tuple[str, int]:
    """Returns (host, port) of `host:port`, of an IPv6 address without brackets; else UserError."""
    match = _TARGET.fullmatch(target)
    if match is None or not 0 < int(match["port"]) < 2**16:
        expected = "host:port, such as gpu7:9000, 10.0.0.7:9000 or [fd00::7]:9000"
        raise UserError(errors.name("tff_workers"), target, expected)
    return match["host"].strip("[]"), int(match["port"])


def check(targets: Sequence[str]) -> None:
    """Raises UserError unless these are different `host:port`s."""
    for (host, port), count in collections.Counter(map(parse, targets)).items():
        if count > 1:
            expected = f"each worker once, not {count} times"
            raise UserError(errors.name("tff_workers"), f"{host}:{port}", expected)
