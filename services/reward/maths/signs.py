r"""One spelling for signs that Unicode and keyboards offer several of.

`fold_width` keeps the length of a text (full-width punctuation to ASCII); `to_latex` turns mathematical signs into the
LaTeX commands that the rest of this package reads. Superscripts and vulgar fractions come first: Unicode's own
compatibility forms would turn 5² into 52 and 2½ into 21/2.
"""

import re

_WIDE = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x3001: ",", 0x3002: "."}

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣ", "0123456789+-()nix")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+")

_FRACTIONS = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
}  # fmt: skip

_SIGNS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u2014": "-", "\u2010": "-", "\u2011": "-", "\ufe63": "-",  # minus and dashes
        "\u00d7": r"\cdot ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ", "\u2219": r"\cdot ", "\u2217": "*",
        "\u00f7": "/", "\u2044": "/", "\u2215": "/", "\u2236": ":",
        "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2032": "'",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2003": " ", "\u200b": "", "\ufeff": "", "\u2061": "",
        "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ", "\u2248": r"\approx ", "\u2a7d": r"\le ",
        "\u2a7e": r"\ge ", "\u00b1": r"\pm ", "\u2213": r"\mp ", "\u2026": r"\ldots ", "\u22ef": r"\ldots ",
        "\u221e": r"\infty ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u2216": r"\setminus ",
        "\u2205": r"\emptyset ", "\u211d": r"\mathbb{R}", "\u2124": r"\mathbb{Z}", "\u2115": r"\mathbb{N}",
        "\u211a": r"\mathbb{Q}", "\u2102": r"\mathbb{C}", "\u03c0": r"\pi ", "\u03b1": r"\alpha ",
        "\u03b2": r"\beta ", "\u03b3": r"\gamma ", "\u03b4": r"\delta ", "\u03b8": r"\theta ", "\u03bb": r"\lambda ",
        "\u03bc": r"\mu ", "\u03c6": r"\phi ", "\u03c9": r"\omega ", "\u2220": r"\angle ", "\u221d": r"\propto ",
        "\u2103": "\N{DEGREE SIGN}C", "\u2109": "\N{DEGREE SIGN}F", "\u20ac": "€", "\uffe5": "¥",
        "\u27e8": r"\langle ", "\u27e9": r"\rangle ",
    }
)  # fmt: skip

_ROOT = re.compile(r"([√∛∜])\s*(\d+(?:\.\d+)?|[A-Za-z]|\\[A-Za-z]+)?")
_ROOTS = {"√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]"}


def fold_width(text: str) -> str:
    """Full-width letters and punctuation as ASCII, one sign for one sign."""
    return text.translate(_WIDE)


def to_latex(text: str) -> str:
    """Mathematical Unicode signs as LaTeX."""
    text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    for sign, (above, below) in _FRACTIONS.items():
        text = text.replace(sign, rf"\frac{{{above}}}{{{below}}}")
    text = fold_width(text).translate(_SIGNS)
    return _ROOT.sub(lambda m: _ROOTS[m[1]] + (f"{{{m[2]}}}" if m[2] else ""), text)
