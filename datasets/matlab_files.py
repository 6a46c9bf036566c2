"""Looks through a MATLAB 5 file before SciPy reads it.

SciPy 1.9 takes types and sizes from the file as they are: one wrong bit makes it read memory that
is not its own, and ends the program without a word. Format: "MAT-File Format", MathWorks, of 5.0.
"""

import math
import struct
import zlib
from collections.abc import Collection, Iterator

_HEADER_BYTES = 128
_ORDERS = {b"IM": "<", b"MI": ">"}
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_NUMBERS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})
_TEXT = frozenset({16, 17, 18})
_CELLS, _CHARACTERS, _NUMERIC = 1, 4, range(6, 16)
_COMPLEX = 0x800
# Of one variable, unpacked.
_MOST_BYTES = 2**32


def is_hdf5(data: bytes) -> bool:
    """Returns whether a file is HDF5, as MATLAB's v7.3 is behind a header of its own."""
    return data.startswith((b"MATLAB 7.3 ", b"\x89HDF\r\n\x1a\n"))


def check(data: bytes, names: Collection[str]) -> None:
    """Raises ValueError unless what will be read is whole, of known types, and in its place.
    `names` are the variables that will be read; of others, which SciPy passes over, only the
    beginning is looked at.
    """
    order = _ORDERS.get(data[126:_HEADER_BYTES])
    if order is None:
        raise ValueError("no header of MATLAB 5")
    for kind, content in _elements(memoryview(data)[_HEADER_BYTES:], order):
        packed = _unpacked(content) if kind == _COMPRESSED else None
        for inner, variable in [(kind, content)] if packed is None else _elements(packed, order):
            if inner != _MATRIX:
                raise ValueError(f"an element of type {inner} in place of a variable")
            _check_variable(list(_elements(variable, order)), order, names)


def _check_variable(
    parts: list[tuple[int, memoryview]], order: str, names: Collection[str]
) -> None:
    kinds = [kind for kind, _ in parts[:3]]
    if kinds != [_UINT32, _INT32, _INT8] or len(parts[0][1]) != 8:
        raise ValueError("a variable without flags, dimensions and name")
    if bytes(parts[2][1]).decode("latin1") in names:
        _check_matrix(parts, order)
    else:
        _size(parts, order)


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yields (type, content) of the elements that follow one another."""
    place = 0
    while place < len(data):
        if len(data) - place < 8:
            raise ValueError("ends inside an element")
        kind, size = struct.unpack_from(f"{order}II", data, place)
        start = place + 8
        if kind >> 16:  # Up to four bytes share the tag.
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
        if start + size > len(data) or (start == place + 4 and size > 4):
            raise ValueError("ends inside an element")
        yield kind, data[start : start + size]
        place = start + size
        place += 0 if kind == _COMPRESSED else -place % 8


def _unpacked(content: memoryview) -> memoryview:
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(content, _MOST_BYTES)
    if not decompressor.eof:
        raise ValueError("a variable that is cut, or larger than 4 GB")
    return memoryview(data)


def _check_matrix(parts: list[tuple[int, memoryview]], order: str) -> None:
    """Checks an array's flags, dimensions, name and values; one of no parts is empty."""
    if not parts:
        return
    if parts[0][0] != _UINT32 or len(parts[0][1]) != 8:
        raise ValueError("an array without flags")
    flags = struct.unpack_from(f"{order}I", parts[0][1])[0]
    kind, is_complex = flags & 0xFF, bool(flags & _COMPLEX)
    if kind != _CELLS and kind not in (_CHARACTERS, *_NUMERIC):
        raise ValueError(f"an array of class {kind}, expected cells, numbers or text")
    known = {_MATRIX} if kind == _CELLS else _NUMBERS if kind in _NUMERIC else _NUMBERS | _TEXT
    places = [{_INT32}, {_INT8}, *([known] * max(1, len(parts) - 3))]
    if any(part not in place for (part, _), place in zip(parts[1:], places, strict=False)):
        raise ValueError("an array whose parts are not in their places")
    size = _size(parts, order)
    number = size if kind == _CELLS else 1 + is_complex
    if len(parts) != 3 + number:
        raise ValueError(f"an array with {len(parts) - 3} parts of values, expected {number}")
    for inner, content in parts[1:]:
        if inner == _MATRIX:
            _check_matrix(list(_elements(content, order)), order)
        elif inner not in _NUMBERS | _TEXT:
            raise ValueError(f"an element of the unknown type {inner}")


def _size(parts: list[tuple[int, memoryview]], order: str) -> int:
    """Returns how many values an array has, by its dimensions."""
    content = parts[1][1] if len(parts) > 1 else memoryview(b"")
    sizes = struct.unpack_from(f"{order}{len(content) // 4}i", content)
    if len(sizes) < 2 or len(content) % 4 or min(sizes) < 0:
        raise ValueError(f"an array of the dimensions {list(sizes)}")
    return math.prod(sizes)
