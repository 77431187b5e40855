"""The part that lives inside SGLang's processes. Nothing here may raise into the host, and nothing is imported early."""
