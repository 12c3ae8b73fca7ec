"""Cases for tests: data, no code."""
