"""The fake device and its rules: standard library only, nothing of the rest of the project.

A fake site carries a copy of this package under the name `fakegpu`: the fake torch needs nothing else installed.
"""
