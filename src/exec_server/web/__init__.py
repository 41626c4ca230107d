"""`exec-server web`: a page for people, served on their own machine, which uses our client.

page_program.py      listens, and serves the page until it is stopped
page_routes.py       the HTTP application: which path leads where, and the headers of every answer
page_access.py       who may use the page: one-time links, tokens of principals, sessions, tickets
page_assets.py       the files of the page, compressed
page_socket.py       one tab: calls and answers, events, and the bytes of terminals
page_calls.py        the calls that a tab may make
call_words.py        reads the members of a call, with bounds
places.py            the environments of the page, and their connections
shown_process.py     a process whose output tabs show
typed_input.py       what tabs type into a process, in order and bounded
viewer.py            one tab that shows a process: its window, and fresh frames when it is behind
replay_screen.py     what a tab that comes late has to draw
process_list.py      the processes and durable jobs of an environment
place_files.py       files: list, read, write, rename, remove
port_calls.py        the calls about ports
place_ports.py       ports of an environment that are open on this machine
transfer_routes.py   downloads, and uploads that can be continued

recordings/          recordings of this machine, and going back in a terminal
assets/              the page itself: plain modules and styles, and xterm.js in assets/vendor
"""
