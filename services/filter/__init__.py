"""Scored groups and feedback in, prompts and batches out; owns the data set and the staleness budget."""
