"""`certificate_end`: the end of certificates that OpenSSL made."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from movemask.server.certificates import certificate_end
from tests.conftest import Serve
from tests.processes import certificate


def openssl_end(file: Path) -> float:
    command = ["openssl", "x509", "-enddate", "-noout", "-in", str(file)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return ssl.cert_time_to_seconds(output.strip().removeprefix("notAfter="))


@pytest.mark.parametrize("days", [2, 40_000], ids=["two-digit year", "four-digit year"])
def test_certificate_end_matches_openssl(days: int, tmp_path: Path) -> None:
    file, _ = certificate(tmp_path, days)
    assert certificate_end(file) == openssl_end(file)


def test_certificate_end_is_of_the_first_certificate(tmp_path: Path) -> None:
    file, key = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other", 400)
    chain = tmp_path / "chain.pem"
    chain.write_text(key.read_text() + "a comment\n" + file.read_text() + other.read_text())
    assert certificate_end(chain) == openssl_end(file)
    with pytest.raises(ValueError, match=r"key\.pem has no certificate"):
        certificate_end(key)


def test_certificate_end_is_a_metric(serve: Serve, tmp_path: Path) -> None:
    file, key = certificate(tmp_path)
    name = 'movemask_certificate_end_seconds{file="cert.pem"}'
    lines = serve(tls_cert=file, tls_key=key).get("/metrics").text.splitlines()
    (value,) = [line.removeprefix(name) for line in lines if line.startswith(name)]
    assert float(value) == certificate_end(file)
