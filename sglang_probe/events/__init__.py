"""The contract between the agent and everything that reads its events: names, fields, units, schema.

Standard library only: the agent imports this room inside SGLang's processes.
"""
