"""The numbers of a run, also in TensorBoard or Weights & Biases: followers of its files that no service waits for."""
