"""How every program starts, reads its flags, speaks and ends."""

from motley_tff.commandline.parsing import Given, common, given, parse, similar_flag
from motley_tff.commandline.program import os_hint, raise_if_ended, run_main, silence_libraries

__all__ = [
    "Given", "common", "given", "os_hint", "parse", "raise_if_ended", "run_main",
    "silence_libraries", "similar_flag",
]  # fmt: skip
