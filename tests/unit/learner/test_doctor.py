import pytest
import torch
from torch.nn import functional as F

from services.learner import attention, doctor, step
from services.learner.config import LearnerConfig
from services.learner.normaliser import token_weights


def findings() -> dict[str, bool]:
    settings = LearnerConfig()
    found = doctor.examine(doctor.small_policy(settings), settings, max_tokens=128, temperature=1.0)
    return {finding.what: finding.holds for finding in found}


def test_everything_holds_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--loss"]) == 0
    assert "BROKEN" not in capsys.readouterr().out


def test_attention_that_sees_other_samples_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def across(qkv, segments, window, **options):  # type: ignore[no-untyped-def]
        return F.scaled_dot_product_attention(*qkv, is_causal=True, **options).transpose(1, 2)

    monkeypatch.setattr(attention, "_one_by_one", across)
    assert not findings()["log-probability: with other samples beside it"]


def test_a_normaliser_per_micro_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = step.pack

    def defective(samples, places, device, weights=None):  # type: ignore[no-untyped-def]
        return honest(samples, places, device, token_weights(samples, places, "tokens", max_tokens=64))

    monkeypatch.setattr(step, "pack", defective)
    assert not findings()["gradient: micro-batches of 100 tokens"]


def test_a_difference_that_is_no_number_does_not_hold() -> None:
    assert not doctor.Finding("x", float("nan"), 1e-5).holds


def test_the_users_mistakes_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--loss", "absent.toml"]) == 2
    assert capsys.readouterr().err.startswith("dapo doctor: configuration absent.toml does not exist")


def test_nothing_is_trained() -> None:
    settings = LearnerConfig()
    policy = doctor.small_policy(settings)
    before = {name: p.detach().clone() for name, p in policy.named_parameters().items()}
    doctor.examine(policy, settings, max_tokens=128, temperature=1.0)
    assert all(torch.equal(p, before[name]) for name, p in policy.named_parameters().items())
