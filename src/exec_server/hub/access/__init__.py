"""Who may do what: tokens, signed URLs, pairing codes and refusals.

tokens.py    access tokens, and the gate that checks the token of a request
signing.py   signed rendezvous URLs, called passes
pairing.py   short codes by which two machines are introduced to each other
pairing_reply.py  what the second machine tells the first one about a code
throttle.py  slows down addresses that fail too often
refusals.py  the answers of requests that are refused
"""
