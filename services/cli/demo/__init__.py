"""What the demo needs and a fresh machine lacks: a tiny language model, and problems for it."""
