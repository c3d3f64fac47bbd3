"""Is the optimisation sound? Ratios, clips, the engine against the learner, gradients."""

from collections.abc import Sequence

from services.cli.report.charts import Look, line_chart
from services.cli.report.curves import Curve, curves
from services.cli.report.record import Record


def section(records: Sequence[Record]) -> str:
    """The charts."""
    return "".join(
        (
            line_chart(
                "Clipped tokens", curves(records, [Curve("low", "clip_low"), Curve("high", "clip_high")]),
                Look(low=0.0), note="Share of the trained tokens whose gradient the clip took away.",
            ),
            line_chart(
                "Importance ratio",
                curves(records, [Curve("99 %", "rho_p99"), Curve("greatest", "rho_max", noisy=False)]),
                Look(log=True), note="Proximal policy over the policy that sampled, per token.",
            ),
            line_chart(
                "Effective share of the tokens", curves(records, [Curve("ESS", "ess", noisy=False)]), Look(high=1.0),
                note="1: every token counts the same; it falls when old or badly computed tokens get large weights.",
            ),
            line_chart(
                "Engine against learner",
                curves(records, [Curve("mismatch KL", "mismatch_kl", noisy=False),
                                 Curve("mean |difference|", "engine_difference", noisy=False)]),
                Look(log=True),
                note="The KL holds lag and engine error; the difference is of tokens of the current version alone.",
            ),
            line_chart(
                "Gradient norm", curves(records, [Curve("before clipping", "grad_norm")]), Look(low=0.0),
            ),
            line_chart("Loss", curves(records, [Curve("loss", "loss")])),
            line_chart("Learning rate", curves(records, [Curve("learning rate", "lr", noisy=False)]), Look(low=0.0)),
            line_chart("Tokens in a batch", curves(records, [Curve("trained", "trained_tokens")]), Look(low=0.0)),
        )
    )  # fmt: skip
