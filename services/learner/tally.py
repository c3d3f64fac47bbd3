"""Sums over the tokens of a step, and the numbers that a step reports (algorithm.md has the list; docs explain them).

Every reported value is a ratio of sums over all micro-batches, so it does not depend on how the batch was cut. Names of
the flat metrics, as in metrics.jsonl:

    entropy, clip_low, clip_high, clip_dual   over trained tokens; clips only where they change the gradient
    rho_mean, rho_max, rho_truncated          proximal / behaviour, over trained tokens
    ess                                       (sum w)^2 / (n sum w^2), the effective share of the tokens
    mismatch_kl                               mean of rho - log rho - 1: engine and lag against the proximal policy
    engine_difference                         mean |log pi - log mu| over tokens of the current version
    extreme_ratios                            tokens whose |log ratio| exceeds the clamp
    loss                                      the step's loss
"""

from collections import defaultdict

import torch
from torch import Tensor

from services.learner.loss import TokenLoss
from services.learner.packing import MicroBatch


class Tally:
    """Sums of one step."""

    def __init__(self, num_groups: int) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._rho_max = 0.0
        self.variance_B = torch.zeros(num_groups, dtype=torch.float64)
        """Sum of squared policy-gradient coefficients in logit space, by group."""
        self._clipped_B = torch.zeros(num_groups, dtype=torch.float64)
        self._rho_B = torch.zeros(num_groups, dtype=torch.float64)
        self._tokens_B = torch.zeros(num_groups, dtype=torch.float64)

    def add(
        self, batch: MicroBatch, loss: TokenLoss, *, w_N: Tensor, rho_N: Tensor, entropy_N: Tensor, gradient_N: Tensor
    ) -> None:
        """Add the tokens of a micro-batch; `gradient_N` is |d loss / d logits|^2 of each token."""
        m_N = batch.mask_N
        clipped_N = loss.clipped_low_N | loss.clipped_high_N | loss.clipped_dual_N
        for name, value_N in {
            "tokens": torch.ones_like(m_N), "loss": w_N * loss.loss_N.detach(), "entropy": entropy_N,
            "clip_low": loss.clipped_low_N, "clip_high": loss.clipped_high_N, "clip_dual": loss.clipped_dual_N,
            "extreme": loss.extreme_N, "rho": rho_N, "w": w_N, "w_squared": w_N.square(),
            "truncated": w_N < rho_N, "kl": rho_N - rho_N.log() - 1,
        }.items():  # fmt: skip
            self._sums[name] += float((value_N.double() * m_N).sum())
        if len(rho_N):
            self._rho_max = max(self._rho_max, float((rho_N * m_N).max()))
        groups = batch.group_N.cpu()
        for sums_B, value_N in (
            (self.variance_B, gradient_N), (self._clipped_B, clipped_N),
            (self._rho_B, rho_N), (self._tokens_B, torch.ones_like(m_N)),
        ):  # fmt: skip
            sums_B.index_add_(0, groups, (value_N.double() * m_N).cpu())

    def add_difference(self, batch: MicroBatch, logp_N: Tensor, *, step: int) -> None:
        """Compare engine and learner on the tokens that the current version sampled."""
        same_N = batch.version_N == step
        self._sums["same_version"] += float(same_N.sum())
        self._sums["difference"] += float(((logp_N.detach() - batch.mu_logp_N).abs().double() * same_N).sum())

    @property
    def engine_difference(self) -> float | None:
        """Mean |log pi - log mu| over tokens of the current version; None if there are none."""
        count = self._sums["same_version"]
        return self._sums["difference"] / count if count else None

    def per_group(self) -> list[tuple[float, float, float]]:
        """(gradient variance, clip share, mean rho) of each group."""
        tokens_B = self._tokens_B.clamp(min=1)
        rows = torch.stack([self.variance_B, self._clipped_B / tokens_B, self._rho_B / tokens_B], dim=1)
        return [(float(a), float(b), float(c)) for a, b, c in rows]

    def metrics(self) -> dict[str, float]:
        """The flat numbers of the step."""
        sums, n = self._sums, max(self._sums["tokens"], 1.0)
        difference = self.engine_difference
        return {
            "loss": sums["loss"] / n,
            "trained_tokens": sums["tokens"],
            "entropy": sums["entropy"] / n,
            "clip_low": sums["clip_low"] / n,
            "clip_high": sums["clip_high"] / n,
            "clip_dual": sums["clip_dual"] / n,
            "extreme_ratios": sums["extreme"],
            "rho_mean": sums["rho"] / n,
            "rho_max": self._rho_max,
            "rho_truncated": sums["truncated"] / n,
            "ess": sums["w"] ** 2 / (n * sums["w_squared"]) if sums["w_squared"] else 0.0,
            "mismatch_kl": sums["kl"] / n,
            **({} if difference is None else {"engine_difference": difference}),
        }
