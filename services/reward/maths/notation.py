r"""One spelling for an answer: `canonical(text)` is what the rest of this package reads.

    $\dfrac12$, ½, \frac{1}{2}      ->  \frac{1}{2}
    7,\!425,\!000  14{,}916         ->  7,425,000  14,916
    28\%  28 percent                ->  28%
    90^\circ  90 degrees            ->  90°
    19, 46, \text{ and } 82         ->  19, 46, 82
    x \leq 3  x <= 3                ->  x \le 3
    \mathrm{cm}  \textbf{cm}        ->  \text{cm}
    3 million                       ->  3\cdot10^{6}

Only spelling changes here; what things mean is decided in numerals, structure and symbols.
"""

import re
from collections.abc import Callable

from services.reward.maths.boxes import closing_brace, unwrap
from services.reward.maths.signs import to_latex

_NOT_LETTER = r"(?![A-Za-z])"
_POWERS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12, "万": 4, "亿": 8}


def _magnitude(match: re.Match[str]) -> str:
    power = _POWERS[match[2].lower()]
    return rf"\cdot10^{{{power}}}" + (r"\text{" if match[1] and not match[3] else "")


_SUBSTITUTIONS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\!\s*", ""),
        (r"(?<!\\)\\[()\[\]]", " "),
        (r"(?<!\\)\\[,;:> ]|~|\\q?quad" + _NOT_LETTER + r"|\\(?:thin|med|thick)space" + _NOT_LETTER, " "),
        (r"\{,\}", ","),
        (r"\\(?:left|right|middle)" + _NOT_LETTER + r"(?:\s*\.)?|\\[bB]igg?[lrm]?" + _NOT_LETTER, ""),
        (r"\\(?:display|text|script)style" + _NOT_LETTER + r"|\\(?:no)?limits" + _NOT_LETTER, " "),
        (r"\\(?:therefore|tag\*?\{[^{}]*\}|label\{[^{}]*\})", " "),
        (r"\\[dtc]frac" + _NOT_LETTER, r"\\frac"),
        (r"\\[dt]binom" + _NOT_LETTER, r"\\binom"),
        (r"\\(?:leqslant|leqq|leq|le)" + _NOT_LETTER + r"|<=|=<", r"\\le "),
        (r"\\(?:geqslant|geqq|geq|ge)" + _NOT_LETTER + r"|>=", r"\\ge "),
        (r"\\(?:neq|ne)" + _NOT_LETTER + r"|!=|\\not\s*=", r"\\ne "),
        (r"\\lt" + _NOT_LETTER + r"|&lt;", "<"),
        (r"\\gt" + _NOT_LETTER + r"|&gt;", ">"),
        (r"\\(?:ldots|cdots|dots[cbmio]?|hdots)" + _NOT_LETTER + r"|\.{3,}", r"\\ldots "),
        (r"\\(?:times|cdot|bullet)" + _NOT_LETTER, r"\\cdot "),
        (r"\\div" + _NOT_LETTER, "/"),
        (r"\\colon" + _NOT_LETTER, ":"),
        (r"\\(?:[lr]?vert|mid)" + _NOT_LETTER, "|"),
        (r"\\lbrace" + _NOT_LETTER, r"\\{"),
        (r"\\rbrace" + _NOT_LETTER, r"\\}"),
        (r"\\langle" + _NOT_LETTER, "("),
        (r"\\rangle" + _NOT_LETTER, ")"),
        (r"\\lbrack" + _NOT_LETTER, "["),
        (r"\\rbrack" + _NOT_LETTER, "]"),
        (r"\\(?:approx|approxeq|simeq)" + _NOT_LETTER, r"\\approx "),
        (r"\\(?:setminus|backslash|smallsetminus)" + _NOT_LETTER, r"\\setminus "),
        (r"\\(?:emptyset|varnothing)" + _NOT_LETTER + r"|\\\{\s*\\\}", r"\\emptyset "),
        (r"\\(?:infty|infin)" + _NOT_LETTER + r"|(?<![A-Za-z\\])(?:infinity|inf)" + _NOT_LETTER, r"\\infty "),
        (r"(?<=[(\[,\s])\+\s*\\infty", r"\\infty"),
        (r"\\(?:mathbb|Bbb)\s*\{?\s*([RNZQC])\s*\}?(?![A-Za-z}])", r"\\mathbb{\1}"),
        (r"\\(?:math(?:rm|it|bf|sf|tt|normal)|text(?:bf|it|rm|sf|tt|normal|up|md)|mbox|hbox|operatorname\*?|"
         r"boldsymbol|bm|bold|emph|underline)\s*(?=\{)", r"\\text"),
        (r"\\(?:tiny|small|large|Large|LARGE|huge|Huge|bf|rm|it|sf|normalsize)" + _NOT_LETTER
         + r"|\\color\s*\{[^{}]*\}|\\textcolor\s*\{[^{}]*\}|\\math(?:rm|it|bf)\s+(?=[A-Za-z])", " "),
        (r"\{([^{}]+)\\choose" + _NOT_LETTER + r"([^{}]+)\}", r"\\binom{\1}{\2}"),
        (r"\s*\(?\\[pb]?mod" + _NOT_LETTER + r"\s*\{?\s*(\d+)\s*\}?\s*\)?", r"\\text{mod \1}"),
        (r"\\equiv" + _NOT_LETTER, "="),
        (r"\\text\s*\{\s*\}", ""),
        (r"(?<![A-Za-z\\])(sqrt|pi|(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|log|ln|exp|alpha|beta|gamma|theta|phi|omega)"
         + _NOT_LETTER, r"\\\1 "),
        (r"\*\*", "^"),
        (r"\*", r"\\cdot "),
        (r"\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)" + _NOT_LETTER, " , "),
        (r"(?<=[\d)}\]%])\s*[和或与]\s*(?=[\d(\\-])", ", "),
        (r"(?<=[\d}])\s*(\\text\s*\{\s*)?(thousand|million|billion|trillion|万|亿)s?(?![A-Za-z])\s*(\})?", _magnitude),
        (r"百分之(\d+(?:\.\d+)?)", r"\1%"),
        (r"\s*\\text\s*\{\s*(?:percent|percentage|per cent|pct|\\?%)\s*\}|\s*\\?%"
         r"|\s*(?<![A-Za-z])(?:percentage|percent|per cent|pct)" + _NOT_LETTER, "%"),
        (r"\s*\^\s*\{?\s*\\circ(?![A-Za-z])\s*\}?|\s*\\degree" + _NOT_LETTER + r"|\s*\\text\s*\{\s*degrees?\s*\}"
         r"|(?<=[\d}])\s*degrees?" + _NOT_LETTER + r"|(?<=\d)\s*度", "°"),
        (r"°\s*\\text\s*\{\s*([CF])\s*\}", r"°\1"),
        (r"(?<=\d)\s*\^?\s*(?:\{\s*\\text\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}|\{\s*(?:st|nd|rd|th)\s*\}"
         r"|\\text\s*\{\s*(?:st|nd|rd|th)\s*\}|(?:st|nd|rd|th)(?![A-Za-z]))", ""),
        (r"\s*,(?:\s*,)+\s*", ", "),
    )
)  # fmt: skip

_POWER = re.compile(r"\^\s*([-+]?\d+(?:\.\d+)?)")


def canonical(text: str) -> str:
    """The one spelling of an answer."""
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z({\[])", r"\\", text)
    text = _without_delimiters(unwrap(to_latex(text)))
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    for command, count in ((r"\frac", 2), (r"\binom", 2), (r"\sqrt", 1)):
        text = _braced(text, command, count)
    text = _POWER.sub(r"^{\1}", _braced_powers(text))
    if r"\begin" not in text:
        text = text.replace("&", " ").replace(r"\\", " ")
    text = re.sub(r"\s+", " ", _without_quotes(text)).strip(" ,;:")
    return text if text.endswith(r"\.") else text.rstrip(". ,;:")


def key(text: str) -> str:
    r"""A canonical text without what does not matter: spaces (but between two words or numbers), \text{}, plain braces.

    Equal keys mean equal answers. A list "1, 200" keeps its space, for "1,200" is a number.
    """
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"(?<=\d), (?=\d)", " , ", text).replace(" , ", "\0")
    return re.sub(r"(?<![A-Za-z0-9.]) | (?![A-Za-z0-9.])", "", text)


def _without_quotes(text: str) -> str:
    r"""Without quotation marks around it, and without \text{} around all of a text with numbers: `\text{3 hours}`."""
    text = text.strip()
    if len(text) > 2 and text[0] == text[-1] and text[0] in "'\"`":
        text = text[1:-1]
    return re.sub(r"^\s*\\text\s*\{([^{}]*\d[^{}]*)\}\s*$", r"\1", text)


def _without_delimiters(text: str) -> str:
    r"""Drop the $ of mathematics, keep that of money: `\$`, or a single $ beside a number."""
    text = text.replace(r"\$", "\0")
    if text.count("$") == 1 and re.search(r"\$\s*\d|\d\s*\$", text):
        text = text.replace("$", "\0")
    return text.replace("$", " ").replace("\0", "$")


def _braced(text: str, command: str, count: int) -> str:
    r"""Give every argument of a command its braces: `\frac12` -> `\frac{1}{2}`, `\sqrt(2)` -> `\sqrt{2}`."""
    for match in reversed(list(re.finditer(re.escape(command) + _NOT_LETTER, text))):
        option, rest = _option(text[match.end() :].lstrip())
        arguments = ""
        for _ in range(count):
            argument, rest = _argument(rest.lstrip())
            arguments += "{" + argument + "}"
        text = text[: match.end()] + option + arguments + rest
    return text


def _braced_powers(text: str) -> str:
    """`x^(n+1)` -> `x^{n+1}`."""
    for match in reversed(list(re.finditer(r"\^\s*(?=\()", text))):
        argument, rest = _argument(text[match.end() :])
        text = text[: match.start()] + "^{" + argument + "}" + rest
    return text


def _option(text: str) -> tuple[str, str]:
    """The [n] of a root, if there is one, and the rest."""
    match = re.match(r"\[[^\[\]]*\]", text)
    return (match[0], text[match.end() :]) if match else ("", text)


def _argument(text: str) -> tuple[str, str]:
    """What TeX takes as the next argument, and the rest; a parenthesis counts as a group."""
    if text.startswith("{"):
        end = closing_brace(text, 0, len(text))
        return (text[1:end], text[end + 1 :]) if end is not None else (text[1:], "")
    if text.startswith("("):
        end = _closing_parenthesis(text)
        return (text[1:end], text[end + 1 :]) if end is not None else (text[1:], "")
    match = re.match(r"\\[A-Za-z]+|[^{}()]", text)
    return (match[0], text[match.end() :]) if match else ("", text)


def _closing_parenthesis(text: str) -> int | None:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return at
    return None
