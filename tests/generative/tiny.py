"""Tasks of making pictures of 4 x 4 pixels, by nets so small that a step takes no time."""

import dataclasses

import numpy as np
import tensorflow as tf

from datasets.kinds import generators
from datasets.options import GeneratorOptions
from motley_tff.core import clients
from tests import toy


def pictures(sizes=(9, 8, 6), shape=(4, 4), is_silos=True):
    """Returns a task of gray or colored pictures, random but for a black and a white pixel."""
    rng = np.random.default_rng(0)

    def source(prefix, *parts):
        data = {}
        for i, size in enumerate(sizes):
            pixels = rng.integers(0, 256, (size, *shape), np.uint8)
            pixels[:, 0, 0], pixels[:, 0, 1] = 0, 255
            data[f"{prefix}{i}"] = {part: {"pixels": pixels} for part in parts}
        return clients.InMemoryClients(data)

    def preprocess(raw, training, key):
        x = tf.cast(raw["pixels"], tf.float32)
        brightness = tf.reduce_mean(x, range(1, len(x.shape)))
        return brightness, brightness

    if is_silos:
        silos = source("s", "train", "valid", "test")
        splits = {"train": silos, "valid": silos, "test": silos}
    else:
        held = source("h", "personalization", "evaluation")
        splits = {"train": source("d", "train"), "valid": held, "test": held}
    setting = "cross_silo" if is_silos else "cross_device"
    scalar = toy.scalar_task({"a": [0.0]}, setting=setting)
    return dataclasses.replace(scalar, preprocess=preprocess, **splits)


def task(kind, is_silos=True, shape=(4, 4), **options):
    """Returns the task of making them; by a GAN of widths 4, or a U-Net of 8."""
    small = {"width": 4 if kind == "wgan_gp" else 8, "diffusion_steps": 20, "sampling_steps": 2}
    options = GeneratorOptions(kind, **{**small, **options})
    return generators.as_generative(pictures(shape=shape, is_silos=is_silos), options)
