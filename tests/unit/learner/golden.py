"""Values that a refactor must not change: `python -m tests.unit.learner.golden` writes golden.json anew.

The model's weights and the samples are sines of their places, so no random number generator has a say.
"""

import json
from pathlib import Path

import numpy as np
import torch

from services.learner.model import Policy
from services.learner.objectives import OBJECTIVES
from services.learner.samples import TrainSample
from tests.unit.learner.models import parameters, run_step, tiny_policy

PATH = Path(__file__).with_name("golden.json")
CASES: dict[str, dict[str, object]] = {
    **{name: {"objective": name, "proximal": "behaviour"} for name in OBJECTIVES},
    "current": {},
    "icepop": {"correction": "icepop"},
    "geometric": {"correction": "geometric"},
    "two updates": {"updates_per_batch": 2},
    "loglinear": {"proximal": "loglinear", "updates_per_batch": 2},
    "regularised": {"kl_coef": 0.1, "entropy_coef": 0.01},
}


def sine_policy(shift: float = 0.0) -> Policy:
    """The tiny model in float64 with weights 0.3 sin(k)."""
    policy = tiny_policy(dtype=torch.float64, temperature=0.8)
    with torch.no_grad():
        for place, parameter in enumerate(policy.named_parameters().values()):
            k = torch.arange(parameter.numel(), dtype=torch.float64).reshape(parameter.shape)
            parameter.copy_(0.3 * torch.sin(k * 1.7 + place + shift))
    return policy


def sine_samples() -> list[TrainSample]:
    """Two groups of three samples of unlike lengths, one of them with a masked token."""
    samples = []
    for place, length in enumerate([3, 11, 6, 1, 8, 5]):
        k = np.arange(length)
        samples.append(
            TrainSample(
                group=place // 3,
                prompt_P=(np.arange(2 + place % 3) * 5 % 64).astype(np.int32),
                response_T=((k * 7 + place * 11) % 64).astype(np.int32),
                mu_logp_T=(-4.2 + 1.2 * np.sin(k + place)).astype(np.float32),
                version_T=np.full(length, 3 - place % 2),
                mask_T=k != 9,
                advantage=float(np.sin(place + 1.0)),
            )
        )
    return samples


def values(case: str) -> dict[str, object]:
    """What one step with the settings of a case gives."""
    policy, reference = sine_policy(), sine_policy(shift=0.01).freeze()
    changes = CASES[case]
    result, gradient = run_step(
        policy, sine_samples(), step=3, reference=reference if "kl_coef" in changes else None, **changes
    )
    weights = parameters(policy)
    return {
        "metrics": result.tally.metrics(),
        "feedback": result.tally.per_group(),
        "grad_norms": [update.grad_norm for update in result.updates],
        "gradient": gradient[:: len(gradient) // 12].tolist(),
        "weights": weights[:: len(weights) // 12].tolist(),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps({case: values(case) for case in CASES}, indent=1) + "\n")
