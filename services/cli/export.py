"""`dapo export RUN DIR`: a published version of a run as a Hugging Face folder, for transformers and vLLM.

    [run] model, with RUN/weights/vN copied over its parameters -> DIR: configuration, tokenizer, chat template, weights

The version's digests are checked before, and what transformers reads from the written folder after, bit for bit; only
then DIR takes its name. Buffers, which are not trained, are those of the starting model.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import config
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, DapoError, UserError
from common.folders import fsync
from services.cli.evaluate import subject

SHARD = "5GB"
"""Size above which the weights are written as several files."""


def main(argv: Sequence[str] | None = None) -> int:
    """Export; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo export", description="Write a Hugging Face folder of a run's policy.")
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder to make; it must not exist or be empty")
    parser.add_argument("--step", type=int, help="policy version; default: the newest published")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: as published")
    arguments = parser.parse_args(argv)
    try:
        version = export(arguments.run, arguments.folder, step=arguments.step, dtype=arguments.dtype)
    except (DapoError, OSError) as error:
        print(f"dapo export: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS if isinstance(error, UserError) else 1
    print(f"step {version} of {arguments.run} is in {arguments.folder}")
    return 0


def export(run_folder: Path, folder: Path, *, step: int | None, dtype: str | None) -> int:
    """Write the folder and return the version it holds; raises `UserError` for what cannot be exported."""
    if not run_folder.is_dir():
        raise UserError(f"there is no run in {run_folder}: give the folder of a run, for instance runs/demo")
    run = config.section(subject.read_tree(run_folder, []), "run", RunConfig)
    version = subject.published(run_folder, step)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty: choose another folder, nothing is overwritten")
    with subject.whole(run_folder, version) as tensors, staged(folder.resolve()) as partial:
        _write(run, tensors, partial, dtype)
        _check(tensors, partial)
    return version


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder that becomes `folder` at the end of the block, or vanishes; `folder` must not exist or be empty.

    Unlike common/folders.py it leaves alone what others are writing beside it.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        holder = TemporaryDirectory(prefix=".dapo-export-", dir=folder.parent)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}): choose another folder") from error
    with holder:
        partial = Path(holder.name) / folder.name
        partial.mkdir()
        yield partial
        for path in partial.iterdir():
            path.chmod(partial.stat().st_mode & 0o666)  # safetensors lets nobody else read
            fsync(path)
        fsync(partial)
        os.rename(partial, folder)
        fsync(folder.parent)


def _write(run: RunConfig, tensors: Path, folder: Path, dtype: str | None) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    subject.without_bars()
    wanted = getattr(torch, dtype) if dtype else _dtype_of(tensors)
    try:
        model = AutoModelForCausalLM.from_pretrained(run.model, dtype=wanted)
        tokenizer = AutoTokenizer.from_pretrained(run.model)
    except (OSError, ValueError) as error:
        raise UserError(f"[run] model `{run.model}` of the run cannot be read any more: {error}") from error
    if run.chat_template:
        tokenizer.chat_template = run.template_text
    _load(model, tensors)
    model.save_pretrained(folder, max_shard_size=SHARD)
    tokenizer.save_pretrained(folder)


def _load(model: Any, tensors: Path) -> None:
    """Copy every published tensor over the parameter of its name, one at a time; a tied head is the embedding."""
    import torch
    from safetensors import safe_open

    parameters = dict(model.named_parameters())
    with safe_open(tensors, framework="pt") as file, torch.no_grad():
        wrong = set(file.keys()) ^ set(parameters)
        wrong |= {name for name in set(parameters) - wrong if file.get_tensor(name).shape != parameters[name].shape}
        if wrong:
            raise DapoError(f"the weights are not those of the run's [run] model: {', '.join(sorted(wrong)[:3])}")
        for name, parameter in parameters.items():
            parameter.copy_(file.get_tensor(name))


def _check(tensors: Path, folder: Path) -> None:
    """What transformers reads from the folder is what was published, bit for bit."""
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    read = dict(AutoModelForCausalLM.from_pretrained(folder, dtype="auto").named_parameters())
    with safe_open(tensors, framework="pt") as file:
        names = file.keys()
        wrong = [n for n in names if n not in read or not torch.equal(read[n], file.get_tensor(n).to(read[n].dtype))]
    if wrong:
        raise DapoError(f"the exported folder does not hold the published weights: {', '.join(wrong[:3])}")


def _dtype_of(tensors: Path) -> Any:
    from safetensors import safe_open

    with safe_open(tensors, framework="pt") as file:
        return file.get_tensor(next(iter(file.keys()))).dtype


if __name__ == "__main__":
    sys.exit(main())
