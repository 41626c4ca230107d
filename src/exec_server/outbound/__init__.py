"""HTTP requests that the server makes for its clients: `http/request`.

exchanges.py          the requests of one connection, and their streamed bodies
base64_pieces.py      the base64 of a body while it arrives
outgoing.py           checks a request, and changes it for redirects
url.py                URLs of http and https by the WHATWG rules
host_names.py         international host names by UTS 46
proxies.py            the proxy for a target
tls_trust.py          the certificates that are trusted
shortages.py          failures because this machine has run out of something
sender.py             the HTTP client of the server
aiohttp_internals.py  everything that is used of aiohttp without documentation
"""
