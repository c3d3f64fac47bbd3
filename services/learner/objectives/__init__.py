"""Tokens of a micro-batch -> loss per token. One objective a file; `OBJECTIVES` names them for the configuration."""

from services.learner.objectives.base import Clip, Objective, TokenLoss, Tokens
from services.learner.objectives.cispo import CISPO
from services.learner.objectives.dapo import DAPO
from services.learner.objectives.dppo_tv import DPPO_TV
from services.learner.objectives.dr_grpo import DR_GRPO
from services.learner.objectives.grpo import GRPO
from services.learner.objectives.gspo import GSPO

OBJECTIVES: dict[str, Objective] = {
    "dapo": DAPO,
    "grpo": GRPO,
    "dr_grpo": DR_GRPO,
    "gspo": GSPO,
    "cispo": CISPO,
    "dppo_tv": DPPO_TV,
}

__all__ = ["OBJECTIVES", "Clip", "Objective", "TokenLoss", "Tokens"]
