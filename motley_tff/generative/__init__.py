"""Generators that FedAvg trains: algorithms of client work like any other, on tasks of pictures.

Their tasks are made by `datasets.kinds.generators`; `motley_tff.metrics.generative` scores what
they make.
"""

from motley_tff.algorithms import FedAvg
from motley_tff.generative.ddpm import Ddpm as Ddpm
from motley_tff.generative.wgan_gp import WganGp as WganGp

_EVERY: tuple[type[FedAvg], ...] = (WganGp, Ddpm)
KINDS = {kind.card.name: kind for kind in _EVERY}
