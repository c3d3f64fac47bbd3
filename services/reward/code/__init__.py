"""A program and its tests in, a verdict out. The program runs in a sandbox (box/); expected outputs never enter it."""
