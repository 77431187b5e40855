"""What setuptools would have written."""

from __future__ import annotations

__version__ = version = "0.5.14"
__version_tuple__ = version_tuple = (0, 5, 14)
__commit_id__ = commit_id = None
