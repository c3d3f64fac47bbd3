"""Is the optimisation sound? Ratios, clips, effective sample size, KL, gradients, speed."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.panels import Panel, Query, build, value


def dashboard() -> Dashboard:
    """The learner's own numbers, of the newest step."""
    objective = [
        Panel(title="Clipped tokens", unit="percentunit", about="Share of the tokens whose gradient a clip took away.",
              queries=[Query(value("clip_low"), "low"), Query(value("clip_high"), "high"),
                       Query(value("clip_dual"), "dual")]),
        Panel(title="Loss", low=None, about="Mean over the optimizer steps of a batch; it need not fall.",
              queries=[Query(value("loss"), "loss")]),
        Panel(title="Gradient norm", about="Before clipping. Spikes: see the importance ratios of the same step.",
              queries=[Query(value("grad_norm"), "gradient norm")]),
    ]  # fmt: skip
    weights = [
        Panel(title="Importance ratio", about="Proximal policy over the policy that sampled, per token.",
              queries=[Query(value("rho_mean"), "mean"), Query(value("rho_p99"), "99 %"),
                       Query(value("rho_max"), "greatest")]),
        Panel(title="Effective share of the tokens", unit="percentunit", high=1.0,
              about="1: every token counts the same. Low: old or badly computed tokens carry the step; lower "
              "max_staleness or the learning rate.", queries=[Query(value("ess"), "ESS")]),
        Panel(title="Truncated weights", unit="percentunit", about="Share of the tokens whose weight is cut.",
              queries=[Query(value("rho_truncated"), "truncated")]),
    ]  # fmt: skip
    engine = [
        Panel(title="Mismatch KL", logarithmic=True, about="Lag and engine error, against the proximal policy.",
              queries=[Query(value("mismatch_kl"), "mismatch KL")]),
        Panel(title="Engine against learner", logarithmic=True,
              about="Mean |difference| of log-probabilities on tokens of the current version: the engine's error. "
              "Large: run `dapo doctor --loss`.", queries=[Query(value("engine_difference"), "mean |difference|")]),
        Panel(title="KL to the reference", room=1.0, about="Where kl_coef asks for one.",
              queries=[Query(value("reference_kl"), "reference KL")]),
    ]  # fmt: skip
    speed = [
        Panel(title="Tokens the learner works on", about="Per second of training, prompts included.",
              queries=[Query(value("tokens_per_second"), "tokens/s")]),
        Panel(title="Seconds by phase", unit="s", stacked=True, about="Of the newest step.",
              queries=[Query('dapo_learner_value{name=~"seconds_.+"}', "{{name}}")]),
        Panel(title="Share of the matrix peak", unit="percentunit",
              about="FLOP/s of forward and backward over the measured peak of matrix products.",
              queries=[Query(value("matmul_share"), "share of peak")]),
        Panel(title="Learning rate", about="Of the newest optimizer step.", queries=[Query(value("lr"), "lr")]),
        Panel(title="Skipped steps", room=1.0, unit="none", about="Optimizer steps whose gradient was not finite.",
              queries=[Query(value("skipped_updates"), "skipped")]),
        Panel(title="Tokens of a batch", about="Response tokens that are trained.",
              queries=[Query(value("trained_tokens"), "trained")]),
    ]  # fmt: skip
    rows = [("Objective", objective), ("Importance weights", weights), ("Engine and reference", engine),
            ("Speed", speed)]  # fmt: skip
    return build("Learner numerics", "dapo-numerics", "Is the optimisation sound?", rows)
