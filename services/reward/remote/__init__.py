"""Verifiers behind a network address: an LLM judge and a plain HTTP reward."""
