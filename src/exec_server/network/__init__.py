"""The managed network: a proxy of its own for a process, and what it lets through.

    rules.py        PURE  patterns, the order of the rules, addresses that are not public
    blocked.py      PURE  what a process is told about a refused attempt
    environment.py  PURE  the variables that point programs at a proxy
    hops.py         PURE  one HTTP head: its target, and its headers for the next hop
    decider.py            an attempt -> addresses to connect to, or a refusal; asks the client
    upstream.py           the server's own proxy, and connecting
    relay.py              bytes from one socket to another, by the kernel where it can
    incoming.py           what one side of an HTTP exchange sends
    exchange.py           one HTTP request passed on, and its answer back
    http_proxy.py         one connection that speaks HTTP or CONNECT
    socks.py              one connection that speaks SOCKS5
    datagrams.py          the datagrams of a SOCKS5 association
    proxy.py              listeners and connections of one process, from its start to its close
    inside.py             a program that makes listeners in another network namespace
    bridge.py             those listeners, for a sandbox that waits for them

Whoever decides gives addresses, and only those are connected to: a name is resolved once.
"""
