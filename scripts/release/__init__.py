"""`make release VERSION=`: everything of a release but its upload.

- `run.py`: the steps, one after the other
- `distributions.py`: the wheel and the source archive, built twice and compared
- `installed.py`: empty environments, one for each Python, and what must work in them
- `single_file.py`: one file with all packages, for machines without pip
- `inventory.py`: the SBOM, the licences, the digests
- `shell.py`: commands, which fail with their output
"""
