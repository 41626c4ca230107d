"""fs/watchMissing: one notice when a missing file appears.

missing.py  the watch of one connection
watcher.py  watches all directories on the way to a path
inotify.py  the kernel's notices
"""
