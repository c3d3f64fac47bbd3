"""Verifiers of short texts, one small file each; all look at the answer, not at the thinking."""
