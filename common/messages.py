"""The payloads that travel between services, in the order they flow.

    filter --Prompt--> rollout --Group--> reward --Scored--> filter --Batch--> learner --Feedback--> filter

A queue item is `[header, array frame, ...]`: the header is one of these classes in MessagePack, the arrays are raw
little-endian frames (common/codec.py). A renamed field is a wire change (tests/contract/test_golden_bytes.py).

Shapes: P prompt tokens, G samples of a group, T_i tokens of sample i, B groups of a batch.
"""

import sys
from typing import Annotated, Literal

from msgspec import Meta, Struct

Id = Annotated[str, Meta(min_length=1, max_length=128)]
ShortText = Annotated[str, Meta(max_length=4096)]
LongText = Annotated[str, Meta(max_length=1 << 22)]
Version = Annotated[int, Meta(ge=0, le=2**40)]
Size = Annotated[int, Meta(ge=0, le=1 << 24)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""No NaN, no infinity: neither compares as the bounds ask."""
Numbers = Annotated[dict[ShortText, Finite], Meta(max_length=1024)]

PROMPTS, GROUPS, SCORED, BATCHES, FEEDBACK = "prompts", "groups", "scored", "batches", "feedback"
"""The queues, in flow order."""
TURNS = "turns"
"""The queue of one item: the right to load a version, where replicas do it one after the other."""
VERIFIERS = (
    "math", "exact", "regex", "choice", "json_schema", "classification", "bleu", "chrf", "rouge", "reasoning_gym",
    "code", "judge", "http",
)  # fmt: skip
"""The verifiers that a row may name; services/reward/verifiers.py has them, docs/rewards.md explains them."""
PYTHON = "python:"
"""`python:package.module:function` is a verifier too, one that only a configuration may name."""
POLICY, RUN = "policy", "run"
"""The registers: a `Policy` written by the learner, a `RunState` written by the filter."""


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One turn of the prompt."""

    role: ShortText
    content: LongText


class Term(Struct, frozen=True, kw_only=True):
    """A named part of the reward beside, or in place of, its default: services/reward/shaping.py."""

    name: ShortText
    weight: Finite = 1.0
    verifier: ShortText = ""
    """Who judges it; empty for the terms that no verifier is needed for (`task`, `overlong`, ...)."""
    gold: LongText = ""
    metadata: LongText = ""
    """What is empty here is that of the task."""


class Task(Struct, frozen=True, kw_only=True):
    """What a verifier needs to judge an answer."""

    verifier: ShortText
    gold: LongText = ""
    tests: LongText = ""
    """Unit tests as JSON text, for code."""
    data_source: ShortText = ""
    metadata: LongText = ""
    """What else the verifier needs, as JSON text: the choices, a schema, an entry of reasoning-gym ..."""
    terms: Annotated[list[Term], Meta(max_length=64)] = []
    """Terms that the row or [filter] terms asks for."""


class Sampling(Struct, frozen=True, kw_only=True):
    """How the engine samples the group."""

    n: Annotated[int, Meta(ge=1, le=4096)]
    temperature: Finite
    """0 is greedy (evaluation only)."""
    max_tokens: Size
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Prompt(Struct, frozen=True, kw_only=True, tag=True):
    """filter -> rollout. One row of the data set to be answered G times."""

    id: Id
    """`EPOCH/ORDINAL`, for instance `3/001742`; `eval/VERSION/ROW` for a held-out prompt."""
    kind: Literal["train", "eval"] = "train"
    row: Size
    chat: Annotated[list[ChatMessage], Meta(min_length=1, max_length=1024)]
    task: Task
    sampling: Sampling
    min_version: Version
    """s: no token may come from weights older than this."""
    issued_at: Finite = 0.0
    """Unix seconds, for display only."""


class Span(Struct, frozen=True, kw_only=True):
    """Tokens [start, end) of one sample were sampled by this policy version."""

    version: Version
    start: Size
    end: Size


class Sample(Struct, frozen=True, kw_only=True):
    """One response. Its tokens and log-probabilities are in the group's frames."""

    num_tokens: Size
    """T_i, including the final stop token if there is one."""
    finish: Literal["stop", "length"]
    spans: Annotated[list[Span], Meta(min_length=1, max_length=1 << 16)]
    text: LongText


class Group(Struct, frozen=True, kw_only=True, tag=True):
    """rollout -> reward. Frames: prompt_ids i32[P], token_ids i32[sum T_i], logprobs f32[sum T_i]."""

    prompt: Prompt
    samples: Annotated[list[Sample], Meta(min_length=1, max_length=4096)]
    replica: ShortText = ""
    seconds: Finite = 0.0
    """From start to end of the generation."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What a verifier says of one sample. `error` says nothing about the sample and never becomes a reward."""

    verdict: Literal["correct", "wrong", "error"]
    score: Finite = 0.0
    """Raw accuracy in [0, 1]; 0 for `error`, where it must not be used."""
    reason: ShortText = ""
    seconds: Finite = 0.0
    scores: Numbers = {}
    """Raw scores in [0, 1] of the further verifiers, by the names of their terms."""


class Scored(Struct, frozen=True, kw_only=True, tag=True):
    """reward -> filter. The group with a verdict and named reward terms per sample; frames of the group unchanged."""

    group: Group
    verdicts: Annotated[list[Verdict], Meta(max_length=4096)]
    terms: Annotated[list[Numbers], Meta(max_length=4096)]
    """Per sample the named terms whose sum is the shaped reward (`task`, `overlong`, ...); empty for `error`."""


class Batch(Struct, frozen=True, kw_only=True, tag=True):
    """filter -> learner. The B groups of one learner step, in order of issue; three frames per group."""

    step: Version
    groups: Annotated[list[Scored], Meta(min_length=1, max_length=1 << 16)]
    totals: Numbers
    """The filter's account when the batch closed: issued, trained, outstanding, dropped by reason, keep_rate."""


class GroupFeedback(Struct, frozen=True, kw_only=True):
    """What training on one group showed; the prompt sampler learns from it."""

    id: Id
    gradient_variance: Finite
    """Sum of squared policy-gradient coefficients in logit space over the group's trained tokens."""
    clip_share: Finite
    mean_rho: Finite


class Feedback(Struct, frozen=True, kw_only=True, tag=True):
    """learner -> filter. Batch `step` is trained and policy `version` (= step + 1) is published."""

    step: Version
    version: Version
    groups: Annotated[list[GroupFeedback], Meta(max_length=1 << 16)]


class Policy(Struct, frozen=True, kw_only=True, tag=True):
    """Register `policy`: the newest published version and where its weights are."""

    version: Version
    digest: ShortText
    path: ShortText
    """Folder of the version in the weight store."""


class RunState(Struct, frozen=True, kw_only=True, tag=True):
    """Register `run`: how far the run is."""

    phase: Literal["running", "done", "failed"]
    step: Version
    """Batches trained and published so far."""
    message: ShortText = ""
