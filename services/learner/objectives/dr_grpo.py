"""Dr.GRPO: no division by the sample's length and none by the group's deviation; both bias the gradient.

Source: Understanding R1-Zero-Like Training (arXiv 2503.20783), section 3.2; the constant is the longest response.
"""

from services.learner.objectives.base import Clip, Objective
from services.learner.objectives.dapo import clipped_loss

DR_GRPO = Objective(loss=clipped_loss, normaliser="constant", advantage="mean", clip=Clip(0.2, 0.2))
