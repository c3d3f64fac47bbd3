"""Is it learning? Accuracy on held-out rows and in training, rewards, entropy, lengths, what is kept."""

from collections.abc import Sequence

from services.cli.report.charts import Limit, Line, Look, Point, line_chart
from services.cli.report.curves import Curve, colour_of, curves, label, of_each
from services.cli.report.record import Record
from services.cli.snapshot import Row


def section(records: Sequence[Record]) -> str:
    """The charts."""
    return "".join((_accuracy(records), _by_time(records), _passes(records), _reward(records), _terms(records),
                    _entropy(records), _lengths(records)))  # fmt: skip


def _accuracy(records: Sequence[Record]) -> str:
    lines = curves(records, [Curve("training, groups kept", "accuracy")], first=1)
    for run, record in enumerate(records):
        lines.append(Line(label(records, run, "held-out"), _evals(record.evals), run, "dots"))
    return line_chart(
        "Accuracy", lines, Look(low=0.0, high=1.0, x_name="step"),
        note="Held-out rows tell whether the policy learns. The accuracy in training is of the groups that were kept: "
        "all-right and all-wrong ones are dropped, so it stays near the middle.",
    )  # fmt: skip


def _by_time(records: Sequence[Record]) -> str:
    def points(record: Record) -> list[Point]:
        return [((row["time"] - record.start) / 60, row["accuracy"]) for row in record.evals if "time" in row]

    lines = [Line(label(records, run, "held-out"), points(record), run, "dots") for run, record in enumerate(records)]
    return line_chart("Accuracy by time", lines, Look(low=0.0, high=1.0, x_name="minutes since the start"),
                      note="Over minutes since the first process started.")  # fmt: skip


def _passes(records: Sequence[Record]) -> str:
    """pass@k, where evaluations ask for several answers."""
    lines = []
    for run, record in enumerate(records):
        found = sorted({key for row in record.evals for key in row if key.startswith("pass@") and key != "pass@1"})
        for place, key in enumerate(found):
            points = [(row["version"], row[key]) for row in record.evals if row.get(key) is not None]
            lines.append(Line(label(records, run, key), points, colour_of(records, run, place), "dots"))
    return line_chart("pass@k on the held-out rows", lines, Look(low=0.0, high=1.0))


def _evals(evals: Sequence[Row]) -> list[Point]:
    return [(row["version"], row["accuracy"]) for row in evals]


def _reward(records: Sequence[Record]) -> str:
    return line_chart("Reward", curves(records, [Curve("shaped reward", "reward")]),
                      note="Mean over the samples that were trained.")  # fmt: skip


def _terms(records: Sequence[Record]) -> str:
    found = sorted({key for record in records for row in record.rows[-1:] for key in row if key.startswith("reward_")})
    if len(found) < 2:
        return ""
    wanted = [Curve(key.removeprefix("reward_"), key) for key in found]
    return line_chart("Terms of the reward", curves(records, wanted), note="Their sum is the shaped reward.")


def _entropy(records: Sequence[Record]) -> str:
    return line_chart("Entropy", curves(records, [Curve("entropy", "entropy")]), Look(low=0.0),
                      note="In nats a token. Near 0 the policy has stopped exploring.")  # fmt: skip


def _lengths(records: Sequence[Record]) -> str:
    wanted = [Curve("mean", "length_mean"), Curve("95 %", "length_p95")]
    limit = Limit(records[0].run.max_response_tokens, "max_response_tokens")
    cut = line_chart("Truncated answers", of_each(records, lambda record: record.column("truncated")), Look(low=0.0),
                     note="Share of the trained samples that were cut at the limit.")  # fmt: skip
    return line_chart("Response length", curves(records, wanted), Look(low=0.0, limit=limit),
                      note="Tokens, of the samples that were trained.") + cut  # fmt: skip
