"""The benchmark: this server and the reference, measured side by side over the wire."""
