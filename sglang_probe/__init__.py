"""SGLang Probe: where every rank's GPU memory went, told by SGLang's own start-up functions.

Importing this package does nothing; the doorbell (`sitecustomize`) imports it in every Python process.
"""

__version__ = "0.1.0"
