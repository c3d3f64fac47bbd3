"""Weight store in, the same bytes out over ZeroMQ, for rollouts that cannot read the learner's folder."""
