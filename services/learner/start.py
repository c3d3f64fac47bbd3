"""From a configuration to a learner: model, adapters, shards, reference.

model folder -> Policy -> [LoRA] -> [FSDP2 over the ranks] -> Learner (which continues from its newest checkpoint)
"""

from typing import Any

import torch

from common.config import RunConfig
from common.history import History
from services.learner import lora
from services.learner.config import LearnerConfig
from services.learner.learner import Learner
from services.learner.model import Policy
from services.learner.ranks import World
from services.learner.sharding import shard


def start(*, run: RunConfig, config: LearnerConfig, history: History | None, world: World) -> Learner:
    """Load everything; raises `UserError` for a model or an option that cannot be used."""
    torch.set_num_threads(config.threads)
    torch.manual_seed(run.seed)
    policy = _policy(run, config, world)
    return Learner(
        run=run,
        config=config,
        policy=policy,
        tokenizer=_tokenizer(run),
        history=history,
        world=world,
        reference=_policy(run, config, world, reference=True) if config.kl_coef else None,
    )


def _tokenizer(run: RunConfig) -> Any:
    """The model's tokenizer, with the chat template of the run."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(run.model)
    if run.chat_template:
        tokenizer.chat_template = run.template_text
    return tokenizer


def _policy(run: RunConfig, config: LearnerConfig, world: World, *, reference: bool = False) -> Policy:
    """The starting model, to be trained or frozen."""
    policy = Policy.load(run.model, temperature=run.temperature, config=config)
    if reference:
        policy.freeze()
    elif config.lora_rank:
        lora.inject(policy.model, config)
    if world.size > 1 or config.cpu_offload:
        shard(policy, config, world.size)
    return policy
