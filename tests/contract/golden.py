"""One of every message that travels between services, and its bytes as golden_bytes.json keeps them.

python -m tests.contract.golden        writes the file anew: a deliberate change of the wire
"""

import json
from pathlib import Path

import msgspec

from common.messages import (
    Batch,
    ChatMessage,
    Feedback,
    Group,
    GroupFeedback,
    Policy,
    Prompt,
    RunState,
    Sample,
    Sampling,
    Scored,
    Span,
    Task,
    Term,
    Verdict,
)

FILE = Path(__file__).parent / "golden_bytes.json"
PLAIN = Task(verifier="math", gold="72", data_source="openai/gsm8k")
FULL = Task(
    verifier="choice", gold="B", tests="[]", data_source="quiz", metadata='{"choices": ["a", "b"]}',
    terms=[
        Term(name="repetition", weight=0.5),
        Term(name="format", weight=0.25, verifier="regex", gold="^<think>", metadata="{}"),
    ],
)  # fmt: skip


def prompt(task: Task) -> Prompt:
    """A prompt of that task."""
    return Prompt(
        id="3/001742", row=17, chat=[ChatMessage(role="user", content="How many?")], task=task,
        sampling=Sampling(n=2, temperature=1.0, max_tokens=64, seed=7), min_version=4, issued_at=1.5,
    )  # fmt: skip


def messages() -> dict[str, msgspec.Struct]:
    """The messages by name."""
    samples = [
        Sample(num_tokens=3, finish="stop", spans=[Span(version=4, start=0, end=3)], text="72"),
        Sample(num_tokens=1, finish="length", spans=[Span(version=5, start=0, end=1)], text="7"),
    ]
    group = Group(prompt=prompt(FULL), samples=samples, replica="rollout-0", seconds=0.5)
    verdicts = [
        Verdict(verdict="correct", score=1.0, reason="same as box", seconds=0.25, scores={"format": 1.0}),
        Verdict(verdict="error", reason="worker died"),
    ]
    scored = Scored(group=group, verdicts=verdicts, terms=[{"task": 1.0, "overlong": -0.5}, {}])
    feedback = GroupFeedback(id="3/001742", gradient_variance=0.5, clip_share=0.25, mean_rho=1.0)
    return {
        "Prompt": prompt(PLAIN),
        "Group": group,
        "Scored": scored,
        "Batch": Batch(step=4, groups=[scored], totals={"issued": 9.0}),
        "Feedback": Feedback(step=4, version=5, groups=[feedback]),
        "Policy": Policy(version=5, digest="00ff", path="weights/v000005"),
        "RunState": RunState(phase="running", step=5, message=""),
    }


def current() -> dict[str, str]:
    """The bytes of the messages as they are now, in hexadecimal."""
    return {name: msgspec.msgpack.encode(message).hex() for name, message in messages().items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(current(), indent=1) + "\n")
