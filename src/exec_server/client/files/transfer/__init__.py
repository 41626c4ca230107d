"""Copies of files and trees between this machine and servers.

tree.py            one entry of a tree, on either side
transfer_plan.py   what has to be copied: decided from two listings, without I/O
transfer_options.py  what the caller wants
transfer.py        what uploads and downloads have in common
upload.py          to a server
upload_checks.py   the decisions of an upload that need no I/O
download.py        from a server
changed_parts.py   which parts of a changed file the other side has
copied_ends.py     copying what two versions have in common while it is compared
equal_versions.py  whether what was made of parts is the new version
delta_upload.py    sending only what has changed in a file
delta_download.py  receiving only that
source.py          where an upload reads: this machine, or another server
local_tree.py      reading and writing on this machine, without following links
remote_tree.py     the tree on the server
remote_listing.py  what is in it
remote_links.py    making symbolic links there
archives.py        many small files in one tar archive
leftovers.py       removing what a copy that ended early has left on the server
own_parts.py       keeping others from making the parts of files
pack.py            the tar format
private_files.py   keeping others from reading what they may not read when it is complete
checksum.py        comparing the content of both sides
progress.py        what the caller is told meanwhile
result.py          what the caller is told at the end
task_pool.py       a bounded number of tasks for many small jobs
"""
