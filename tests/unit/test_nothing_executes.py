"""Nothing that is read from a file or a socket can be executed: the tree has none of the calls by which it could."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "pickle": r"\b(import|from) (c?pickle|cloudpickle|dill|shelve|marshal|joblib)\b|_pyobj\(|allow_pickle=True",
    "eval": r"(?<![\w.])(eval|exec)\(",
    "torch.load without weights_only": r"torch\.load\((?!.*weights_only=True)",
    "yaml.load": r"yaml\.(unsafe_)?load\(",
    "trust_remote_code": r"trust_remote_code\s*[=:]\s*(?!False)",
    "insecure vLLM": r"VLLM_ALLOW_INSECURE_SERIALIZATION|VLLM_SERVER_DEV_MODE",
}
RUNS_PROGRAMS = {Path("services/reward/code/box/program.py")}
"""The one place that executes what it is given: inside the sandbox, which is its purpose."""


def sources() -> list[Path]:
    folders = ("common", "services", "benchmarks")
    return [path.relative_to(ROOT) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_uses(what: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in sources()
        if path not in RUNS_PROGRAMS
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("pickle", "import pickle"),
        ("pickle", "socket.recv_pyobj()"),
        ("pickle", "np.load(path, allow_pickle=True)"),
        ("eval", "value = eval(text)"),
        ("torch.load without weights_only", "torch.load(path)"),
        ("yaml.load", "yaml.load(text)"),
        ("trust_remote_code", "from_pretrained(name, trust_remote_code=True)"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert re.search(FORBIDDEN[what], line)


def test_the_patterns_pass_what_is_harmless() -> None:
    lines = ["model.eval()", "torch.load(path, weights_only=True)", "trust_remote_code=False", "yaml.safe_load(text)"]
    assert not [line for line in lines for pattern in FORBIDDEN.values() if re.search(pattern, line)]
