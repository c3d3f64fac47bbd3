"""Do the verifiers work? Verdicts, errors and their causes, time, workers, terms of the reward."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.panels import Panel, Query, build, quantile, rate, value

FAILED = ("dapo_reward_verdicts_total", "", '{verdict="error"}')


def dashboard() -> Dashboard:
    """The reward service and what it gives."""
    verdicts = [
        Panel(title="Verdicts", stacked=True, about="Per second, by verdict.",
              queries=[Query(rate("dapo_reward_verdicts_total", "verdict"), "{{verdict}}")]),
        Panel(title="Verdicts by verifier", stacked=True, about="Per second.",
              queries=[Query(rate("dapo_reward_verdicts_total", "verifier"), "{{verifier}}")]),
        Panel(title="Errors", unit="percentunit", about="Share of the verdicts that are errors: they become no reward, "
              "and their samples are left out. The log of the reward service names the cause.",
              queries=[Query(f"({rate(*FAILED)} or on() vector(0)) / {rate('dapo_reward_verdicts_total')}", "errors")]),
        Panel(title="Causes of errors", room=1.0, about="Per second.",
              queries=[Query(f"{rate('dapo_reward_errors_total', 'cause')} or on() vector(0)", "{{cause}}")]),
        Panel(title="Time limits broken", room=1.0, about="Outputs per second that broke the time limit.",
              queries=[Query(f"{rate('dapo_reward_timeouts_total', 'verifier')} or on() vector(0)", "{{verifier}}")]),
        Panel(title="Macro F1", about="Of `classification`, over its last answers.", high=1.0,
              queries=[Query("max(dapo_reward_macro_f1_ratio) or on() vector(0)", "macro F1")]),
    ]  # fmt: skip
    terms = [
        Panel(title="Terms of the reward", low=None, width=12, about="Means over the newest batch; their sum is the "
              "shaped reward.", queries=[Query('dapo_learner_value{name=~"reward_.+"}', "{{name}}"),
                                         Query(value("reward"), "reward")]),
        Panel(title="Lengths", width=12, about="Tokens that were sampled and that are trained: apart when truncated or "
              "stale tokens are masked.",
              queries=[Query(value("length_mean"), "sampled"), Query(value("length_trained_mean"), "trained")]),
    ]  # fmt: skip
    service = [
        Panel(title="Time in the verifier", unit="s", about="By verifier.",
              queries=[Query(quantile("dapo_reward_verifier_seconds", 0.5, "verifier"), "median, {{verifier}}"),
                       Query(quantile("dapo_reward_verifier_seconds", 0.99, "verifier"), "99 %, {{verifier}}")]),
        Panel(title="Outputs waiting", about="For a worker or with one, by replica.",
              queries=[Query("dapo_reward_queue_length", "{{instance}}")]),
        Panel(title="Groups scored", about="Per second, by replica.",
              queries=[Query(rate("dapo_reward_groups_total", "instance"), "{{instance}}")]),
        Panel(title="Workers", unit="none", about="Worker processes alive, by replica.",
              queries=[Query("dapo_reward_workers", "{{instance}}")]),
        Panel(title="Workers replaced", room=1.0, about="Per second, by cause.",
              queries=[Query(f"{rate('dapo_reward_worker_restarts_total', 'cause')} or on() vector(0)", "{{cause}}")]),
        Panel(title="Verdicts remembered", about="Per second: given before, taken from the cache.",
              queries=[Query(f"{rate('dapo_reward_cache_hits_total')} or on() vector(0)", "from the cache")]),
    ]  # fmt: skip
    rows = [("Verdicts", verdicts), ("Reward", terms), ("Service", service)]
    return build("Rewards", "dapo-rewards", "Do the verifiers work?", rows)
