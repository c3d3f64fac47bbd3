"""Batches in, policy versions and feedback out; owns the model, the optimizer and the checkpoints."""
