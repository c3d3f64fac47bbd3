"""Prompts in, groups of sampled responses out; owns the inference engine."""
