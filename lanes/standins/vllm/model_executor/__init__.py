"""Holds the layers; see the package's docstring."""
