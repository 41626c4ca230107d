"""Every size, timeout and retention window, in one frozen Struct.

The defaults are those of the reference server unless a comment says otherwise.
"""

from __future__ import annotations

import msgspec

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    # The wire.
    frame_bytes: int = 16 * MIB
    message_bytes: int = 64 * MIB
    json_values: int = 262_144
    json_depth: int = 127
    # Received messages that wait behind a running request before the socket is no longer read.
    backlog_messages: int = 128
    backlog_bytes: int = 64 * MIB
    # Requests that wait for a slot of a concurrent lane. The reference has no bound here; ours is
    # far beyond what clients send, and keeps a hostile one from filling the memory.
    waiting_requests: int = 16_384
    # What a client leaves unread before its next requests wait. Control requests are short, so a
    # client that reads nothing can still end what it has started.
    unread_answer_bytes: int = 4 * MIB
    # A request line with its headers; the upgrade of a client of ours needs 200 bytes.
    http_head_bytes: int = 16 * KIB
    http_head_timeout: float = 10.0

    # Keepalive. The reference never looks at pongs; 60 s is what it grants its relay peers.
    ping_interval: float = 30.0
    pong_timeout: float = 60.0
    close_timeout: float = 1.0

    # Sessions and scheduling.
    detached_session_seconds: float = 30.0
    # What a client may ask for instead with `session/retain`, so that work goes on while nobody is
    # there; for so many sessions at once, and so many ended processes in each.
    max_detached_session_seconds: float = 24 * 3600.0
    retained_sessions: int = 1024
    retained_processes: int = 64
    concurrent_requests: int = 1
    # What a client may ask for in `initialize`; the default stays strictly serial.
    max_concurrent_requests: int = 64

    # Processes.
    closed_process_seconds: float = 30.0
    retained_bytes: int = 1 * MIB
    # A chunk costs four JSON values and decoders accept 256 Ki of them, so replaying even
    # one-byte writes fits in one answer.
    retained_chunks: int = 50_000
    # Chunks are as small as the reference's while all output still fits the retention window,
    # so that paging and eviction behave as clients know them; then the pipe's whole capacity
    # is read at once, which costs half the CPU a byte.
    chunk_bytes: int = 8 * KIB
    bulk_chunk_bytes: int = 64 * KIB
    # Windows of output that the client acknowledges: the largest, and what all of them together
    # may have beyond what is retained of every process anyway.
    max_flow_window: int = 8 * MIB
    flow_total_bytes: int = 256 * MIB
    stdin_queue_writes: int = 128
    # The reference counts writes alone, of up to 48 MiB each; here the queue takes no further one
    # beyond this.
    stdin_queue_bytes: int = 64 * MIB
    remembered_write_ids: int = 4096
    default_rows: int = 24
    default_cols: int = 80
    snapshot_scope_bytes: int = 256
    shell_snapshots: int = 16
    shell_snapshot_bytes: int = 512 * KIB
    shell_snapshot_seconds: float = 10.0
    # Soft limit of open files that children get; None leaves them the server's own.
    child_descriptors: int | None = None

    # Files.
    read_file_bytes: int = 512 * MIB
    block_bytes: int = 1 * MIB
    file_handles: int = 128
    handle_id_bytes: int = 32
    directory_entries: int = 50_000
    walk_depth: int = 64
    walk_directories: int = 10_000
    walk_entries: int = 50_000
    walk_answer_bytes: int = 4 * MIB
    watched_paths: int = 64
    # Threads for what may wait: of all connections, and of one. The reference has 512 in all and
    # lets one connection take them.
    file_threads: int = 256
    file_threads_each: int = 16
    file_thread_idle: float = 10.0
    # Writes to FIFOs and devices that wait for somebody to read.
    special_writes: int = 64

    # Sandboxed file calls: confined helpers at once, calls that one of them works on, how long an
    # idle one stays, how long one may take to start, and any call.
    sandbox_helpers: int = 8
    sandbox_helper_calls: int = 32
    sandbox_helper_idle: float = 10.0
    sandbox_helper_start: float = 10.0
    sandbox_call: float = 600.0

    # Requests to other machines. A body that is not streamed is held whole; the reference has no
    # bound for it, nor for streams at once.
    http_body_bytes: int = 512 * MIB
    http_delta_bytes: int = 1 * MIB
    http_read_bytes: int = 256 * KIB
    http_answer_field_bytes: int = 512 * KIB
    http_streams: int = 1024

    # Configuration and capabilities of the executor.
    config_file_bytes: int = 4 * MIB
    capability_roots: int = 128
    capability_roots_at_once: int = 8
    capability_depth: int = 6
    capability_directories: int = 2000
    capability_entries: int = 20_000
    capability_file_bytes: int = 1 * MIB
    capability_root_bytes: int = 16 * MIB

    # The managed network of a process: connections to each listener of its proxy, HTTP heads, how
    # long one may take, a name its address, a connection to come about, and silence to end it.
    proxy_connections: int = 256
    proxy_head_bytes: int = 64 * KIB
    proxy_head_timeout: float = 60.0
    proxy_resolve_timeout: float = 2.0
    proxy_connect_timeout: float = 10.0
    proxy_idle_timeout: float = 900.0
    datagram_destinations: int = 64
    # Questions to one client that are open, and how much longer than it was given one may take.
    policy_questions: int = 256
    policy_grace: float = 5.0

    # Shutdown: how long trees get between SIGTERM and SIGKILL after the server vanished, and
    # how long an orderly stop waits for the keeper of the children.
    orphan_grace: float = 2.0
    keeper_stop_timeout: float = 5.0

    # The relay. A WebSocket message of the Noise relay, either way.
    relay_frame_bytes: int = 256 * KIB
    # Frames of a stream that may overtake one that is missing, and their payload.
    relay_reorder_frames: int = 64
    relay_reorder_bytes: int = 1 * MIB
    relay_streams: int = 128
    # Handshakes that wait for the registry's word, and how long one does.
    relay_validations: int = 32
    relay_validation_timeout: float = 10.0
    relay_authorization_bytes: int = 4 * KIB
    # After so many failed handshakes none is looked at for so long.
    relay_failures: int = 8
    relay_failure_pause: float = 10.0
    # The older relay, which the reference no longer serves: how far behind the first missing frame
    # repeats are still known, segments of unfinished messages, and frames until an ack goes alone.
    relay_seen_frames: int = 1024
    relay_segments: int = 4096
    relay_ack_frames: int = 32
    # A socket to the rendezvous that takes nothing for so long is given up.
    relay_write_timeout: float = 60.0

    # The executor's way to its rendezvous: one registration or verdict, the pauses between two
    # attempts to register (doubled four times, and up to half as much again), and those between two
    # sockets, which begin anew after one that lasted. An executor that holds sessions hurries:
    # harnesses look for theirs for 25 s and no longer.
    registry_timeout: float = 10.0
    registry_answer_bytes: int = 1 * MIB
    registry_pause: float = 0.5
    registry_max_pause: float = 5.0
    rendezvous_pause: float = 1.0
    rendezvous_max_pause: float = 30.0
    rendezvous_hurried_pause: float = 5.0
    rendezvous_lasting: float = 120.0
    # The harness's: one request, all of them for the first connection, and how often they are
    # repeated.
    bundle_timeout: float = 6.0
    bundle_window: float = 14.0
    bundle_retries: int = 4
    # Forwarding: until the destination has accepted, and the largest frame it is sent.
    forward_timeout: float = 10.0
    forward_frame_bytes: int = 8 * MIB

    # The registry and rendezvous. Bodies and headers of requests, and what may be named.
    hub_request_bytes: int = 64 * KIB
    hub_name_bytes: int = 128
    hub_stream_id_bytes: int = 1024
    # How long the URLs are good: the executor's is asked for anew when it is over; the harness's
    # is used at once, as is the authorization beside it.
    hub_executor_url_seconds: float = 24 * 3600.0
    hub_harness_url_seconds: float = 60.0
    # A new registration counts as present for so long, so that those it replaces do not come back
    # before its socket is there; the reference waits a second at most.
    hub_registration_grace: float = 15.0
    # Sockets in all, harnesses of one executor, and streams of one harness (the reference has one).
    hub_sockets: int = 20_000
    hub_harnesses: int = 256
    hub_harness_streams: int = 16
    # What waits for one reader: from the first number on its sender is not read where that harms
    # nobody else, at the second one the stream is reset; and what waits for everybody.
    hub_waiting_bytes: int = 1 * MIB
    hub_stream_bytes: int = 32 * MIB
    hub_executor_bytes: int = 64 * MIB
    hub_total_bytes: int = 512 * MIB
    # A stream that was silent for so long is not harmed when its executor's socket is not read.
    hub_quiet_seconds: float = 5.0
    # A socket that takes nothing for so long is dropped. It is less than the 60 s in which both
    # ends want their pings answered, which must not wait for somebody else.
    hub_write_timeout: float = 30.0
    # Failed attempts to say who one is: so many at once from one address, one more in so many
    # seconds, and addresses that are remembered.
    hub_failures: int = 10
    hub_failure_seconds: float = 6.0
    hub_failing_addresses: int = 10_000
    # How soon a revoked token's connections end, and how long what happened is remembered.
    hub_revocation_seconds: float = 1.0
    hub_audit_days: int = 90
    # What the state may take for an answer, and events that wait for it to come back.
    hub_store_timeout: float = 5.0
    hub_audit_waiting: int = 10_000
    # Requests and upgrades at work at once, and others that wait for their turn: twice as many of
    # those for whom a refusal is the end. How long a connect waits, and everybody else; clients
    # give up after 6 and 10 seconds. And how long one that waits for other nodes keeps its place.
    hub_admissions: int = 256
    hub_admissions_waiting: int = 2048
    hub_admission_seconds: float = 3.0
    hub_long_admission_seconds: float = 5.0
    hub_admission_lent: float = 1.0
    # Pairing: how long a code is good, wrong codes in a minute from everybody, and codes at once.
    hub_pairing_seconds: float = 300.0
    hub_pairing_failures: int = 30
    hub_pairings: int = 1000
    # Codes for machines without a token, where they get any: so many at once for one address and
    # for everybody, and one more in so many seconds.
    hub_open_offers: int = 10
    hub_open_offer_seconds: float = 30.0
    hub_all_open_offers: int = 100
    hub_all_open_offer_seconds: float = 6.0
    # The bus between nodes: how long it may take to come to be, and any answer of its servers; what
    # waits to be sent before more is lost; how often a server is asked whether it lives (at the
    # third time it is given up), the least pause between two attempts to find another one, and
    # after how long without any the whole connection is made anew.
    bus_start_timeout: float = 10.0
    bus_timeout: float = 5.0
    bus_waiting_bytes: int = 64 * MIB
    bus_ping_interval: float = 2.0
    bus_pause: float = 0.25
    bus_patience: float = 30.0
    # How long a new executor waits until its owner record is written, before it is served without
    # one. The servers of the records may elect a leader for several seconds.
    hub_ownership_seconds: float = 2.0
    # Between nodes: how often each says that it lives, how long it may be silent, and how long the
    # subscriptions of one that changes its server may be missing.
    hub_beat_seconds: float = 1.0
    hub_peer_seconds: float = 5.0
    hub_settle_seconds: float = 2.0
    # What a frame between nodes may wait for: bytes that the other one has not taken, how often an
    # unanswered packet is sent again, and how many times.
    hub_channel_window: int = 4 * MIB
    hub_channel_tick: float = 0.25
    hub_channel_patience: int = 40

    # The client.
    connect_timeout: float = 10.0
    initialize_timeout: float = 10.0
    info_timeout: float = 30.0
    status_timeout: float = 10.0
    calls_in_flight: int = 1024
    # After a lost connection: how long the session is tried to be resumed, which stays inside of
    # what a server keeps it, and the pause between two attempts.
    recovery_window: float = 25.0
    recovery_pause: float = 0.1
    # The pause grows up to this where the server keeps the session for longer than usual.
    recovery_max_pause: float = 5.0
    # One recovery read of a process with a window: short enough for links that never last.
    recovery_page_bytes: int = 512 * KIB
    # Recovery reads that are under way at once.
    recovery_reads: int = 64
    reorder_events: int = 256
    reorder_bytes: int = 1 * MIB
    event_bytes: int = 1 * MIB
    # The reference's client waits for ever; a minute is far beyond what a living server takes.
    call_timeout: float = 60.0
    # Output of one process that nobody has taken yet: from the first number on the connection is
    # no longer read while that harms nobody else, at the second one the rest is discarded.
    untaken_bytes: int = 1 * MIB
    untaken_max_bytes: int = 64 * MIB
    # The window that is asked for where the server lets its processes wait; 0 asks for none. More
    # brings nothing on a fast link, and this is 80 MB/s at a distance of 50 ms.
    flow_window: int = 4 * MIB
    # How long others wait for a consumer that is behind and takes nothing.
    reader_patience: float = 5.0
    # A larger write travels in pieces of this size, each with its own answer.
    write_bytes: int = 256 * KIB
    # Streamed HTTP bodies that nobody has taken yet, of all together; beyond it the next fails.
    untaken_body_bytes: int = 16 * MIB
    # A program that is spoken to by its stdin and stdout: from terminate to kill.
    program_kill_delay: float = 2.0


DEFAULT_LIMITS = Limits()
