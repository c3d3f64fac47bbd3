"""What an objective is: a loss per token, how tokens are weighed against each other, and its usual settings.

    Loss of an optimizer step = sum_{i,t} c_{i,t} w_{i,t} l_{i,t}     c normaliser.py, w correction.py, l here

An objective sees all tokens of every sample it sees at all: samples are never split. N = tokens.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor

from services.learner.normaliser import Normaliser


class Clip(NamedTuple):
    """Where an objective stops to reward a change of the policy."""

    low: float
    high: float
    dual: float = 0.0
    """c of the dual clip; 0: off. Only the objectives of PPO's form use it."""


class Tokens(NamedTuple):
    """What a loss is made of. Gradient flows through `logp_N` only."""

    logp_N: Tensor
    """log pi_theta."""
    prox_logp_N: Tensor
    """log pi_prox."""
    advantage_N: Tensor
    sample_N: Tensor
    """Sample of each token, from 0."""
    mask_N: Tensor
    """1.0 where the token is trained."""


class TokenLoss(NamedTuple):
    """The loss of each token and where clipping changed its gradient."""

    loss_N: Tensor
    ratio_N: Tensor
    slope_N: Tensor
    """d loss / d log pi, detached; 0 where clipping cut the gradient off."""
    clipped_low_N: Tensor
    """A < 0 and the policy has moved down far enough: no gradient."""
    clipped_high_N: Tensor
    """A > 0 and the policy has moved up far enough: no (or less) gradient."""
    clipped_dual_N: Tensor
    """A < 0 and r > c: no gradient."""
    extreme_N: Tensor
    """|log r| beyond the clamp."""


class Objective(NamedTuple):
    """An objective by its parts."""

    loss: Callable[[Tokens, Clip], TokenLoss]
    normaliser: Normaliser
    advantage: Literal["std", "mean"]
    """How its paper makes advantages of a group's rewards."""
    clip: Clip
    """The clips of its paper."""
