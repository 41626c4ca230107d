"""HTTP requests that the server's machine makes.

remote_http.py    `client.http`
response_body.py  bodies of streamed answers
httpx_carrier.py  a transport for httpx, and for libraries with its interface
"""
