"""How each role is read: pure functions from a call to the attributes of its events."""
