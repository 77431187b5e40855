"""The four layers; see the package's docstring."""
