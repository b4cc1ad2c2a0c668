"""Exits with 0 if the service of this container answers /readyz with 200: the HEALTHCHECK of the image.

It asks over TLS if the service has a certificate, which it need not trust: the check is about this container alone.
"""

import os
import ssl
import urllib.request

tls = bool(os.environ.get("MOVEMASK_TLS_CERT"))
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
address = f"{'https' if tls else 'http'}://127.0.0.1:{os.environ['MOVEMASK_PORT']}/readyz"
urllib.request.urlopen(address, timeout=4, context=context if tls else None)
