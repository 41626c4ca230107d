"""A server of the Model Context Protocol whose tools run on an exec-server.

mcp_settings.py        what the operator of the server decides, and the model does not
mcp_box.py             the two sessions on the exec-server, connected at the first use
job_records.py         the records by which a later MCP server finds the jobs of an earlier one
mcp_answers.py         the shapes of the tools' structured answers
mcp_process_tools.py   run, start, read, write, signal, list
mcp_file_tools.py      read_file, write_file, edit_file, list_directory, search
mcp_server.py          the server object: tools, annotations, resources
mcp_stdio.py           standard input and output
mcp_http.py            streamable HTTP, with a bearer token
bounded_http.py        its connections: who may connect, and for how long without a request
"""
