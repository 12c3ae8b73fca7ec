"""Honest measurement of servery's own flags, of servery beside other servers, and of an application of yours.

``python -m benchmarks --help`` in a checkout; docs/benchmarks.md explains. Nothing here is part of a wheel.
"""
