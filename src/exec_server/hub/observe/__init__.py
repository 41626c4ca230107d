"""What operators see of a registry: the audit log, metrics and telemetry.

audit.py              keeps audit events in the store and in a file
metrics.py            counts requests, and the text of a scrape
telemetry.py          counts requests, and starts the export to a collector
telemetry_records.py  values that telemetry.py and otlp.py share
otlp.py               exports spans and metrics over OTLP; imported only if configured
otlp_log.py           log messages of OpenTelemetry's library, once for each outage
"""
