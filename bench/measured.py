"""What the parts of a registry were measured to cost; docs/scaling.md says with which commands."""

from __future__ import annotations

from bench.capacity import Cost, Costs

_KIB = 1024

MEASURED = Costs(
    # `bench/cluster.py entering`, three nodes and three NATS servers.
    registration=Cost(node=1.8e-3, nats=0.02e-3, postgres=0.98e-3),
    socket=Cost(node=2.8e-3, nats=1.1e-3, postgres=0.66e-3),
    # The request by way of any node; the socket at the executor's, as one node alone has it.
    connect=Cost(node=4.6e-3, nats=0.41e-3, postgres=1.4e-3),
    connect_across=Cost(node=6.5e-3, nats=1.1e-3, postgres=1.6e-3),
    # `bench/cluster.py relay`; of three NATS servers a frame passes one, or more often two.
    one_node=Cost(node=1.5),
    two_nodes=Cost(node=6.3, nats=6.9),
    # `bench/nats_load.py beats`, with what it costs to send them.
    beat=Cost(node=204e-6, nats=93e-6),
    # `bench/cluster.py idle`, 10,000 executors and as many tokens.
    idle=Cost(node=7.4e-6, nats=0.1e-6, postgres=0.7e-6),
    executor_bytes=37.2 * _KIB,
    # An empty node, as `ps` shows it.
    node_bytes=70e6,
    # `bench/nats_load.py subscriptions` and `owners`.
    nats_bytes=20e6,
    subscription_bytes=1160,
    subscribing_seconds=26e-6,
    owner_bytes=2093,
    owner_disk_bytes=489,
    owner_writes=7000,
    owner_reads=7400,
    # `bench/store_load.py`.
    environment_bytes=2104,
    event_bytes=225,
)
