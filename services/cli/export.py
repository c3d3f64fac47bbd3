"""`dapo export RUN DIR`: a published version of a run as a Hugging Face folder, for transformers and vLLM.

    RUN/weights/vN + configuration, tokenizer and chat template of [run] model -> DIR

The written tensors are read again and compared with the version's digests before DIR takes its name.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import config, weights
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, DapoError, UserError
from common.folders import new_folder
from services.cli.evaluate import subject


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
    except UserError as error:
        print(f"dapo export: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
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
    source = weights.version_folder(run_folder / "weights", version)
    with new_folder(folder) as partial:
        _write(run, source, partial, dtype)
        partial.chmod(0o755)
    return version


def _write(run: RunConfig, source: Path, folder: Path, dtype: str | None) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    tensors = load_file(source / weights.TENSORS)
    wanted = getattr(torch, dtype) if dtype else next(iter(tensors.values())).dtype
    try:
        settings, tokenizer = AutoConfig.from_pretrained(run.model), AutoTokenizer.from_pretrained(run.model)
    except (OSError, ValueError) as error:
        raise UserError(f"[run] model `{run.model}` of the run cannot be read any more: {error}") from error
    if run.chat_template:
        tokenizer.chat_template = run.template_text
    model = AutoModelForCausalLM.from_config(settings, dtype=wanted)
    _load(model, {name: tensor.to(wanted) for name, tensor in tensors.items()})
    try:
        model.generation_config = GenerationConfig.from_pretrained(run.model)
    except OSError:  # a model need not have one
        model.generation_config = GenerationConfig.from_model_config(settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _check(folder, {name: tensor.to(wanted) for name, tensor in tensors.items()})


def _load(model: Any, tensors: dict[str, Any]) -> None:
    """Fill the model; a tied head may be missing, nothing else."""
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        raise DapoError(f"the weights do not fit the model: {sorted(set(missing) - tied) + list(unexpected)}")
    model.tie_weights()


def _check(folder: Path, tensors: dict[str, Any]) -> None:
    """What transformers reads from the folder is what was published, bit for bit."""
    import torch
    from transformers import AutoModelForCausalLM

    read = dict(AutoModelForCausalLM.from_pretrained(folder, dtype="auto").named_parameters())
    wrong = [name for name, tensor in tensors.items() if name not in read or not torch.equal(read[name], tensor)]
    if wrong:
        raise DapoError(f"the exported folder does not hold the published weights: {', '.join(wrong)}")


if __name__ == "__main__":
    sys.exit(main())
