"""Files of the server.

remote_files.py   `client.fs`: contents, streams, copies of trees
file_methods.py   the methods of the protocol, one Python method each
link_methods.py   the methods for symbolic links themselves
remote_path.py    a path with methods like those of pathlib
file_streams.py   contents in blocks, several of which are under way
missing_watch.py  the watch of paths that do not exist yet
looking.py        the methods for searches, watches and checksums
search_results.py the results of a search
change_reports.py the changes that a watch reports
transfer/         copies of trees to, from and between servers
"""
