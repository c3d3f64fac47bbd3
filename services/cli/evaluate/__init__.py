"""A checkpoint and held-out rows in; avg@k and pass@k out, through the same engine and verifiers as a run."""
