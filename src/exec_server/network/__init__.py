"""The managed network: a process gets a proxy of its own, which decides what it may reach.

    hosts.py              PURE  the one form of a host, for rules, resolver and reports
    addresses.py          PURE  addresses that are not public, and those that carry another one
    rules.py              PURE  patterns, and the order of the rules
    blocked.py            PURE  verdicts, and what a process is told about a refused attempt
    proxy_environment.py  PURE  the variables that point programs at a proxy
    http_heads.py         PURE  one HTTP head: its target, and its headers for the next hop
    decider.py                  an attempt -> addresses to connect to, or a refusal; asks the client
    hang_up.py                  notices that a process hangs up, also while an attempt is decided
    upstream.py                 connections to addresses, or through the server's own proxy
    relay.py                    bytes from one socket to another, in the kernel where possible
    http_reader.py              reads the messages of one side of an HTTP exchange
    exchange.py                 one HTTP request passed on, and its answer back
    http_proxy.py               one connection that speaks HTTP or CONNECT
    socks.py                    one connection that speaks SOCKS5
    datagrams.py                the datagrams of a SOCKS5 association
    proxy.py                    listeners and connections of one process, from start to close
    namespace_listener.py       a program that makes listeners in another network namespace
    bridge.py                   those listeners, for a sandbox that waits for them

A host is normalised once, where it comes in. A name is resolved once: the decision names addresses,
and only those are connected to.
"""
