"""Is it learning? Accuracy, rewards, entropy, lengths, what is kept, how old it is."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.panels import Panel, Query, build, rate, value


def dashboard() -> Dashboard:
    """The dashboard to look at first."""
    glance = [
        Panel(title="Step", about="Batches trained and published.", number=True, width=4, height=4,
              queries=[Query("max(dapo_learner_step)")], decimals=0),
        Panel(title="Held-out accuracy", about="At the newest evaluation.", number=True, width=4, height=4,
              unit="percentunit", queries=[Query("max(dapo_filter_eval_accuracy_ratio)")], decimals=1),
        Panel(title="Reward", about="Mean shaped reward of the newest batch.", number=True, width=4, height=4,
              queries=[Query(value("reward"))], decimals=2),
        Panel(title="Entropy", about="Nats a token; near 0 the policy has stopped exploring.", number=True, width=4,
              height=4, queries=[Query(value("entropy"))], decimals=3),
        Panel(title="Groups kept", about="Of the last 100 judged.", number=True, width=4, height=4,
              unit="percentunit", queries=[Query("max(dapo_filter_recent_keep_rate_ratio)")], decimals=0),
        Panel(title="Seconds a step", about="Between two batches.", number=True, width=4, height=4, unit="s",
              queries=[Query("1 / (sum(rate(dapo_filter_batches_total[$__rate_interval])) > 0)")], decimals=2),
    ]  # fmt: skip
    learning = [
        Panel(title="Accuracy", unit="percentunit", high=1.0, width=12,
              about="Held-out rows tell whether the policy learns. In training only groups with right and wrong "
              "answers count, so that curve stays near the middle.",
              queries=[Query("max(dapo_filter_eval_accuracy_ratio)", "held-out"),
                       Query(value("accuracy"), "training, groups kept")]),
        Panel(title="Reward", low=None, width=12, about="The shaped reward of a batch, and its terms.",
              queries=[Query(value("reward"), "reward"),
                       Query('dapo_learner_value{name=~"reward_.+"}', "{{name}}")]),
        Panel(title="Entropy", about="Nats a token. A fall towards 0 is a policy that has stopped exploring: raise "
              "eps_high or entropy_coef.", queries=[Query(value("entropy"), "entropy")]),
        Panel(title="Response length", about="Tokens of the samples in a batch.",
              queries=[Query(value("length_mean"), "mean"), Query(value("length_p95"), "95 %"),
                       Query(value("length_max"), "longest")]),
        Panel(title="Truncated answers", unit="percentunit",
              about="Share of the samples cut at max_response_tokens; raise it, or punish length.",
              queries=[Query(value("truncated"), "truncated")]),
    ]  # fmt: skip
    data = [
        Panel(title="Groups kept", unit="percentunit", high=1.0,
              about="Dynamic sampling drops groups whose answers are all right or all wrong. Low: rows too easy or too "
              "hard.", queries=[Query("max(dapo_filter_recent_keep_rate_ratio)", "of the last 100"),
                                Query("max(dapo_filter_keep_rate_ratio)", "of the run")]),
        Panel(title="Age of the trained tokens", unit="none",
              about="In policy versions; the greatest is bounded by max_staleness.",
              queries=[Query(value("age_mean"), "mean"), Query(value("age_p99"), "99 %"),
                       Query(value("age_max"), "greatest")]),
        Panel(title="Tokens per second", about="Response tokens sampled by all rollouts, and trained.",
              queries=[Query(rate("dapo_rollout_tokens_total"), "sampled"),
                       Query(rate("dapo_learner_tokens_total"), "trained")]),
    ]  # fmt: skip
    rows = [("At a glance", glance), ("Learning", learning), ("Data", data)]
    return build("Run", "dapo-run", "Is it learning?", rows)
