"""What another start would have: a run's own formula replayed with other settings, and solved backwards."""
