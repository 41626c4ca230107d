"""The blocking work of the file methods.

table.py              every operation: its arguments, and the functions that do it
task.py               the classes of the table
changes.py            makes and removes names, except for those that are kept closed
local.py              the methods that follow symbolic links
nofollow.py           the same methods for `followSymlinks: false`
attributes.py         fs/rename and fs/setPermissions
links.py              fs/lstat, fs/readLink and fs/symlink
atomic_write.py       fs/writeFile with `atomic`
fifo_writes.py        writes to FIFOs and devices
copy.py               fs/copy
delta.py              fs/signature and fs/copyRanges
remove.py             removes a directory with everything in it
walk.py               fs/walk
directory_listing.py  fs/readDirectory
complete_listing.py   the same with `complete`: every name and link
content.py            reads and writes the whole content of open files
status.py             the attributes of files
oserrors.py           errors of the system as errors of the protocol
"""
