"""Section [reward]."""

from dataclasses import dataclass, field

from common.messages import PYTHON
from services.reward.limits import Limits
from services.reward.remote.config import HttpConfig, JudgeConfig


@dataclass(frozen=True, kw_only=True)
class CodeConfig:
    """[reward.code]: what a program of the model may use when the verifier `code` runs it."""

    case_timeout_s: float = 6.0
    """Processor seconds of one test; the wall clock allows twice that and a second."""
    timeout_s: float = 60.0
    """Wall-clock seconds of all tests of a program."""
    memory_mib: int = 1024
    """Address space of the program, its interpreter included."""
    output_mib: int = 8
    """What it may print, or return, in one test."""
    files_mib: int = 16
    """What it may write to its folder in one test."""
    unconfined: bool = False
    """Run programs where neither seccomp nor bubblewrap can be had: only where the machine is thrown away after."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for key in ("case_timeout_s", "timeout_s", "memory_mib", "output_mib", "files_mib"):
            if getattr(self, key) <= 0:
                raise ValueError(f"`code.{key}` must be above 0")

    def limits(self) -> Limits:
        """As a program is given them."""
        return Limits(
            case_s=self.case_timeout_s, total_s=self.timeout_s, memory_mib=self.memory_mib, output_mib=self.output_mib,
            files_mib=self.files_mib, unconfined=self.unconfined,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """How samples are judged and what a verdict pays."""

    replicas: int = 1
    """Reward processes that `dapo run` starts."""
    workers: int = 2
    """Verifier processes of one replica."""
    timeout_s: float = 5.0
    """Wall-clock limit of one verification; the worker that passes it is killed."""
    memory_mib: int = 2048
    """Address space of a worker beyond what it needs at start."""
    recycle_after: int = 5000
    """Verifications after which a worker is replaced."""
    recycle_mib: int = 512
    """Growth of a worker's memory after which it is replaced."""
    cache_size: int = 20_000
    """Verdicts that are remembered, for texts that come again; 0: none."""
    max_groups: int = 32
    """Groups one replica judges at a time."""
    retries: int = 3
    """Further tries of a verification that ended in an error, with growing pauses."""
    reward_correct: float = 1.0
    """Task reward of a correct sample."""
    reward_wrong: float = -1.0
    """Task reward of a wrong sample."""
    overlong_buffer: int | None = None
    """Lcache: the soft overlong punishment grows over the last Lcache tokens before Lmax; default Lmax / 5."""
    overlong_factor: float = 1.0
    """Greatest punishment; 0: off."""
    repetition_ngram: int = 8
    """Tokens in a row whose repetitions the term `repetition` counts."""
    functions: tuple[str, ...] = ()
    """Verifiers of yours that tasks may name: `python:package.module:function`."""
    code: CodeConfig = field(default_factory=CodeConfig)
    """Limits of the programs that the verifier `code` runs."""
    judge: JudgeConfig | None = None
    """The model that the verifier `judge` asks."""
    http: HttpConfig | None = None
    """The server that the verifier `http` asks."""
    metrics_port: int = 9140
    """Port of /metrics of replica 0, the next replicas count up; 0: any free port, -1: none."""
    metrics_host: str = "127.0.0.1"
    """Address that /metrics is bound to."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for key in (
            "replicas",
            "workers",
            "memory_mib",
            "recycle_after",
            "recycle_mib",
            "max_groups",
            "repetition_ngram",
        ):
            if getattr(self, key) < 1:
                raise ValueError(f"`{key}` must be at least 1")
        if self.timeout_s <= 0:
            raise ValueError("`timeout_s` must be above 0")
        if self.retries < 0 or self.cache_size < 0:
            raise ValueError("`retries` and `cache_size` must be 0 or more")
        if not all(name.startswith(PYTHON) for name in self.functions):
            raise ValueError("`functions` must be names of the form python:package.module:function")
        if self.overlong_buffer is not None and self.overlong_buffer < 1:
            raise ValueError(
                "`overlong_buffer` must be at least 1; to switch the punishment off set overlong_factor = 0"
            )
