"""Letters of 5 x 7 pixels for pictures, drawn without any library of graphics."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 6, 8
"""Of a letter with the space beside and below it, pixels."""

# Eight rows a letter (the last is for what hangs below the line), five bits a row as a digit to the base 32:
# v is a full row, h its two ends, 4 its middle. Rows that are missing at the end are empty.
_ROWS = {
    **{"0": "ehjlphe", "1": "4c4444e", "2": "eh1248v", "3": "v2421he", "4": "26aiv22", "5": "vgu11he"},
    **{"6": "68guhhe", "7": "v124888", "8": "ehhehhe", "9": "ehhf12c"},
    **{"A": "ehhvhhh", "B": "uhhuhhu", "C": "ehggghe", "D": "sihhhis", "E": "vgguggv", "F": "vgguggg"},
    **{"G": "ehgnhhf", "H": "hhhvhhh", "I": "e44444e", "J": "72222ic", "K": "hikokih", "L": "ggggggv"},
    **{"M": "hrllhhh", "N": "hhpljhh", "O": "ehhhhhe", "P": "uhhuggg", "Q": "ehhhlid", "R": "uhhukih"},
    **{"S": "fgge11u", "T": "v444444", "U": "hhhhhhe", "V": "hhhhha4", "W": "hhhllla", "X": "hha4ahh"},
    **{"Y": "hhha444", "Z": "v1248gv"},
    **{"a": "00e1fhf", "b": "ggmphhu", "c": "00egghe", "d": "11djhhf", "e": "00ehvge", "f": "698s888"},
    **{"g": "00fhhf1e", "h": "ggmphhh", "i": "40c444e", "j": "206222ic", "k": "ggikoki", "l": "c44444e"},
    **{"m": "00qllhh", "n": "00mphhh", "o": "00ehhhe", "p": "00uhhugg", "q": "00djhf11", "r": "00mpggg"},
    **{"s": "00fge1u", "t": "88s8896", "u": "00hhhjd", "v": "00hhha4", "w": "00hhlla", "x": "00ha4ah"},
    **{"y": "00hhhf1e", "z": "00v248v"},
    **{".": "00000cc", ",": "0000c48", ":": "0cc0cc0", "%": "op248j3", "/": "01248g0", "+": "044v440"},
    **{"-": "000v000", "(": "2488842", ")": "8422248", "#": "aavavaa", "=": "00v0v00", "?": "eh12404"},
    " ": "",
}


@cache
def _glyph(letter: str) -> NDArray[np.bool_]:
    rows = _ROWS.get(letter, _ROWS["?"]).ljust(HEIGHT, "0")
    bits = [[int(row, 32) >> bit & 1 for bit in (4, 3, 2, 1, 0)] + [0] for row in rows]
    return np.array(bits, dtype=np.bool_)


def text_mask(text: str, scale: int = 1) -> NDArray[np.bool_]:
    """Where the pixels of a line of text are, each letter pixel ``scale`` pixels wide and high."""
    if not text:
        return np.zeros((HEIGHT * scale, 0), dtype=np.bool_)
    line = np.concatenate([_glyph(letter) for letter in text], axis=1)
    return line.repeat(scale, axis=0).repeat(scale, axis=1)


def text_width(text: str, scale: int = 1) -> int:
    """Width of a line of text, pixels."""
    return len(text) * WIDTH * scale
