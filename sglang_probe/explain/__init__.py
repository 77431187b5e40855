"""Timelines in; findings, differences and plans out. Pure functions, all of them."""
