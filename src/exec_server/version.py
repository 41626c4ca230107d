"""The release, as `environment/info` and `--version` tell it."""

VERSION = "0.2.0"
