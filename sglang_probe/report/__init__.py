"""Pure renderers: what the timeline knows in, text out. Nothing here reads a file, a clock or the terminal."""
