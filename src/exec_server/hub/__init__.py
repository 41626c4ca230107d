"""The registry and the rendezvous: where executors and harnesses find each other."""
