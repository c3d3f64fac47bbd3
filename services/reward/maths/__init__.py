"""Is the final answer of a text the gold answer? Extraction, normalisation, equivalence; nothing is ever evaluated."""
