"""Exits with 0 if the service of this container answers /readyz with 200: the HEALTHCHECK of the image.

It asks at MOVEMASK_HOST. It asks over TLS if the service has a certificate, which it need not trust: the check is about
this container alone.
"""

import http.client
import ipaddress
import os
import socket
import ssl
import sys
from contextlib import suppress

SECONDS = 4

host = os.environ.get("MOVEMASK_HOST") or "127.0.0.1"
if host.startswith("unix:"):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    connection.connect(host.removeprefix("unix:"))
else:
    with suppress(ValueError):  # the name of a host
        address = ipaddress.ip_address(host)
        if address.is_unspecified:  # the service listens on all addresses of the family
            host = "127.0.0.1" if address.version == 4 else "::1"
    connection = socket.create_connection((host, int(os.environ["MOVEMASK_PORT"])), SECONDS)
if os.environ.get("MOVEMASK_TLS_CERT"):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = context.wrap_socket(connection)
request = http.client.HTTPConnection("localhost")
request.sock = connection
request.request("GET", "/readyz")
sys.exit(request.getresponse().status != 200)
