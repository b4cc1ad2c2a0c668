"""`certificate_end`: when the certificate of a PEM file ends."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

#: DER's tag of the optional version, and the formats of its two kinds of time.
_VERSION = 0xA0
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


def certificate_end(file: Path) -> float:
    """Returns when the first certificate of a PEM file ends, in seconds since 1970.

    Raises ValueError if the file has no certificate. Source: RFC 5280, section 4.1.
    """
    pem = _PEM.search(file.read_text("ascii", "replace"))
    if pem is None:
        raise ValueError(f"{file} has no certificate")
    (_, certificate), *_ = _elements(ssl.PEM_cert_to_DER_cert(pem[0]))
    (_, signed), *_ = _elements(certificate)
    # An optional version, serial number, algorithm of the signature, issuer, validity.
    fields = [content for tag, content in _elements(signed) if tag != _VERSION]
    _, (tag, end) = _elements(fields[3])
    return datetime.strptime(end.decode("ascii"), _TIMES[tag]).replace(tzinfo=UTC).timestamp()


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Returns the tags and contents of the elements that a DER sequence contains."""
    elements = []
    while der:
        tag, size, start = der[0], der[1], 2
        if size >= 0x80:  # the size is in the next `size - 0x80` bytes
            start += size - 0x80
            size = int.from_bytes(der[2:start])
        elements.append((tag, der[start : start + size]))
        der = der[start + size :]
    return elements
