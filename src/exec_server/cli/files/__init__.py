"""Commands for files on a server.

cp.py                 `cp`
mv.py                 `mv`
sync.py               `sync`
copy_reports.py       what these three say about a copy
stream_copy.py        standard input and output as a file of `cp`
remote_globs.py       patterns in remote paths
ls_tree_find_stat.py  `ls`, `tree`, `find`, `stat`
cat_rm_mkdir.py       `cat`, `rm`, `mkdir`
grep.py               `grep`
watch.py              `watch`
file_command.py       the options, errors and exit status that they share
targets.py            `SERVER:/PATH`, and one client for each server
unfinished_copy.py    the note beside a tree that is not complete yet
progress_bar.py       the progress line of `cp`
"""
