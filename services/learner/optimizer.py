"""AdamW with linear warm-up, gradient clipping, and no step for a gradient that is not finite.

    lr(u) = lr * min(1, (u + 1) / warmup)        u = optimizer steps done

The schedule is a function of u alone, so u is all of its state. The moments exist from the start, as zeros, so that a
checkpoint always has the same names. With FSDP2 parameters, gradients and moments are shards of the same mesh.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from common.errors import DapoError
from services.learner.config import LearnerConfig
from services.learner.sharding import whole

MOMENTS = ("exp_avg", "exp_avg_sq")


class TooManySkipsError(DapoError):
    """`max_skips` optimizer steps in a row had a loss or gradient that was not finite."""


class Update(NamedTuple):
    """What one optimizer step did."""

    grad_norm: float
    lr: float
    skipped: bool


class Optimizer:
    """AdamW over named parameters, with its counters."""

    def __init__(self, parameters: dict[str, nn.Parameter], config: LearnerConfig) -> None:
        self.parameters = parameters
        """What is stepped, by name."""
        self._config = config
        self._adamw = torch.optim.AdamW(
            list(parameters.values()),
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.updates = 0
        """u: optimizer steps done."""
        self.skips = 0
        self._skips_in_a_row = 0

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        self._adamw.zero_grad(set_to_none=True)

    def step(self) -> Update:
        """Clip and apply the accumulated gradients, unless one is not finite; raises `TooManySkipsError`."""
        lr = self._config.lr * min(1.0, (self.updates + 1) / max(1, self._config.warmup_steps))
        norm = float(whole(nn.utils.clip_grad_norm_(list(self.parameters.values()), self._config.max_grad_norm)))
        if not torch.isfinite(torch.tensor(norm)):
            self._skip()
            return Update(grad_norm=float("nan"), lr=lr, skipped=True)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self.updates += 1
        self._skips_in_a_row = 0
        return Update(grad_norm=norm, lr=lr, skipped=False)

    def state(self) -> dict[str, Tensor]:
        """The moments under `MOMENT/PARAMETER`, plain tensors or shards: the live ones, not copies."""
        for parameter in self.parameters.values():
            if not self._adamw.state[parameter]:
                self._start(parameter)
        return {
            f"{moment}/{name}": self._adamw.state[parameter][moment]
            for name, parameter in self.parameters.items()
            for moment in MOMENTS
        }

    def continue_from(self, *, updates: int, skips: int) -> None:
        """Take the counters of a checkpoint; its moments were read into `state()`."""
        self.updates, self.skips = updates, skips
        for parameter in self.parameters.values():
            step = self._adamw.state[parameter]["step"]
            self._adamw.state[parameter]["step"] = torch.full_like(step, float(updates))

    def _start(self, parameter: nn.Parameter) -> None:
        """What AdamW's first step would make."""
        moments = {moment: torch.zeros_like(parameter) for moment in MOMENTS}
        self._adamw.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}

    def _skip(self) -> None:
        self.skips += 1
        self._skips_in_a_row += 1
        if self._skips_in_a_row >= self._config.max_skips:
            raise TooManySkipsError(
                f"{self._skips_in_a_row} optimizer steps in a row had a gradient that is not finite: "
                "lower [learner] lr or look at the batches named in the log"
            )
