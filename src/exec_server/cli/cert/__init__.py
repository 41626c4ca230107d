"""`exec-server cert`: an authority and certificates for a lab.

cert_command.py   the commands `ca`, `server` and `client`
lab_authority.py  makes the certificates and writes their files
"""
