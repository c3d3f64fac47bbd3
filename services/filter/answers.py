"""The answer of a raw row, wherever its author put it.

verl                 reward_model.ground_truth
plain, TRL           answer | gold | final_answer | ground_truth | label (OpenRLHF)
prime-rl             verification_info.ground_truth | info.answer | info.ground_truth, as object or as JSON text
worked out (MATH)    solution: what its last \\boxed{} holds, else all of it
worked out (GSM8K)   question + answer: what follows the last ####
"""

import json
from collections.abc import Mapping
from typing import Any

from services.filter.values import first, text

COLUMNS = ("answer", "gold", "final_answer", "ground_truth", "label")
NESTED = (("verification_info", "ground_truth"), ("info", "answer"), ("info", "ground_truth"))
BOX = "\\boxed{"


def gold(raw: Mapping[str, Any], *, structured: bool = False) -> str:
    """The answer as text; empty if there is none. A `structured` one may be an object or a list, and is JSON text."""
    if structured and isinstance(value := first(raw, *COLUMNS), Mapping | list):
        return json.dumps(value, default=str)
    reward_model = raw.get("reward_model")
    if isinstance(reward_model, Mapping):
        return text(reward_model.get("ground_truth"), "answer")
    found = text(first(raw, *COLUMNS), "answer") or _nested(raw)
    if found and raw.get("prompt") is None and "####" in found:
        return found.rpartition("####")[2].strip()
    return found or boxed(text(raw.get("solution"), "solution"))


def boxed(solution: str) -> str:
    """What the last \\boxed{} of a solution holds, braces matched; all of it if it has none."""
    start = solution.rfind(BOX)
    depth = 1
    for place in range(start + len(BOX), len(solution)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if not depth:
            return solution[start + len(BOX) : place].strip()
    return solution


def _nested(raw: Mapping[str, Any]) -> str:
    values = (_object(raw.get(column)).get(key) for column, key in NESTED)
    return next((text(value, "answer") for value in values if value is not None), "")


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}
