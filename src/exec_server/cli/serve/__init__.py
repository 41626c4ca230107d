"""The server's own command line: `exec-server` without a command, and `forward`.

serve_command.py  serves until a signal
serve_parser.py   the options, and the help of the whole program
serve_options.py  checks the options against each other and collects them
state_options.py  the options for durable jobs
state_place.py    the directory in which they are kept
process_limit_options.py  what each command may use
audit_options.py  the options of the audit log
operator_options.py  TLS, reload, metrics, a Unix socket
stream_options.py  what streams of clients may reach
option_records.py    groups of options, as they were given
record_options.py    records all terminals
quota_options.py  the quotas of all clients together
service_notices.py   tells systemd that the server is ready, reloads, stops or hangs
user_scope.py     a control group of its own in a systemd user session
reloading.py      reads tokens, certificates and the log level again at SIGHUP
own_files.py      hides the server's secret files from sandboxes
codex_config.py   Codex's config.toml, which `--strict-config` checks
codex_fields.py   the settings and feature flags that Codex knows
serve_remote.py   serves through a registry (`--remote`, `forward`)
"""
