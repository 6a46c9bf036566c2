"""Tasks of pictures as tasks of making pictures: another model, loss and metric, the same clients.

Held-out clients (devices) or parts (silos) score the net itself, not what it makes: a critic by how
far apart it holds real and made pictures (`critic_gap`), a U-Net by its error (`noise_error`). What
is made is scored by `motley_generative`.
"""

import dataclasses
import difflib
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.models import image_gan, image_unet
from datasets.options import WIDTHS, GeneratorOptions
from motley_tff import commandline
from motley_tff.core import (
    clients as clients_lib,
    errors,
    functional_model,
    partition,
    task as task_lib,
    tensor_random,
)
from motley_tff.core.errors import UserError
from motley_tff.files import array_files
from motley_tff.generative import ddpm, wgan_gp

_AT_ONCE = 250
_PIXELS = "pixels"


def as_generative(task: task_lib.Task, options: GeneratorOptions) -> task_lib.Task:
    """Returns the task of making a task's pictures; UserError if it has none, or of a side that is
    no multiple of 4.
    """
    shape = _image_shape(task)
    make = _gan if options.kind == "wgan_gp" else _diffusion
    facts = {**task.facts, "image_shape": list(shape)}
    return dataclasses.replace(
        _where_trained(task, options), facts=facts, score=None, scored_classes=0, prediction=None,
        label_unit=None, label_names=(), reference={}, regularizer=None, counts=None,
        max_train_examples=None, label_field=None,
        **make(shape, options),
    )  # fmt: skip


def _where_trained(task: task_lib.Task, options: GeneratorOptions) -> task_lib.Task:
    """Returns the task with its training pictures in one place, or of one client alone."""
    if options.is_central:
        return partition.centralize(task, options.memory_limit_gb * 1e9, commandline.raise_if_ended)
    if options.only_client is None:
        return task
    if options.only_client not in task.train.ids:
        near = difflib.get_close_matches(options.only_client, task.train.ids, 1, 0.0)
        expected = f"one of {len(task.train)} training clients of {task.dataset}, such as {near[0]}"
        raise UserError(errors.name("only_client"), options.only_client, expected)
    # A silo is scored on parts of its own.
    splits = task.splits if task.setting == "cross_silo" else {"train": task.train}
    only = (options.only_client,)
    changed: dict[str, Any] = {
        name: clients_lib.subset(clients, only) for name, clients in splits.items()
    }
    return dataclasses.replace(task, **changed)


def _image_shape(task: task_lib.Task) -> tuple[int, int, int]:
    spec = task.train.spec["train"].get(_PIXELS)
    if spec is None:
        expected = "pictures, as of emnist, mnist, cifar10 or images"
        raise UserError(errors.name("dataset_name"), task.dataset, expected)
    height, width, *channels = spec.shape[1:]
    if height != width or height % 4:
        size = f"pictures of {width}x{height} pixels"
        advice = f"give {errors.name('image_size')} if there is one"
        raise UserError(task.dataset, size, "as wide as high, and a multiple of 4", advice)
    return height, width, channels[0] if channels else 1


def pixels_in_range(pixels: tf.Tensor) -> tf.Tensor:
    """Returns pictures float32 [batch, height, width, channels] in -1..1, from uint8 or 0..1."""
    if len(pixels.shape) == 3:
        pixels = pixels[..., tf.newaxis]
    if pixels.dtype == tf.uint8:
        return tf.cast(pixels, tf.float32) / 127.5 - 1.0
    return 2.0 * pixels - 1.0


def _as_uint8(x: np.ndarray) -> np.ndarray:
    return np.clip(np.rint((x + 1.0) * 127.5), 0, 255).astype(np.uint8)


def _gan(shape: tuple[int, int, int], options: GeneratorOptions) -> dict[str, Any]:
    build = functools.partial(image_gan.ImageGan, shape, options.width or WIDTHS["wgan_gp"])
    model = functional_model.from_keras(build, np.zeros((1, *shape), np.float32))
    pair = wgan_gp.pair_of(model)

    def preprocess(examples, training, key):
        x = pixels_in_range(examples[_PIXELS])
        return x, tf.zeros([tf.shape(x)[0]])

    @tf.function(autograph=False)
    def make(weights, key, count):
        return pair.make(pair.split(weights)[0], key, count)

    return _fields(model, "critic_gap", _output, preprocess, make)


def _output(y: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return outputs + 0.0 * y, tf.ones_like(outputs)


def _diffusion(shape: tuple[int, int, int], options: GeneratorOptions) -> dict[str, Any]:
    build = functools.partial(image_unet.ImageUnet, shape[2], options.width or WIDTHS["ddpm"])
    example = np.zeros((1, *shape), np.float32), np.zeros(1, np.int32)
    model = functional_model.from_keras(build, example)
    steps = options.diffusion_steps

    def preprocess(examples, training, key):
        return ddpm.noised(pixels_in_range(examples[_PIXELS]), key, steps)

    @tf.function(autograph=False)
    def predict(weights, x, t):
        return model.predict(weights, (x, t), False, tf.zeros([2], tf.int32))

    def make(weights, key, count):
        of_weights = functools.partial(predict, weights)
        sampling_steps = options.sampling_steps or None
        return ddpm.sample(of_weights, (count, *shape), key, sampling_steps, steps)

    return _fields(model, "noise_error", _squared_error, preprocess, make)


def _squared_error(y: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each picture's mean squared error, and ones."""
    losses = tf.reduce_mean(tf.square(y - outputs), [1, 2, 3])
    return losses, tf.ones_like(losses)


def _fields(
    model: functional_model.FunctionalModel,
    metric: str,
    entries: task_lib.EntryFunction,
    preprocess: Callable[..., Any],
    make: Callable[..., tf.Tensor],
) -> dict[str, Any]:
    """Returns the fields of a task whose loss is its metric, too."""
    return {
        "model": model,
        "loss": entries,
        "metrics": (task_lib.Metric(metric, entries, higher_is_better=False),),
        "preprocess": preprocess,
        "generate": _in_pieces(make),
    }


def _in_pieces(make: Callable[..., tf.Tensor]) -> Callable[[Any, int, Any], np.ndarray]:
    """Returns a task's `generate`, which makes some pictures at a time, the same number each."""

    def generate(weights: Any, count: int, key: Any) -> np.ndarray:
        at_once = min(count, _AT_ONCE)
        weights = tuple(map(tf.constant, weights))
        batches = [
            make(weights, tensor_random.fold(tf.constant(key), tensor_random.PASS, i), at_once)
            for i in range(-(-count // at_once))
        ]
        return _as_uint8(np.concatenate([m.numpy() for m in batches])[:count])

    return generate


def write_real(task: task_lib.Task, path: pathlib.Path) -> None:
    """Writes the pictures that clients train on, `images` uint8 [n, height, width, channels] and
    `client_id` [n], where `motley_generative` finds them; once.
    """
    if path.exists():
        return
    parts = [task.train.fetch(i)["train"][_PIXELS] for i in task.train.ids]
    ids = np.repeat(list(task.train.ids), [len(pixels) for pixels in parts])
    images = [_as_uint8(pixels_in_range(tf.convert_to_tensor(p)).numpy()) for p in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    array_files.save(path, {"images": np.concatenate(images), "client_id": ids})
