"""The load generator: a C program, compiled on request, and the Python that runs it."""
