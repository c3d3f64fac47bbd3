"""Where is the bottleneck? Stages busy, starved or blocked, queues, ages by hop, throughput, the engine."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.panels import Panel, Query, build, quantile, rate

STAGES = ("rollout", "reward", "filter", "learner", "broker")


def stage(name: str) -> Panel:
    """Where one stage's time goes; all three add up to 1."""
    seconds = f'dapo_stage_seconds_total{{stage="{name}"'
    whole = f"sum(rate({seconds}}}[$__rate_interval]))"
    return Panel(
        title=name.capitalize(), unit="percentunit", high=1.0, stacked=True,
        width=12 if name in ("learner", "broker") else 8,
        about="Busy works, starved waits for input, blocked waits for room. The bottleneck is busy while the stage "
        "after it is starved and the one before it blocked.",
        queries=[Query(f'sum(rate({seconds}, state="{state}"}}[$__rate_interval])) / {whole}', state)
                 for state in ("busy", "starved", "blocked")],
    )  # fmt: skip


def engine(operation: str, name: str) -> str:
    """A number of vLLM by replica. The colon in its names arrives as an underscore at some versions of Prometheus."""
    return f'{operation} by (instance) ({{__name__=~"vllm[:_]{name}"}})'


def dashboard() -> Dashboard:
    """From the first prompt to the last version."""
    where = [stage(name) for name in STAGES]
    queues = [
        Panel(title="Items in the queues", about="Ready and leased, by queue. A queue that grows stands before the "
              "bottleneck.", queries=[Query('sum by (queue) (dapo_queue_items{state=~"ready|leased"})', "{{queue}}")]),
        Panel(title="Oldest item", unit="s", about="How long the oldest unsettled item of a queue has waited: the age "
              "by hop.", queries=[Query("max by (queue) (dapo_queue_oldest_seconds)", "{{queue}}")]),
        Panel(title="Groups under way", about="Issued and neither trained nor dropped; bounded by max_staleness.",
              queries=[Query("max(dapo_filter_outstanding_groups)", "outstanding"),
                       Query("max(dapo_filter_pool_groups)", "accepted, waiting for a batch"),
                       Query('max(dapo_filter_groups{fate="batched"})', "in a batch")]),
    ]  # fmt: skip
    throughput = [
        Panel(title="Tokens per second", about="Response tokens, by replica and trained.",
              queries=[Query(rate("dapo_rollout_tokens_total", "instance"), "sampled by {{instance}}"),
                       Query(rate("dapo_learner_tokens_total"), "trained")]),
        Panel(title="The learner's step", unit="s", stacked=True, about="Seconds of each phase per second.",
              queries=[Query(rate("dapo_learner_phase_seconds_total", "phase",
                                  '{phase=~"wait|train|publish|checkpoint"}'), "{{phase}}")]),
        Panel(title="Weight update of a rollout", unit="s", about="Mean seconds by phase; requests in flight wait for "
              "all but verify.",
              queries=[Query("sum by (phase) (rate(dapo_rollout_load_seconds_sum[5m])) "
                             "/ (sum by (phase) (rate(dapo_rollout_load_seconds_count[5m])) > 0)", "{{phase}}")]),
        Panel(title="Versions behind", room=1.0, unit="none", about="The learner's version less that of each rollout.",
              queries=[Query('scalar(max(dapo_learner_step)) - max by (instance) (dapo_policy_version{role="rollout"})',
                             "{{instance}}")]),
        Panel(title="Answers in the engine", about="vLLM's own numbers, by replica.",
              queries=[Query(engine("sum", "num_requests_running"), "running, {{instance}}"),
                       Query(engine("sum", "num_requests_waiting"), "waiting, {{instance}}")]),
        Panel(title="KV cache in use", unit="percentunit", high=1.0, about="Near 1 requests are preempted: fewer "
              "max_groups, or more memory.",
              queries=[Query(engine("max", "kv_cache_usage_perc"), "{{instance}}")]),
    ]  # fmt: skip
    machines = [
        Panel(title="Processes up", about="Targets that Prometheus reaches, by service.", unit="none",
              queries=[Query("sum by (job) (up)", "{{job}}")]),
        Panel(title="Broker", about="Items given and settled per second.",
              queries=[Query(rate("dapo_broker_given_total"), "given"),
                       Query(rate("dapo_broker_settled_total"), "settled")]),
        Panel(title="Commit of the broker", unit="s", about="Time to commit one turn of its loop.",
              queries=[Query(quantile("dapo_broker_commit_seconds", 0.5), "median"),
                       Query(quantile("dapo_broker_commit_seconds", 0.99), "99 %")]),
        Panel(title="Trouble", room=1.0, about="Leases that ran out, dead letters, messages refused; per second. Look "
              "in the logs of rollout and reward.",
              queries=[Query(rate("dapo_broker_leases_expired_total"), "leases expired"),
                       Query(f"{rate('dapo_broker_dead_letters_total')} or on() vector(0)", "dead letters"),
                       Query(f"{rate('dapo_broker_refused_total')} or on() vector(0)", "refused"),
                       Query(f"{rate('dapo_rollout_failures_total')} or on() vector(0)", "rollout failures")]),
        Panel(title="Memory", unit="bytes", about="Resident, by process.",
              queries=[Query('process_resident_memory_bytes{job!="prometheus"}', "{{job}} {{instance}}")]),
        Panel(title="Processors", unit="none", about="Processors used, by process.",
              queries=[Query('rate(process_cpu_seconds_total{job!="prometheus"}[$__rate_interval])',
                             "{{job}} {{instance}}")]),
    ]  # fmt: skip
    gpus = [
        Panel(title="GPU busy", unit="percent", high=100.0, width=12, about="Of dcgm-exporter, where it runs.",
              queries=[Query("max by (gpu) (DCGM_FI_DEV_GPU_UTIL) or on() vector(0)", "GPU {{gpu}}")]),
        Panel(title="GPU memory", unit="mbytes", width=12, about="Of dcgm-exporter, where it runs.",
              queries=[Query("max by (gpu) (DCGM_FI_DEV_FB_USED) or on() vector(0)", "GPU {{gpu}}")]),
    ]  # fmt: skip
    rows = [("Where the time goes", where), ("Queues", queues), ("Throughput", throughput), ("Processes", machines),
            ("GPUs", gpus)]  # fmt: skip
    return build("Pipeline", "dapo-pipeline", "Where is the bottleneck?", rows)
