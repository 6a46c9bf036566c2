"""Clients of a task and where their examples come from.

A client's data are *parts* (`train`; or `personalization` and `evaluation`; or, for a silo,
`train`, `valid` and `test`), each a dictionary of arrays with one leading axis of examples. Raw
values (bytes, integers, encoded images) are kept as small as the source has them: a task's
`preprocess` turns a batch of them into model inputs.

Two kinds of source: arrays in memory, and a function of the client's id that can run inside a
graph (TFF's `ClientData` on disk), which is what remote workers and large populations need.
"""

from __future__ import annotations

import abc
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from motley_tff.core.errors import UserError, printable
from motley_tff.core.lazy import tf

# {field: array or tensor [num_examples, ...]}
Examples = Mapping[str, "np.ndarray | tf.Tensor"]
# {part name: examples}
Parts = Mapping[str, Examples]
PartsSpec = dict[str, dict[str, "tf.TensorSpec"]]


class Clients(abc.ABC):
    """An ordered set of client ids with a way to get each client's parts.

    Attributes:
      in_graph: Whether `load` works inside a graph.
      nbytes: Bytes of all examples if they are in memory, else None.
      sizes: `{client id: about how many examples it has}`, to share out work; empty if unknown.
    """

    in_graph = False
    nbytes: int | None = None
    sizes: Mapping[str, int] = MappingProxyType({})

    def __init__(self, ids: Sequence[str], spec: PartsSpec):
        self.ids = tuple(ids)
        self.spec = spec
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("Client ids must be unique.")

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """Position of each client id."""
        return {client_id: i for i, client_id in enumerate(self.ids)}

    @abc.abstractmethod
    def fetch(self, client_id: str) -> Parts:
        """Returns one client's parts as arrays or eager tensors; a KeyError if there is none."""

    def load(self, client_id: tf.Tensor) -> Parts:
        """Returns one client's parts from a string tensor, inside a graph."""
        raise NotImplementedError(f"{type(self).__name__} holds arrays; use `fetch`.")


class InMemoryClients(Clients):
    """Clients whose arrays are in this process: `{client id: {part: {field: array [n, ...]}}}`.

    Every client has the same parts, fields, types and shapes but for n.
    """

    def __init__(self, data: Mapping[str, Parts]):
        if not data:
            raise ValueError("Expected at least one client, found none.")
        self._data = data
        first = next(iter(data.values()))
        super().__init__(tuple(data), _spec_of(first))
        for client_id, parts in data.items():
            if _spec_of(parts) != self.spec:
                raise ValueError(
                    f"Client {client_id!r} has data of type {_spec_of(parts)}, "
                    f"expected {self.spec} as for the first client."
                )
        every = [examples for parts in data.values() for examples in parts.values()]
        self.nbytes = sum(array.nbytes for examples in every for array in examples.values())
        self.sizes = {i: sum(map(num_rows, parts.values())) for i, parts in data.items()}

    def fetch(self, client_id: str) -> Parts:
        """Returns one client's arrays."""
        return self._data[client_id]


class InGraphClients(Clients):
    """Clients whose parts a graph loads from an id.

    `load` is `string scalar -> {part: {field: tensor [n, ...]}}` in TensorFlow ops only; `sizes`
    has how many examples clients have, if that is known.
    """

    in_graph = True

    def __init__(
        self,
        ids: Sequence[str],
        load: Callable[[tf.Tensor], Parts],
        sizes: Mapping[str, int] = MappingProxyType({}),
    ):
        self._load, self.sizes = load, sizes
        traced = tf.function(load, input_signature=[tf.TensorSpec([], tf.string)])
        self._fetch = traced.get_concrete_function()
        super().__init__(ids, _spec_of(self._fetch.structured_outputs))

    def fetch(self, client_id: str) -> Parts:
        """Returns one client's parts as eager tensors."""
        if client_id not in self.index:
            raise KeyError(client_id)
        try:
            return self._fetch(tf.constant(client_id))
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            finding = f"data that cannot be read ({reason(error)})"
            raise UserError(f"client {client_id!r}", finding) from error

    def load(self, client_id: tf.Tensor) -> Parts:
        """Returns one client's parts from a string tensor, inside a graph."""
        return self._load(client_id)


class DerivedClients(Clients):
    """Clients whose parts are made of another source's, when they are asked for.

    `change` is `(parts, client id as a string scalar) -> parts`, in TensorFlow ops only.
    """

    def __init__(self, source: Clients, change: Callable[[Parts, tf.Tensor], Parts]):
        self._source, self._change, self.in_graph = source, change, source.in_graph
        # What is derived is taken to be as large as its source.
        self.nbytes, self.sizes = source.nbytes, source.sizes
        id_type = tf.TensorSpec([], tf.string)
        traced = tf.function(change, autograph=False)
        self._derived = traced.get_concrete_function(source.spec, id_type)
        super().__init__(source.ids, _spec_of(self._derived.structured_outputs))

    def fetch(self, client_id: str) -> Parts:
        """Returns one client's parts as eager tensors."""
        parts = tf.nest.map_structure(tf.convert_to_tensor, dict(self._source.fetch(client_id)))
        return self._derived(parts, tf.constant(client_id))

    def load(self, client_id: tf.Tensor) -> Parts:
        """Returns one client's parts from a string tensor, inside a graph."""
        return self._change(self._source.load(client_id), client_id)


def reason(error: tf.errors.OpError | UnicodeDecodeError) -> str:
    """Returns TensorFlow's words on one line, without the names of its nodes."""
    # TensorFlow quotes the data, and fails at its own message where they are no text.
    raw = error.message if isinstance(error, tf.errors.OpError) else error.object
    text = raw if isinstance(raw, str) else bytes(raw).decode(errors="replace")
    # Of a compiled function TensorFlow first says where its operations were made.
    if text.startswith("Graph execution error:"):
        text = re.sub(r"(?m)^(Graph execution error:|Detected at node .*|  .*)$", "", text)
    text = re.sub(r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*?\]", "", text)
    return " ".join(printable(text).split())[:300]


def _spec_of(parts: Parts) -> PartsSpec:
    return {
        part: {
            field: tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype))
            for field, array in examples.items()
        }
        for part, examples in parts.items()
    }


def num_rows(examples: Examples) -> int:
    """Returns the number of examples that are in arrays."""
    return len(next(iter(examples.values())))


def num_rows_in_graph(examples: Examples) -> tf.Tensor:
    """Returns the number of examples as an int32 scalar."""
    return tf.shape(next(iter(examples.values())))[0]


def subset(clients: Clients, ids: Sequence[str]) -> Clients:
    """Returns the same source restricted to `ids`, in their order."""
    if isinstance(clients, InMemoryClients):
        return InMemoryClients({i: clients.fetch(i) for i in ids})
    return InGraphClients(ids, clients.load, clients.sizes)
