"""A run that costs little and is real: scripted rollouts, the real broker, rewards, filter and learner.

folder/model/        the architecture and tokenizer of the demo's model, with random weights
folder/rows.jsonl    prompts that the scripted engine can answer, or answer wrongly
folder/run.toml      the configuration
"""

import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

LIES = ["version", "old_version", "nan", "empty", "short", "aborted"]
HEARTBEAT_S, LEASE_S = 0.5, 4.0
NUM_ROWS = 3000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where everything of one run lies."""

    folder: Path
    config: Path
    run: Path
    """The run folder."""
    broker: int
    """Port that the broker listens on."""
    proxy: int
    """Port that the services connect to."""


def prepare(folder: Path, *, seed: int, runs: Path | None = None, proxied: bool = True, lies: bool = True) -> Setting:
    """Write the model, the rows and the configuration; `runs` is where the run folder goes, if not here."""
    make_model(folder / "model")
    rows = ({"prompt": f"Say {100 + n}", "answer": str(100 + n)} for n in range(NUM_ROWS))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    broker, proxy = free_ports(2)
    runs = runs or folder
    setting = Setting(
        folder=folder, config=folder / "run.toml", run=runs / "r", broker=broker, proxy=proxy if proxied else broker
    )
    setting.config.write_text(tomli_w.dumps(_tables(setting, runs=runs, seed=seed, lies=lies)))
    return setting


def _tables(setting: Setting, *, runs: Path, seed: int, lies: bool) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {
        "run": {
            "name": "r", "folder": str(runs), "model": str(setting.folder / "model"), "seed": seed, "steps": 1_000_000,
            "groups_per_batch": 8, "group_size": 4, "max_staleness": 2, "max_prompt_tokens": 16,
            "max_response_tokens": 48, "broker": f"tcp://127.0.0.1:{setting.proxy}", "heartbeat_s": HEARTBEAT_S,
            "lease_s": LEASE_S,
        },
        "broker": {"bind": f"tcp://127.0.0.1:{setting.broker}", "min_free_mb": 8, "segment_bytes": 1 << 20},
        "rollout": {
            "engine": "scripted", "replicas": 2, "max_groups": 8,
            "scripted": {"seconds": 0.2, "lies": LIES if lies else [], "lie_share": 0.02},
        },
        "reward": {"replicas": 2, "workers": 1},
        "filter": {"data": str(setting.folder / "rows.jsonl")},
        "learner": {
            "lr": 1e-4, "warmup_steps": 5, "checkpoint_every": 4, "contract_limit": 100.0, "record_batches": True,
            "disk_wait_s": 20.0,
        },
    }  # fmt: skip
    for role in ("broker", "rollout", "reward", "filter", "learner"):
        tables[role]["metrics_port"] = -1
    return tables


def make_model(folder: Path) -> None:
    """Half a million random parameters; nothing is learned from a script, but every step is a real one."""
    if (folder / "config.json").exists():
        return
    import torch

    from services.cli.demo import tiny_model

    tokenizer = tiny_model.make_tokenizer()
    torch.manual_seed(0)
    tiny_model.make_model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses now."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports


def dapo(*words: str) -> list[str]:
    """The command line of a verb."""
    return [sys.executable, "-m", "services.cli", *words]
