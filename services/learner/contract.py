"""The start-up contract: engine and learner agree on the log-probabilities of the same tokens, or nothing is trained.

The layers of the contract, and how each is told apart: the temperature (the tokens agree at temperature 1, so the
engine left it out), the template (the tokenizer renders the prompts otherwise), else the weights or the arithmetic.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from common.chat import prompt_ids
from common.errors import UserError
from common.messages import Batch
from services.learner.config import LearnerConfig
from services.learner.model import Policy, publish_dtype
from services.learner.packing import pack
from services.learner.samples import TrainSample

FLOAT32_LIMIT, BFLOAT16_LIMIT = 1e-3, 0.05
PROBE = 4
"""Samples that are scored again to find the layer that differs."""


class Contract:
    """Checks once after every start, at the first step that has tokens of the current version."""

    def __init__(self, *, policy: Policy, config: LearnerConfig, temperature: float, tokenizer: Any) -> None:
        self._policy = policy
        self._temperature = temperature
        self._tokenizer = tokenizer
        is_half = publish_dtype(config, policy.device) == torch.bfloat16
        default = BFLOAT16_LIMIT if is_half else FLOAT32_LIMIT
        self._limit = config.contract_limit or default
        self.kept = False
        """Whether it was checked and held."""

    def check_for(self, batch: Batch) -> Callable[[float, Sequence[TrainSample]], None] | None:
        """The check of this batch's step, or None once it held."""
        if self.kept:
            return None

        def check(difference: float, samples: Sequence[TrainSample]) -> None:
            if not difference <= self._limit:
                raise UserError(
                    f"engine and learner disagree at step {batch.step}: the mean |difference| of log-probabilities "
                    f"is {difference:.2g}, the limit is {self._limit:.2g}; {self._layer(batch, samples)}"
                )
            self.kept = True

        return check

    def _layer(self, batch: Batch, samples: Sequence[TrainSample]) -> str:
        """Which layer of the contract differs, as the end of a sentence."""
        if self._temperature != 1.0 and self._difference_at_one(batch.step, samples) <= self._limit:
            return "they agree at temperature 1: the engine's log-probabilities leave the temperature out"
        if not self._same_template(batch, samples):
            return (
                "the chat template of the learner's tokenizer renders the prompts otherwise: use the same model folder"
            )
        return "temperature and template agree, so the weights or the dtype differ: compare [run] model and the dtypes"

    def _difference_at_one(self, step: int, samples: Sequence[TrainSample]) -> float:
        part = pack(samples, range(min(len(samples), PROBE)), self._policy.device)
        with torch.no_grad():
            logp_N = self._policy.scores(part, temperature=1.0).logp_N
        same_N = part.version_N == step
        if not same_N.any():
            return float("inf")
        return float((logp_N - part.mu_logp_N).abs()[same_N].mean())

    def _same_template(self, batch: Batch, samples: Sequence[TrainSample]) -> bool:
        """Whether the learner's tokenizer renders a prompt as the rollout's did."""
        if self._tokenizer is None or self._tokenizer.chat_template is None:
            return True
        chat = batch.groups[samples[0].group].group.prompt.chat
        return prompt_ids(self._tokenizer, chat) == samples[0].prompt_P.tolist()
