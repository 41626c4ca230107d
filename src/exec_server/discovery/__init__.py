"""The executor's own configuration, skills and plugins, for clients that ask for them.

discovery_service.py  answers the methods, in threads or in confined helpers
config_files.py       `environmentConfig/read`
roots.py              `capabilityRoots/discoverV1`
installed.py          `capabilities/discoverV2`
homes.py              the directories of the executor's own files
scan.py               walks a root and reads its files, within limits
plugins.py            the manifest of a plugin
skills.py             the two files of a skill
yaml_text.py          reads YAML
toml_text.py          writes TOML
"""
