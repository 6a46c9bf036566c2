"""What Pillow would read of a picture without a word: one page of several, 8 bits of more."""

import re

import PIL.Image

from motley_tff.core.errors import UserError

_BITS_OF_A_SAMPLE = 258  # A tag of TIFF.


def check_kind(picture: PIL.Image.Image, takes_deep_grey: bool = False) -> None:
    """Raises UserError if a file that is opened, not yet decoded, has several pages or frames, or
    more than 8 bits a colour or, unless those are taken, a grey value: how many of them are used,
    12 say, no file tells.
    """
    pages = getattr(picture, "n_frames", 1)
    if pages > 1 and picture.format != "MPO":  # A JPEG of a phone, with a preview behind it.
        advice = "save each as a file of its own"
        raise UserError("", f"{pages} pages or frames", "one picture a file", advice)
    is_deep_grey = picture.mode.startswith(("I", "F"))
    if is_deep_grey and takes_deep_grey:
        return
    if is_deep_grey or _has_deep_colours(picture):
        advice = "save it as 8-bit picture, scaled by the largest value that it can have"
        raise UserError("", f"{picture.mode} pixels of more than 8 bits", advice=advice)


def _has_deep_colours(picture: PIL.Image.Image) -> bool:
    """Returns whether Pillow makes 8 bits of more, which its mode, such as RGB, does not tell."""
    if picture.format == "TIFF":
        return max(picture.tag_v2.get(_BITS_OF_A_SAMPLE, (1,))) > 8  # type: ignore[attr-defined]
    for codec, _, _, args in picture.tile:  # type: ignore[attr-defined]
        raw, *more = args if isinstance(args, tuple) else (args,)
        if re.search(";16[BLN]", str(raw)) or (codec.startswith("ppm") and more[0] > 255):
            return True
    return False
