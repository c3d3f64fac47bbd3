"""A Hugging Face data set, by name or as a folder, to raw rows. Needs the library `datasets` (pip extra `data`).

folder     as `save_to_disk` writes it, or as a data set repository: Parquet, JSONL or CSV files
options    split (default: train, or the only one), config, revision
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import UserError

OPTIONS = ("config", "split", "revision")


def rows(name: str, options: Mapping[str, str]) -> Iterator[tuple[int, Any]]:
    """(number from 1, record); raises `UserError` if the set cannot be loaded."""
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise UserError(f"data set {name}: unknown option `{unknown[0]}`; known are {', '.join(OPTIONS)}")
    return iter(enumerate(_load(name, options), start=1))


def _load(name: str, options: Mapping[str, str]) -> Any:
    """The one split."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"data set {name} needs the library `datasets`, which is not installed: pip install 'dapo[data]', or "
            "give a JSONL, Parquet or CSV file"
        ) from None
    datasets.disable_progress_bars()
    try:
        if any((Path(name) / mark).exists() for mark in ("state.json", "dataset_dict.json")):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, options.get("config"), revision=options.get("revision"))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        cause = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"data set {name} cannot be loaded: {cause}") from error
    return _split(loaded, name, options.get("split"))


def _split(loaded: Any, name: str, split: str | None) -> Any:
    if not isinstance(loaded, dict):
        return loaded
    names = list(loaded)
    wanted = split or ("train" if "train" in names or len(names) > 1 else names[0])
    if wanted not in loaded:
        raise UserError(f"data set {name} has no split `{wanted}`; it has {', '.join(names)}: give {name}?split=NAME")
    return loaded[wanted]
