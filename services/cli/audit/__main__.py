"""`dapo audit RUN`: JSON on stdout; exit status 0 if all invariants hold, 1 if not, 2 without a run."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.cli.audit.judging import Case, check_ages, check_fates, check_training, check_versions, counts
from services.cli.audit.ledger import read_ledger
from services.cli.audit.lineage import read_lineage
from services.cli.audit.reading import NothingToAudit, read_decisions, read_limits, read_queues, read_streams
from services.cli.audit.sampling import check_streams, read_samplings


def main(argv: Sequence[str] | None = None) -> int:
    """Audit one run folder; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dapo audit", description="Check a stopped run: nothing lost, nothing twice.")
    parser.add_argument("run", type=Path, help="run folder, for instance runs/demo")
    arguments = parser.parse_args(argv)
    try:
        report = audit(arguments.run)
    except NothingToAudit as error:
        print(f"dapo audit: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2))
    return 0 if report["ok"] else 1


def audit(run: Path) -> dict[str, Any]:
    """The account of a run and the violations of invariants 1 to 4."""
    limits, queues, streams = read_limits(run), read_queues(run), read_streams(run)
    roles = ("filter", "learner", "rollout", "broker")
    by_role = {role: [stream for stream in streams if stream.role == role] for role in roles}
    read_decisions(by_role["broker"], queues)
    case = Case(
        ledger=read_ledger(by_role["filter"], queues.registers.get("filter", 0)),
        lineage=read_lineage(by_role["learner"]),
        samplings=read_samplings(by_role["rollout"]),
        queues=queues,
        limits=limits,
    )
    violations = [f"damaged: {stream.damage}" for stream in streams if stream.damage]
    for check in (check_fates, check_training, check_ages, check_versions):
        violations += check(case)
    violations += check_streams(by_role["rollout"])
    return {**counts(case), "ok": not violations, "violations": violations}


if __name__ == "__main__":
    sys.exit(main())
