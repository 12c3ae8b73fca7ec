"""Build hook: all metadata stands in pyproject.toml; this file will build the compiled core."""

from setuptools import setup

setup()
