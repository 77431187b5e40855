"""Stand-in for vLLM, from which SGLang up to 0.5.2 takes four layers on a CPU without AMX; it gets its own back."""
