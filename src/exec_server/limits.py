"""Every size, timeout and retention, in one frozen Struct.

Times are in seconds. The defaults are those of the reference, which is OpenAI Codex's own
`codex exec-server`, unless a comment says otherwise.
"""

from __future__ import annotations

import msgspec

from exec_server import defaults

KIB = 1024
MIB = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    # Messages.
    frame_bytes: int = 16 * MIB
    message_bytes: int = 64 * MIB
    json_values: int = 262_144
    json_depth: int = 127
    # If more messages than this wait behind a running request, the socket is not read.
    backlog_messages: int = 128
    backlog_bytes: int = 64 * MIB
    # Requests that wait for a slot of a concurrent lane. The reference has no limit. This one is
    # far above what clients send, and keeps a hostile client from filling the memory.
    waiting_requests: int = 16_384
    # If a client leaves more than this unread, its next requests wait. Control requests are short,
    # so a client that reads nothing can still end its processes.
    unread_answer_bytes: int = 4 * MIB
    # A request line with its headers. The upgrade of our client needs 200 bytes.
    http_head_bytes: int = 16 * KIB
    http_head_timeout: float = 10.0
    # Connections whose request was not read yet. They also never take more than a quarter of all
    # descriptors. The one that has waited longest gives way to a new one.
    waiting_connections: int = 256
    # How often the files of a certificate are looked at; a renewal has weeks.
    certificate_check_seconds: float = 5.0
    # How often the file of principals is looked at: a revoked one is out within a second.
    principals_check_seconds: float = 0.25

    # Keepalive. The reference ignores pongs; it gives the peers of its relay 60 s.
    ping_interval: float = 30.0
    pong_timeout: float = 60.0
    close_timeout: float = 1.0

    # Sessions and scheduling.
    detached_session_seconds: float = defaults.DETACHED_SESSION_SECONDS
    # The largest retention that a client may ask for with `session/retain`, the number of sessions
    # that may have it at a time, and of ended processes that each may keep.
    max_detached_session_seconds: float = defaults.MAX_DETACHED_SESSION_SECONDS
    retained_sessions: int = 1024
    # How long the server waits for a sign of life from the holder of a session that another client
    # wants to take over.
    take_over_probe: float = 3.0
    retained_processes: int = 64
    concurrent_requests: int = defaults.CONCURRENT_REQUESTS
    # The largest number that a client may ask for in `initialize`; the default is serial.
    max_concurrent_requests: int = defaults.MAX_CONCURRENT_REQUESTS

    # Processes.
    # What each process may use by default and at the most, by the names of protocol/resources.py.
    # The reference has no such limits.
    process_default: tuple[tuple[str, float], ...] = ()
    process_max: tuple[tuple[str, float], ...] = ()
    closed_process_seconds: float = defaults.CLOSED_PROCESS_SECONDS
    retained_bytes: int = defaults.RETAINED_BYTES
    # The output of all processes of all sessions together, ended ones included. The reference has
    # no such bound. If it is reached, all have equal shares, of at least the second number; then
    # the processes that ended first lose theirs.
    retained_total_bytes: int = 256 * MIB
    retained_min_share: int = 16 * KIB
    # A chunk has four JSON values, and decoders accept 262,144 values. So even output in one-byte
    # chunks fits into one answer.
    retained_chunks: int = 50_000
    # Chunks are as small as the reference's while all output still fits `retained_bytes`, so that
    # paging and eviction are the same. After that the whole pipe is read at once, which takes half
    # of the CPU time per byte.
    chunk_bytes: int = 8 * KIB
    bulk_chunk_bytes: int = 64 * KIB
    # The largest window of output that a client acknowledges, and the size of all windows together
    # beyond the `retained_bytes` of every process.
    max_flow_window: int = 8 * MIB
    flow_total_bytes: int = 256 * MIB
    stdin_queue_writes: int = 128
    # The reference counts only the writes, of up to 48 MiB each. Here a queue of this size also
    # takes no further write.
    stdin_queue_bytes: int = 64 * MIB
    remembered_write_ids: int = 4096
    default_rows: int = 24
    default_cols: int = 80
    snapshot_scope_bytes: int = 256
    shell_snapshots: int = 16
    shell_snapshot_bytes: int = 512 * KIB
    shell_snapshot_seconds: float = 10.0
    # The soft limit of open files for children; None is the server's own.
    child_descriptors: int | None = None

    # Durable jobs: the output that the journal of one keeps on the disk, in bytes and in chunks,
    # that of all together, and how long a job can be read after it has ended.
    job_journal_bytes: int = defaults.JOB_JOURNAL_BYTES
    job_journal_records: int = 262_144
    job_journal_total_bytes: int = defaults.JOB_JOURNAL_TOTAL_BYTES
    job_keep_seconds: float = defaults.JOB_KEEP_SECONDS

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
    # Searches of a connection at a time, and the matches and the time of each one.
    searches: int = 8
    search_matches: int = 100_000
    search_seconds: float = 120.0
    # Watches of a session, and the directories of each one: the kernel needs a kilobyte for each.
    # The changes that a watch keeps for a client that is away.
    session_watches: int = 8
    watch_directories: int = 200_000
    watch_kept_changes: int = 20_000
    # Threads for file calls: of all connections, and of one. The reference has 512 for all, and one
    # connection may take all of them.
    file_threads: int = 256
    file_threads_each: int = 16
    file_thread_idle: float = 10.0
    # Writes to FIFOs and devices that wait for a reader.
    special_writes: int = 64

    # Sandboxed file calls: the number of helpers, the calls that one helper works on at a time, how
    # long an idle helper is kept, and the time limits for its start and for a call.
    sandbox_helpers: int = 8
    sandbox_helper_calls: int = 32
    sandbox_helper_idle: float = 10.0
    sandbox_helper_start: float = 10.0
    sandbox_call: float = 600.0

    # HTTP requests to other machines. A body that is not streamed is kept in memory; the reference
    # has no limit for it, nor for the number of streams.
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

    # The managed network of a process: connections to each listener of its proxy, the size of HTTP
    # heads, and the time limits for a head, for resolving a name, for connecting, and for silence.
    # There are more connections than `policy_questions`: a question too many is refused at once,
    # and does not wait in the queue of a listener.
    proxy_connections: int = 1024
    proxy_head_bytes: int = 64 * KIB
    proxy_head_timeout: float = 60.0
    proxy_resolve_timeout: float = 2.0
    proxy_connect_timeout: float = 10.0
    proxy_idle_timeout: float = 900.0
    datagram_destinations: int = 64
    # Open questions to one client, and the time that is added to the time limit of each.
    policy_questions: int = 256
    policy_grace: float = 5.0
    # The longest time that a refused call of a sandboxed program waits for a grant: a person has to
    # read the question.
    denial_hold_seconds: float = 600.0

    # Byte streams: how many streams and listeners a session may have, the largest window of a
    # stream in each direction, the windows of all streams of the server together beyond the last
    # number, which each stream has in any case, and the time limits for resolving and connecting,
    # and for a client to say which streams it goes on with. The reference has no streams.
    session_streams: int = 512
    session_listeners: int = 64
    stream_window: int = 4 * MIB
    stream_total_bytes: int = 256 * MIB
    stream_min_window: int = 64 * KIB
    stream_connect_timeout: float = 10.0
    stream_resume_seconds: float = 30.0

    # Shutdown: the time between SIGTERM and SIGKILL for process trees whose server stops or has
    # vanished, and how long an orderly stop waits for the keeper after that.
    orphan_grace: float = 2.0
    keeper_stop_timeout: float = 5.0

    # The relay. The size of a WebSocket message of the Noise relay in both directions.
    relay_frame_bytes: int = 256 * KIB
    # Frames of a stream that may wait for a missing frame, and their size.
    relay_reorder_frames: int = 64
    relay_reorder_bytes: int = 1 * MIB
    relay_streams: int = 128
    # Handshakes that wait for the registry's decision, and the time limit for one.
    relay_validations: int = 32
    relay_validation_timeout: float = 10.0
    relay_authorization_bytes: int = 4 * KIB
    # After this number of failed handshakes of one harness, all of its handshakes are refused for
    # this time.
    relay_failures: int = 8
    relay_failure_pause: float = 10.0
    # The number of harnesses whose failures are remembered, and the bound for all harnesses
    # together. A failed handshake takes half a millisecond of CPU, so a flood takes 20 % of a core.
    relay_failing_harnesses: int = 1024
    relay_all_failures: int = 1000
    # Records of refused harness keys: as many at once, and then one in this time.
    relay_refusal_records: int = 10
    relay_refusal_seconds: float = 6.0
    relay_all_failures_per_second: float = 400.0
    # The older relay, which the reference no longer serves: the number of recent frames that are
    # remembered to recognise repeated ones, segments of incomplete messages, and frames until an
    # ack is sent alone.
    relay_seen_frames: int = 1024
    relay_segments: int = 4096
    relay_ack_frames: int = 32
    # A socket to the rendezvous that accepts no data for this time is closed.
    relay_write_timeout: float = 60.0

    # The executor and its registry: the time limit for one request, and the pauses between two
    # registrations (they are doubled four times, with up to half as much jitter). The pauses
    # between two sockets to the rendezvous start again from the first after a socket that lasted.
    # They are shorter while the executor holds sessions, because harnesses try to resume theirs
    # for 25 s.
    registry_timeout: float = 10.0
    registry_answer_bytes: int = 1 * MIB
    registry_pause: float = 0.5
    registry_max_pause: float = 5.0
    rendezvous_pause: float = 1.0
    rendezvous_max_pause: float = 30.0
    rendezvous_hurried_pause: float = 5.0
    rendezvous_lasting: float = 120.0
    # The harness and the registry: the time limits for one request and for all requests of the
    # first connection, and the number of retries.
    bundle_timeout: float = 6.0
    bundle_window: float = 14.0
    bundle_retries: int = 4
    # Forwarding: the time limit for the destination to accept, and the largest frame to it.
    forward_timeout: float = 10.0
    forward_frame_bytes: int = 8 * MIB

    # The registry and rendezvous: the sizes of request bodies and headers, and of names.
    hub_request_bytes: int = 64 * KIB
    hub_name_bytes: int = 128
    hub_stream_id_bytes: int = 1024
    # How long URLs are valid. The executor asks for a new one when its own has expired. The
    # harness uses its URL and the authorization beside it at once.
    hub_executor_url_seconds: float = 24 * 3600.0
    hub_harness_url_seconds: float = 60.0
    # A new registration counts as connected for this time, so that the executor that it replaces
    # does not come back before its socket is there. The reference connects within a second.
    hub_registration_grace: float = 15.0
    # Sockets in all, harnesses of an executor, and streams of a harness (the reference uses one).
    hub_sockets: int = 20_000
    hub_harnesses: int = 256
    hub_harness_streams: int = 16
    # Connections that are not rendezvous sockets, in all, and how long one may be idle. Clients of
    # aiohttp use an idle connection for 15 s. Proxies do so for longer, and nginx for 60 s.
    hub_connections: int = 8192
    hub_idle_seconds: float = 16.0
    hub_proxy_idle_seconds: float = 75.0
    # Bytes that wait for one reader. Above the first number its sender is not read, if that does
    # not delay other streams. Above the second the stream is reset. The other two are the limits
    # for all that waits for one executor, and for all on the node.
    hub_waiting_bytes: int = 1 * MIB
    # What a queued frame counts beyond its content, which may be five bytes. Python's objects for
    # it take 115 bytes.
    hub_frame_overhead: int = 128
    hub_stream_bytes: int = 32 * MIB
    hub_executor_bytes: int = 64 * MIB
    hub_total_bytes: int = 512 * MIB
    # The most of these bytes that one environment may have, and one token of harnesses.
    hub_share_bytes: int = 128 * MIB
    # A stream that was silent for this time is not delayed if its executor's socket is not read.
    hub_quiet_seconds: float = 5.0
    # A socket that accepts no data for this time is closed. It is less than the 60 s in which both
    # ends expect answers to their pings, which must not wait for another socket.
    hub_write_timeout: float = 30.0
    # Failed authentications: how many one address may have at once, after how many seconds it may
    # have one more, and the number of addresses that are remembered.
    hub_failures: int = 10
    hub_failure_seconds: float = 6.0
    hub_failing_addresses: int = 10_000
    # How soon the connections of a revoked token end, and how long the audit log is kept.
    hub_revocation_seconds: float = 1.0
    hub_audit_days: int = 90
    # The time limit for the store, and the audit events that may wait for it.
    hub_store_timeout: float = 5.0
    hub_audit_waiting: int = 10_000
    # Requests and upgrades that run at once, and how many may wait. Twice as many may wait of those
    # that a refusal would end. Then how long a harness's connect waits, and how long all others:
    # clients give up after 6 and 10 s. The last is how long a request that waits for other nodes
    # keeps its slot.
    hub_admissions: int = 256
    hub_admissions_waiting: int = 2048
    hub_admission_seconds: float = 3.0
    hub_long_admission_seconds: float = 5.0
    hub_admission_lent: float = 1.0
    # Pairing: how long a code is valid, wrong codes per minute from all clients, and open codes.
    hub_pairing_seconds: float = 300.0
    hub_pairing_failures: int = 30
    hub_pairings: int = 1000
    # The most open codes of one token, and the offers with tokens from one address: the number at
    # once, and the seconds until one more is allowed.
    hub_token_pairings: int = 100
    hub_address_offers: int = 100
    hub_address_offer_seconds: float = 3.0
    # Pairing codes for machines without a token, if that is allowed: the number at once for one
    # address, the seconds until it may have one more, and the same for all addresses together.
    hub_open_offers: int = 10
    hub_open_offer_seconds: float = 30.0
    hub_all_open_offers: int = 100
    hub_all_open_offer_seconds: float = 6.0
    # The bus between nodes: the time limits for the first connection and for an answer of a server,
    # the bytes that may wait to be sent before messages are dropped, the interval of pings (a
    # server is given up when three are unanswered), the shortest pause between two attempts to
    # reach another server, and after how long without a server the connection is made anew.
    bus_start_timeout: float = 10.0
    bus_timeout: float = 5.0
    bus_waiting_bytes: int = 64 * MIB
    bus_ping_interval: float = 2.0
    bus_pause: float = 0.25
    bus_patience: float = 30.0
    # How long a new executor waits until its owner record is written, before it is served without
    # one. The servers of the records may elect a leader for several seconds.
    hub_ownership_seconds: float = 2.0
    # Between nodes: the interval of heartbeats, how long a node may be silent, and how long the
    # subscriptions of a node that changes its bus server may be missing.
    hub_beat_seconds: float = 1.0
    hub_peer_seconds: float = 5.0
    hub_settle_seconds: float = 2.0
    # Channels between nodes: the bytes that the other node has not acknowledged, the interval at
    # which an unanswered packet is sent again, and how many times it is.
    hub_channel_window: int = 4 * MIB
    hub_channel_tick: float = 0.25
    hub_channel_patience: int = 40

    # The client.
    connect_timeout: float = 10.0
    initialize_timeout: float = 10.0
    info_timeout: float = 30.0
    status_timeout: float = 10.0
    calls_in_flight: int = 1024
    # After a lost connection: how long the client tries to resume the session, which is less than
    # the server's retention, and the first pause between two attempts.
    recovery_window: float = 25.0
    recovery_pause: float = 0.1
    # The deadline of the first dial while a lost connection is replaced, and of its handshake; it
    # is doubled after each dial that had no answer, up to `connect_timeout`.
    recovery_dial: float = 4.0
    # How long the client tries again while the server says that another client has the session.
    taken_over_patience: float = 5.0
    # While the client waits for something and has heard nothing for the first time, it asks the
    # server for a sign of life. After the second time it gives the connection up.
    silence: float = 3.0
    silence_limit: float = 8.0
    # The pause grows up to this if the server has granted a longer retention.
    recovery_max_pause: float = 5.0
    # The size of one recovery read of a process with a window; small, for unstable links.
    recovery_page_bytes: int = 512 * KIB
    # Recovery reads that run at once.
    recovery_reads: int = 64
    reorder_events: int = 256
    reorder_bytes: int = 1 * MIB
    event_bytes: int = 1 * MIB
    # The reference's client waits for ever. A minute is far more than a working server needs.
    call_timeout: float = 60.0
    # Output of one process that the caller has not read. Above the first number the connection is
    # not read, if that does not delay other processes. Above the second the output is discarded.
    untaken_bytes: int = 1 * MIB
    untaken_max_bytes: int = 64 * MIB
    # Output of each stream that `run` collects: the first half, and as much of the end.
    run_output_bytes: int = 64 * MIB
    # How long `run` waits after the exit of a command for output of processes that it has left.
    run_drain: float = 2.0
    # The window that the client asks for if the server supports windows; 0 asks for none. A larger
    # one is not faster on a fast link. With 50 ms of latency this one allows 80 MB/s.
    flow_window: int = 4 * MIB
    # How long other consumers wait for one that is behind and reads nothing.
    reader_patience: float = 5.0
    # A larger write is sent in pieces of this size, each with its own answer.
    write_bytes: int = 256 * KIB
    # How long a command may be silent after the end of an input that its server cannot end.
    endless_input_seconds: float = 60.0
    # The size of all streamed HTTP bodies that the caller has not read; more makes one fail.
    untaken_body_bytes: int = 16 * MIB
    # The time between SIGTERM and SIGKILL for a program that is a stdio transport.
    program_kill_delay: float = 2.0


DEFAULT_LIMITS = Limits()
