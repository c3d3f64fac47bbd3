"""GRPO: PPO's clipped surrogate, every sample weighed the same whatever its length. Source: arXiv 2402.03300, eq. 3."""

from services.learner.objectives.base import Clip, Objective
from services.learner.objectives.dapo import clipped_loss

GRPO = Objective(loss=clipped_loss, normaliser="samples", advantage="std", clip=Clip(0.2, 0.2))
