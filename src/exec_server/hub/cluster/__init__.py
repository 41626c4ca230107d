"""Several nodes that are one registry."""
