"""Run a program as its tests ask: as a whole, or one function of it.

    read and print   it runs as `__main__`; what it prints goes to the standard output
    function         it runs under another name, so that no demonstration starts; then the function, or the method of
                     class `Solution`, is called, and what it returns is written to the result, as JSON of plain values

The names that LiveCodeBench gives to programs are there: `List`, `Counter`, `deque`, `heappush`, `inf`, `math` ...
"""

import collections
import io
import json
import sys
from collections.abc import Callable
from types import ModuleType, NoneType
from typing import Any

PRELUDE = """
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math, operator, random, re
import statistics, string, sys, typing
from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from statistics import *
from itertools import *
from functools import *
from operator import *
from io import *
from sys import *
from json import *
from typing import *
from builtins import *
"""
RECURSION = 50_000
"""As LiveCodeBench sets it."""


def names() -> dict[str, Any]:
    """What a program finds defined."""
    found: dict[str, Any] = {}
    exec(PRELUDE, found)  # noqa: S102  (our own text)
    return {name: value for name, value in found.items() if not name.startswith("__")}


def run(source: str, *, known: dict[str, Any], function: str, arguments: list[Any], result_fd: int) -> None:
    """Run it here; whatever the program raises is raised."""
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(RECURSION)
    module = ModuleType("solution" if function else "__main__")
    space = module.__dict__
    space.update(known)
    sys.modules[module.__name__] = module
    exec(compile(source, "solution.py", "exec"), space)  # noqa: S102  (what this process is for)
    if not function:
        return
    target = space.get(function)
    if target is None or target is known.get(function):
        target = getattr(space["Solution"](), function)
    text = json.dumps(plain(target(*arguments)), allow_nan=True)
    with io.FileIO(result_fd, "w", closefd=False) as result:
        data = memoryview(text.encode())
        while data:
            data = data[result.write(data) or 0 :]


def plain(value: Any) -> Any:
    """A value as JSON has them: numbers, texts, lists, objects; raises `TypeError` for anything else."""
    for kinds, convert in _PLAIN:
        if isinstance(value, kinds):
            return convert(value)
    if hasattr(value, "__index__"):
        return int(value.__index__())
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"the function returned a value of type {type(value).__name__}, which is no plain value")


_PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((NoneType, bool), lambda value: value),
    (str, str.__str__),
    (float, float.__float__),
    ((list, tuple, collections.deque), lambda value: [plain(item) for item in value]),
    ((set, frozenset), lambda value: sorted(plain(item) for item in value)),
    (dict, lambda value: {str(plain(key)): plain(item) for key, item in value.items()}),
)
