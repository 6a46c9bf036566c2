"""Values of a Keras SavedModel, read off its checkpoint: no code of it is run.

Motley's trainers start from what `model.save(DIRECTORY)` left. Its values lie in `variables/`, a
checkpoint with a graph of the objects that own them; neither the functions of `saved_model.pb` nor
`keras_metadata.pb`, from which Keras makes layers again, is opened.

Keras lists a model's variables by its layers, as they were put into it; a model here has them in
the order of first use. The two can differ (a Transformer's norms), and shapes alone do not tell a
bias from a norm's shift. So layers are matched: of all whose variables have the same names and
shapes, the first with the first. That is right where layers of one form, such as an attention's
query, key, value and output, come in the same order in both, as they do in Motley's four models.
"""

import collections
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import trackable_object_graph_pb2

from motley_tff.core.errors import UserError

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"


class _Layer(NamedTuple):
    """A layer's variables `{name: what is known of it}`, of the shapes `form`."""

    name: str
    variables: dict[str, int]
    form: frozenset[tuple[str, tuple[int, ...]]]

    @property
    def shapes(self) -> str:
        """The shapes for messages."""
        return ", ".join(f"{name} {list(shape)}" for name, shape in sorted(self.form))


def load(
    path: pathlib.Path, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> tuple[np.ndarray, ...]:
    """Reads a model's weights from a SavedModel's directory.

    Names, such as `layer/kernel:0`, and shapes are those of the model's weights, in creation order.
    A UserError if it is damaged, was not saved by Keras, or holds another model.
    """
    try:
        reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
            reader.get_tensor(_GRAPH)
        )
        variables = _variables(graph)
        values = [reader.get_tensor(key) for key in variables]
    except (tf.errors.OpError, message.DecodeError, ValueError, RuntimeError, LookupError) as error:
        reason = str(error).partition("\n")[0]
        advice = "copy it again, or save it again"
        raise UserError(str(path), f"a damaged SavedModel ({reason})", advice=advice) from error
    if not values:
        problem = "a SavedModel without a Keras model's list of variables"
        raise UserError(str(path), problem, "what keras_model.save(DIRECTORY) left")
    saved_layers = _layers(list(variables.values()), [value.shape for value in values])
    model_layers = _layers([name.partition(":")[0] for name in names], shapes)
    order = _match(path, saved_layers, model_layers)
    return tuple(values[order[place]] for place in range(len(names)))


def _variables(graph: trackable_object_graph_pb2.TrackableObjectGraph) -> dict[str, str]:
    """Returns the variables in Keras's list: `{key: number of the owning object/name there}`.

    The full names that a checkpoint has, too, need not be different.
    """
    owned: dict[int, str] = {}
    for owner, node in enumerate(graph.nodes):
        for child in node.children:
            if not child.local_name.isdecimal():  # Keras's lists own no variables.
                owned.setdefault(child.node_id, f"{owner}/{child.local_name}")
    lists = [child.node_id for child in graph.nodes[0].children if child.local_name == "variables"]
    children = graph.nodes[lists[0]].children if lists else ()
    names: dict[str, str] = {}
    for node in (c.node_id for c in sorted(children, key=lambda child: int(child.local_name))):
        (key,) = (a.checkpoint_key for a in graph.nodes[node].attributes if a.name == _VALUE)
        names[key] = owned.get(node, f"{node}/?")
    return names


def _layers(names: Sequence[str], shapes: Sequence[Sequence[int]]) -> list[_Layer]:
    """Returns layers in the order of their first variables, which are known by their places."""
    places: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for place, name in enumerate(names):
        layer, _, variable = name.rpartition("/")
        places[layer][variable] = place
    return [
        _Layer(
            layer, variables, frozenset((name, tuple(shapes[p])) for name, p in variables.items())
        )
        for layer, variables in places.items()
    ]


def _match(
    path: pathlib.Path, saved_layers: Sequence[_Layer], model_layers: Sequence[_Layer]
) -> Mapping[int, int]:
    """Returns `{place of a weight: place of its value}`."""
    has = collections.Counter(layer.form for layer in saved_layers)
    wants = collections.Counter(layer.form for layer in model_layers)
    if has != wants:
        extra = next((layer for layer in saved_layers if has[layer.form] > wants[layer.form]), None)
        lacks = next((layer for layer in model_layers if wants[layer.form] > has[layer.form]), None)
        hint = f", the first that fits nowhere with {extra.shapes}" if extra else ""
        expected = f"{len(model_layers)} layers with variables"
        if lacks:  # Named without the model's own name.
            expected = f"a layer {lacks.name.partition('/')[2] or lacks.name} with {lacks.shapes}"
        raise UserError(str(path), f"{len(saved_layers)} layers with variables{hint}", expected)
    of_form = collections.defaultdict(list)
    for layer in saved_layers:
        of_form[layer.form].append(layer.variables)
    order: dict[int, int] = {}
    for layer in model_layers:
        saved = of_form[layer.form].pop(0)
        order.update((place, saved[name]) for name, place in layer.variables.items())
    return order
