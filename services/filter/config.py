"""Section [filter]."""

from dataclasses import dataclass, field
from typing import Literal

from services.filter.judging import Judging, TermConfig


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Where prompts come from and which groups are trained on."""

    data: str | tuple[str, ...]
    """Training rows, one data set or several: a JSONL, JSON, Parquet or CSV file, a Hugging Face folder or name
    (`openai/gsm8k?config=main`), or `gym:NAME?size=500` for a reasoning-gym data set."""
    eval_data: str = ""
    """Held-out rows, named in the same way; empty: no evaluation, or `eval_rows` of `data`."""
    eval_rows: int = 0
    """Rows of `data` to hold out, chosen by a hash of the prompt, when `eval_data` is empty."""
    eval_every: int = 0
    """Versions between evaluations; 0: only the first and the last version."""
    eval_samples: int = 1
    """Answers to every held-out row; more than one give pass@k beside the mean accuracy (avg@k)."""
    eval_temperature: float | None = None
    """Temperature of an evaluation; default: 0 (greedy) for one answer a row, else the run's."""
    verifier: str = ""
    """Verifier of rows that name none; empty: `math`, and for rows in verl's schema what their data_source needs."""
    verifiers: dict[str, str] = field(default_factory=dict)
    """Verifier by the value of a row's field, before `verifier`: `{"openai/gsm8k" = "math", "trivia" = "choice"}`."""
    verifiers_by: str = "data_source"
    """That field; `a.b` is field b of the object in field a."""
    terms: dict[str, float | TermConfig] = field(default_factory=dict)
    """Reward terms and their weights, for rows that do not say otherwise: `{length = 0.1}`, or one with a verifier of
    its own, `{form = {verifier = "regex", gold = "^<think>", weight = 0.2}}`: docs/rewards.md."""
    metric: str = "accuracy"
    """What the answers of a group must differ in: `accuracy`, or the name of a term with a verifier."""
    system: str = ""
    """System prompt put before every row that has none."""
    suffix: str = ""
    """Text added to the last user message, for instance how to give the answer."""
    on_bad_row: Literal["fail", "drop"] = "fail"
    """Whether a row that cannot be used stops the run or is left out."""
    on_long_prompt: Literal["drop", "fail", "truncate_left", "truncate_right"] = "drop"
    """What becomes of a prompt of more than [run] max_prompt_tokens: `truncate_left` cuts off the beginning of its last
    user message, `truncate_right` the end."""
    min_survivors: int = 2
    """Samples with a verdict that a group needs to be trained."""
    dynamic_sampling: bool = True
    """Whether a group whose answers are all alike is dropped and replaced; off, for comparisons: it is trained too."""
    pass_band: tuple[float, float] = (0.0, 1.0)
    """Least and greatest pass rate of a group that is trained; a group whose answers are all alike never is."""
    sampling: Literal["uniform", "signal", "gradient_variance", "high_gradient_variance", "weights"] = "uniform"
    """What decides how often a category is asked: nothing (plain DAPO), where groups are likely to be kept, steady or
    strong gradients, or `weights`. With all but `uniform` the prompts of a category are chosen by their pass rates."""
    category: str = "data_source"
    """Field of a row that names its category; `set`: the data set it comes from."""
    weights: dict[str, float] = field(default_factory=dict)
    """Category -> its share of the prompts, for `weights`; with `uniform` a fixed mixture, shuffled."""
    sampling_preset: Literal["auto", "small", "medium", "large", "article"] = "auto"
    """Temperatures, period and decay, by the size of the data unless it is named: sampling/stages.py."""
    sampling_period: int = 0
    """Steps between two updates of the categories' probabilities; 0: the preset's."""
    sampling_decay: float = 0.0
    """Decay of the averages, per group, and of what is known of a prompt, per version; 0: the preset's."""
    visit_all: bool = True
    """Whether every prompt is asked at least once in every epoch of four draws a prompt."""
    rest_epochs: int = 0
    """Whole epochs that a solved prompt rests, beyond the one in which it was solved."""
    reserve: int = 2
    """Prompts kept ready beyond what waiting rollouts ask for."""
    low_keep_rate: float = 0.1
    """Share of kept groups, of the last 100, below which an alarm is raised."""
    max_dropped_in_a_row: int = 0
    """Groups dropped one after the other, with none kept, that stop the run; 0: no cap."""
    excerpts: int = 2
    """Groups of each kind (trained, dropped, truncated, error, held-out) whose texts are kept for reading, of every
    fortieth part of the run, in samples.jsonl; 0: none."""
    metrics_port: int = 9120
    """Port of /metrics; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    @property
    def sets(self) -> tuple[str, ...]:
        """The training sets, however many."""
        return (self.data,) if isinstance(self.data, str) else self.data

    @property
    def judging(self) -> Judging:
        """What rows are judged by that do not say."""
        return Judging(
            verifier=self.verifier, verifiers=self.verifiers, by=self.verifiers_by, terms=self.terms
        )  # fmt: skip

    def greedy_or(self, temperature: float) -> float:
        """The temperature of an evaluation, in a run of that temperature."""
        if self.eval_temperature is not None:
            return self.eval_temperature
        return 0.0 if self.eval_samples == 1 else temperature

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if not self.data or not all(self.sets):
            raise ValueError("`data` must name a data set, for instance a JSONL, Parquet or CSV file")
        self.judging.check()
        if self.min_survivors < 2:
            raise ValueError("`min_survivors` must be at least 2: one sample has nothing to be compared with")
        if not 0 <= self.low_keep_rate <= 1:
            raise ValueError("`low_keep_rate` must be a share, from 0 to 1")
        for key in (
            "eval_rows",
            "eval_every",
            "reserve",
            "max_dropped_in_a_row",
            "sampling_period",
            "rest_epochs",
            "excerpts",
        ):
            if getattr(self, key) < 0:
                raise ValueError(f"`{key}` must be 0 or more")
        if not 0 <= self.pass_band[0] < self.pass_band[1] <= 1:
            raise ValueError("`pass_band` must be two shares, the lower one first, for instance [0.1, 0.9]")
        self._check_evaluation()
        self._check_sampling()

    def _check_evaluation(self) -> None:
        if not 1 <= self.eval_samples <= 4096:
            raise ValueError("`eval_samples` must be at least 1 and at most 4096")
        if self.eval_temperature is not None and self.eval_temperature < 0:
            raise ValueError("`eval_temperature` must be 0 or more")
        if self.eval_samples > 1 and self.eval_temperature == 0:
            raise ValueError("`eval_temperature` must be above 0 for several answers: greedy ones are all the same")

    def _check_sampling(self) -> None:
        if self.sampling == "weights" and not self.weights:
            raise ValueError('`sampling` = "weights" needs `weights`, a share for every category')
        if self.weights and (min(self.weights.values()) < 0 or not any(self.weights.values())):
            raise ValueError("`weights` must be 0 or more, and not all 0")
        if not 0 <= self.sampling_decay < 1:
            raise ValueError("`sampling_decay` must be from 0 to below 1")
