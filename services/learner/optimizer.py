"""AdamW with linear warm-up, gradient clipping, and no step for a gradient that is not finite.

    lr(u) = lr * min(1, (u + 1) / warmup)        u = optimizer steps done

The schedule is a function of u alone, so u is all of its state. The moments exist from the start, as zeros, so that a
checkpoint always has the same names. With FSDP2 parameters, gradients and moments are shards of the same mesh.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from common.errors import DapoError, UserError
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
        self._parameters = parameters
        self._config = config
        self._adamw = _adamw(list(parameters.values()), config)
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
        norm = float(whole(nn.utils.clip_grad_norm_(list(self._parameters.values()), self._config.max_grad_norm)))
        if not torch.isfinite(torch.tensor(norm)):
            self._skip()
            return Update(grad_norm=float("nan"), lr=lr, skipped=True)
        for group in self._adamw.param_groups:
            _set_lr(group, lr)
        self._adamw.step()
        self.updates += 1
        self._skips_in_a_row = 0
        return Update(grad_norm=norm, lr=lr, skipped=False)

    def state(self) -> dict[str, Tensor]:
        """The moments under `MOMENT/PARAMETER`, plain tensors or shards: the live ones, not copies.

        Moments of 8 bits are wrappers of several tensors and appear as `MOMENT.PART/PARAMETER`.
        """
        tensors: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            state = self._adamw.state[parameter]
            if not state:
                self._start(parameter)
            for moment in MOMENTS:
                tensors |= {f"{moment}{part}/{name}": tensor for part, tensor in _parts(state[moment])}
        return tensors

    def continue_from(self, *, updates: int, skips: int) -> None:
        """Take the counters of a checkpoint; its moments were read into `state()`."""
        self.updates, self.skips = updates, skips
        for parameter in self._parameters.values():
            step = self._adamw.state[parameter]["step"]
            self._adamw.state[parameter]["step"] = torch.full_like(step, float(updates))

    def _start(self, parameter: nn.Parameter) -> None:
        """What AdamW's first step would make."""
        state = self._adamw.state[parameter]
        fused = bool(self._adamw.param_groups[0].get("fused"))
        state["step"] = torch.zeros((), device=parameter.device if fused else "cpu")
        new = getattr(self._adamw, "_new_buffer", None)
        for moment in MOMENTS:
            state[moment] = new(parameter, moment == MOMENTS[0]) if new else torch.zeros_like(parameter)

    def _skip(self) -> None:
        self.skips += 1
        self._skips_in_a_row += 1
        if self._skips_in_a_row >= self._config.max_skips:
            raise TooManySkipsError(
                f"{self._skips_in_a_row} optimizer steps in a row had a gradient that is not finite: "
                "lower [learner] lr or look at the batches named in the log"
            )


def _adamw(parameters: list[nn.Parameter], config: LearnerConfig) -> Any:
    settings: dict[str, Any] = {
        "lr": config.lr, "betas": (config.beta1, config.beta2), "weight_decay": config.weight_decay,
    }  # fmt: skip
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, **settings, fused=True)
    try:
        from torchao.optim import AdamW8bit
    except ImportError as error:
        raise UserError("[learner] optimizer `adamw_8bit` needs the package torchao: pip install torchao") from error
    return AdamW8bit(parameters, **settings)


def _set_lr(group: dict[str, Any], lr: float) -> None:
    """torchao keeps the rate in a tensor, so that its compiled step need not be compiled again."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def _parts(moment: Tensor) -> list[tuple[str, Tensor]]:
    """A plain tensor, or the named tensors that a wrapper holds."""
    flatten = getattr(moment, "__tensor_flatten__", None)
    if flatten is None or hasattr(moment, "placements"):
        return [("", moment)]
    return [(f".{part}", getattr(moment, part)) for part in flatten()[0]]
