"""The command line: one file per command, whose docstring is its help; `main` holds the table of them."""
