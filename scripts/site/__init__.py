"""`make docs`: the pages in docs/ as a site that needs no server, for Sphinx.

- `stage.py`: the folder that Sphinx reads: the pages, and a reference that is made from the code
- `pages.py`: the chapters of the site, and which page is in which
- `cli_reference.py`: a page for each command, from its parser
- `client_reference.py`: pages for the public names of the package, from their docstrings
- `conf.py`: the settings of Sphinx
- `casts.py`: pictures of terminals, from sessions that it runs
- `mermaid.sh`: the program that draws diagrams in the reader's browser
"""
