"""What the two releases' stand-ins share. SGLang has nothing of this name."""
