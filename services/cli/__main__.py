"""`dapo VERB ...`: an index. A verb's module is imported when the verb is typed, so `dapo --help` answers at once."""

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence

VERBS = {
    "demo": ("services.cli.demonstration", "build a tiny model and its data, train it here, end with a verdict"),
    "run": ("services.cli.run", "all services of a configuration on this machine, supervised, until done"),
    "prepare": ("services.cli.prepare", "make a run ready for services that something else starts: containers"),
    "wait": ("services.cli.wait", "wait for the end of a run that something else started, then judge it"),
    "broker": ("services.broker.__main__", "one service: the durable queues between the others"),
    "rollout": ("services.rollout.__main__", "one service: prompts to groups of samples, with vLLM"),
    "reward": ("services.reward.__main__", "one service: groups to verdicts and rewards"),
    "filter": ("services.filter.__main__", "one service: gives prompts, closes batches"),
    "learner": ("services.learner.__main__", "one service: batches to policy versions"),
    "weights": ("services.weights.__main__", "one service: the weight store over ZeroMQ, for rollouts elsewhere"),
    "audit": ("services.cli.audit.__main__", "check that a run lost nothing and trained nothing twice or too late"),
    "dead": ("services.cli.letters", "items that nobody could finish: list, show, retry, drop"),
    "replay": ("services.learner.replay", "train a run's recorded batches again and compare the weights, bit for bit"),
    "top": ("services.cli.top", "what a run does now: stages, queues, ages, rewards, alarms, last events"),
    "report": ("services.cli.report.main", "one HTML page of a run, or of two side by side"),
    "track": ("services.cli.trackers.main", "put a run into TensorBoard or Weights & Biases"),
    "sampling": ("services.cli.sampling_plot", "draw which categories a run took its prompts from, and why"),
    "verify": ("services.reward.offline", "judge a JSONL file of answers: one verdict a line, a summary last"),
    "eval": ("services.cli.evaluate.main", "avg@k and pass@k of a model or a run's policy on held-out rows"),
    "export": ("services.cli.export", "a Hugging Face folder of a run's policy"),
    "doctor": ("services.learner.doctor", "check the numerics of the loss on this hardware (--loss)"),
    "keys": ("services.cli.keys", "CURVE key pairs of every role, for runs beyond one machine"),
    "bench": ("services.cli.bench", "measure a number that the documentation quotes (repository only)"),
    "data check": ("services.filter.check", "rows, duplicates and refusals of a data file, with row numbers"),
}
"""Verb -> module whose `main(argv)` carries it out, and one line of help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one verb; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = next((v for v in (" ".join(words[:2]), " ".join(words[:1])) if v in VERBS), None)
    if verb is not None:
        try:
            return int(importlib.import_module(VERBS[verb][0]).main(words[len(verb.split()) :]))
        except KeyboardInterrupt:
            return 130
    parser = _parser()
    if not words:
        parser.print_help()
        return 2
    parser.parse_known_args(words[:1])
    print(f"dapo: unknown verb `{words[0]}`{_nearest(words)}; `dapo --help` lists them", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    return argparse.ArgumentParser(
        prog="dapo",
        usage="dapo VERB [argument ...]     (`dapo VERB --help` explains one)",
        description="Trains language models on verifiable rewards with DAPO, as a pipeline of processes.",
        epilog="\n".join(["verbs:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _nearest(words: Sequence[str]) -> str:
    near = [difflib.get_close_matches(" ".join(words[:length]), VERBS, n=1) for length in (2, 1)]
    return f", did you mean `{(near[0] or near[1])[0]}`?" if any(near) else ""


if __name__ == "__main__":
    sys.exit(main())
