"""A registry of several nodes, parts of which are killed at random while harnesses work."""
