"""Searches and watches: each is done by a process of its own, an agent.

    searches.py       fs/search: the searches of one connection
    watches.py        fs/watch: the watches of one session
    agent_process.py  the server's side of an agent: its lines, and its end
    agent_main.py     the agent process
    search_work.py    what an agent does for a search: ripgrep, or the walker
    ripgrep.py        runs `rg --json` in an agent
    ripgrep_run.py    runs `rg --json` without an agent
    ripgrep_output.py the options of `rg --json`, and the lines that it prints
    walker.py         searches without ripgrep
    match_batches.py  collects matches, and prints them in batches
    watch_work.py     what an agent does for a watch
    watched_tree.py   the directories that an agent watches
    change_batch.py   the names that have changed since the last report

An agent is confined like a command, and so it sees what its request may see. A hostile pattern, or
a tree of a million names, costs the server nothing, and a kill ends it. It gets its request on
stdin, prints lines of JSON, and ends when stdin does. Where ripgrep is installed, it searches
contents for the server's own user without an agent, confined in the same way.
"""
