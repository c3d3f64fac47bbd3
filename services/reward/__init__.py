"""Groups in, scored groups out; owns a pool of killable verifier processes."""
