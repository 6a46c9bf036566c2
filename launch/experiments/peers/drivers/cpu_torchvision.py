"""Imported before torchvision, whose operators the index builds for CUDA alone.

Beside a PyTorch for CPUs the import fails on operators that no driver calls; this declares them.
"""

import importlib.util
import pathlib
import re

import torch

if torch.version.cuda is None:
    LIBRARY = torch.library.Library("torchvision", "DEF")
    _folder = pathlib.Path(importlib.util.find_spec("torchvision").origin).parent
    _text = (_folder / "_meta_registrations.py").read_text(encoding="utf-8")
    for _name in sorted(set(re.findall(r'"(?:torchvision::)?(\w+)"\)', _text)) - {"Meta"}):
        LIBRARY.define(f"{_name}(Tensor x) -> Tensor")
