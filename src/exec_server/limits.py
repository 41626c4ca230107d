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
    stdin_queue_writes: int = 128
    # The reference counts writes alone, of up to 48 MiB each; here the queue takes no further one
    # beyond this.
    stdin_queue_bytes: int = 64 * MIB
    remembered_write_ids: int = 4096
    default_rows: int = 24
    default_cols: int = 80
    snapshot_scope_bytes: int = 256
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

    # Shutdown: how long trees get between SIGTERM and SIGKILL after the server vanished, and
    # how long an orderly stop waits for the keeper of the children.
    orphan_grace: float = 2.0
    keeper_stop_timeout: float = 5.0

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
    # How long others wait for a consumer that is behind and takes nothing.
    reader_patience: float = 5.0
    # A larger write travels in pieces of this size, each with its own answer.
    write_bytes: int = 256 * KIB
    # A program that is spoken to by its stdin and stdout: from terminate to kill.
    program_kill_delay: float = 2.0


DEFAULT_LIMITS = Limits()
