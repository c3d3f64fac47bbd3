"""Sums over the tokens of a step, and the numbers that a step reports.

Every reported value is a ratio of sums over all micro-batches and ranks, so it does not depend on how the batch was
cut. Sums stay on the device until the step ends. Names of the flat metrics, as in metrics.jsonl:

    loss                                      mean over the optimizer steps of the batch
    entropy, clip_low, clip_high, clip_dual   over trained tokens; clips only where they change the gradient
    rho_mean, rho_p99, rho_max, rho_truncated proximal / behaviour, over trained tokens; p99 to 2 %
    ess                                       (sum w)^2 / (n sum w^2), the effective share of the tokens
    mismatch_kl                               mean of rho - log rho - 1: engine and lag against the proximal policy
    engine_difference                         mean |log pi - log mu| over tokens of the current version
    reference_kl                              mean k3 against the reference, where kl_coef asks for one
    extreme_ratios                            tokens whose |log ratio| exceeds the clamp
"""

import torch
from torch import Tensor

from services.learner.logprobs import TokenScores
from services.learner.objectives import TokenLoss
from services.learner.objectives.ratio import LOG_RATIO_LIMIT
from services.learner.packing import MicroBatch
from services.learner.ranks import World

NAMES = (
    "tokens", "loss", "entropy", "clip_low", "clip_high", "clip_dual", "extreme", "rho", "w", "w_squared", "truncated",
    "kl", "reference_kl", "same_version", "difference",
)  # fmt: skip
GROUP_NAMES = ("tokens", "gradient", "clipped", "rho")
BINS = 2001
"""Of the histogram of log rho over [-20, 20]: 0.02 wide, so quantiles are right to 2 %."""


class Tally:
    """Sums of one step. `add` once per micro-batch, `close` once, then read."""

    def __init__(self, num_groups: int, device: torch.device, *, step: int) -> None:
        self._step = step
        self._sums = torch.zeros(len(NAMES), dtype=torch.float64, device=device)
        self._groups_KB = torch.zeros(len(GROUP_NAMES), num_groups, dtype=torch.float64, device=device)
        self._histogram = torch.zeros(BINS, dtype=torch.float64, device=device)
        self._rho_max = torch.zeros(1, dtype=torch.float64, device=device)
        self._num_updates = 1

    def add(
        self, batch: MicroBatch, scores: TokenScores, loss: TokenLoss, *, loss_N: Tensor, w_N: Tensor, rho_N: Tensor,
        reference_kl_N: Tensor | None,
    ) -> None:  # fmt: skip
        """Add the tokens of a micro-batch; `loss_N` is each token's part of the step's loss."""
        m_N = batch.mask_N.double()
        clipped_N = loss.clipped_low_N | loss.clipped_high_N | loss.clipped_dual_N
        p_N = scores.logp_N.detach().exp()
        gradient_N = (w_N * loss.slope_N).square() * (1 - 2 * p_N + scores.square_N)
        values = [
            torch.ones_like(m_N), loss_N.detach() / m_N.clamp(min=1), scores.entropy_N.detach(), loss.clipped_low_N,
            loss.clipped_high_N, loss.clipped_dual_N, loss.extreme_N, rho_N, w_N, w_N.square(), w_N < rho_N,
            rho_N - rho_N.log() - 1, torch.zeros_like(m_N) if reference_kl_N is None else reference_kl_N.detach(),
        ]  # fmt: skip
        same_N = (batch.version_N == self._step).double()
        difference_N = (scores.logp_N.detach() - batch.mu_logp_N).abs().nan_to_num(LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        totals = [(value.double() * m_N).sum() for value in values]
        totals += [same_N.sum(), (difference_N.clamp(max=LOG_RATIO_LIMIT).double() * same_N).sum()]
        self._sums += torch.stack(totals)
        for sums_B, value_N in zip(self._groups_KB, (torch.ones_like(m_N), gradient_N, clipped_N, rho_N), strict=True):
            sums_B.index_add_(0, batch.group_N, value_N.double() * m_N)
        bins_N = ((rho_N.log() + LOG_RATIO_LIMIT) / (2 * LOG_RATIO_LIMIT) * (BINS - 1)).round().long()
        self._histogram.index_add_(0, bins_N.clamp(0, BINS - 1), m_N)
        self._rho_max = torch.maximum(self._rho_max, (rho_N.double() * m_N).max())

    def agree_on_difference(self, world: World) -> float | None:
        """Mean |log pi - log mu| over tokens of the current version on all ranks so far; None if there are none."""
        pair = self._sums[-2:].cpu().clone()
        count, difference = world.sum(pair).tolist()
        return difference / count if count else None

    def close(self, world: World, *, num_updates: int) -> None:
        """Add up the ranks."""
        self._num_updates = max(1, num_updates)
        for name in ("_sums", "_groups_KB", "_histogram"):
            setattr(self, name, world.sum(getattr(self, name).cpu()))
        self._rho_max = world.max(self._rho_max.cpu())

    def per_group(self) -> list[tuple[float, float, float]]:
        """(gradient variance, clip share, mean rho) of each group; the variance is a sum over its tokens."""
        tokens_B, gradient_B, clipped_B, rho_B = self._groups_KB
        tokens_B = tokens_B.clamp(min=1)
        rows = torch.stack([gradient_B, clipped_B / tokens_B, rho_B / tokens_B], dim=1)
        return [(float(a), float(b), float(c)) for a, b, c in rows]

    def metrics(self) -> dict[str, float]:
        """The flat numbers of the step."""
        sums = dict(zip(NAMES, self._sums.tolist(), strict=True))
        n = max(sums["tokens"], 1.0)
        metrics = {
            "loss": sums["loss"] / self._num_updates,
            "trained_tokens": sums["tokens"],
            "entropy": sums["entropy"] / n,
            "clip_low": sums["clip_low"] / n,
            "clip_high": sums["clip_high"] / n,
            "clip_dual": sums["clip_dual"] / n,
            "extreme_ratios": sums["extreme"],
            "rho_mean": sums["rho"] / n,
            "rho_p99": self._quantile(0.99),
            "rho_max": float(self._rho_max),
            "rho_truncated": sums["truncated"] / n,
            "ess": sums["w"] ** 2 / (n * sums["w_squared"]) if sums["w_squared"] else 0.0,
            "mismatch_kl": sums["kl"] / n,
            "reference_kl": sums["reference_kl"] / n,
        }
        if sums["same_version"]:
            metrics["engine_difference"] = sums["difference"] / sums["same_version"]
        return metrics

    def _quantile(self, share: float) -> float:
        """The quantile of rho, from the histogram."""
        total = self._histogram.sum()
        if not total:
            return 0.0
        place = int(torch.searchsorted(self._histogram.cumsum(0), share * total))
        return float(torch.tensor(place / (BINS - 1) * 2 * LOG_RATIO_LIMIT - LOG_RATIO_LIMIT).exp())
