"""The defaults that the server's help shows. This module loads nothing, so that help is quick."""

DEFAULT_LISTEN_URL = "ws://127.0.0.1:0"
# The allowed difference to the clock of the issuer of a JWT, in seconds.
DEFAULT_CLOCK_SKEW = 30

# These are fields of `Limits`, which says what they mean.
CONCURRENT_REQUESTS = 1
MAX_CONCURRENT_REQUESTS = 64
RETAINED_BYTES = 1024 * 1024
DETACHED_SESSION_SECONDS = 30.0
MAX_DETACHED_SESSION_SECONDS = 24 * 3600.0
CLOSED_PROCESS_SECONDS = 30.0
JOB_JOURNAL_BYTES = 64 * 1024 * 1024
JOB_JOURNAL_TOTAL_BYTES = 1024 * 1024 * 1024
JOB_KEEP_SECONDS = 7 * 24 * 3600.0
