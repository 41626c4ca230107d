"""Processes that were detached: their records, who follows them, and finding them again.

detach.py                 detaches a process and resumes its session later
saved_sessions.py         the records of detached sessions
saved_session_options.py  the parser of the commands for detached processes
session_holder.py         the program on this machine that follows a detached process
looking_on.py             looks on at a process that another program follows
named_process.py          finds the process that the words of a command name
server_jobs.py            the durable jobs that a server lists
recent_output.py          where the newest output of a job begins
participant_words.py      who looks on and who drives, in words
"""
