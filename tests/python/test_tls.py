"""TLS and mutual TLS with the real server, and certificates made for the occasion."""

import shutil
import subprocess

import numpy as np
import pytest

import svdserve

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
RETRY = svdserve.RetryPolicy(max_attempts=1)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """A folder with a certificate authority ca.pem, and server.pem, client.pem and their keys."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new_key, "-days", "2", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:svdserve.test\n")
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
    return folder


def test_tls(start_server, pki):
    with start_server(f"--tls-cert={pki / 'server.pem'}", f"--tls-key={pki / 'server.key'}") as address:
        tls = svdserve.Tls(ca=pki / "ca.pem", server_name="svdserve.test")
        with svdserve.Client(address, tls=tls, retry=RETRY) as client:
            np.testing.assert_array_equal(client.svdvals(np.eye(3)), 1)
        for wrong in (True, False, svdserve.Tls(ca=(pki / "ca.pem").read_bytes(), server_name="other.test")):
            with svdserve.Client(address, tls=wrong, retry=RETRY) as client, pytest.raises(svdserve.Unavailable):
                client.svdvals(np.eye(3), timeout=60)


def test_mutual_tls(start_server, pki):
    with start_server(f"--tls-cert={pki / 'server.pem'}", f"--tls-key={pki / 'server.key'}",
                      f"--tls-client-ca={pki / 'ca.pem'}") as address:
        known = svdserve.Tls(ca=str(pki / "ca.pem"), cert=(pki / "client.pem").read_bytes(), key=pki / "client.key",
                             server_name="svdserve.test")
        with svdserve.Client(address, tls=known, retry=RETRY) as client:
            np.testing.assert_array_equal(client.svdvals(np.eye(3)), 1)
        unknown = svdserve.Tls(ca=pki / "ca.pem", server_name="svdserve.test")
        with svdserve.Client(address, tls=unknown, retry=RETRY) as client, pytest.raises(svdserve.Unavailable):
            client.svdvals(np.eye(3), timeout=60)


def test_files_that_are_not_there(pki):
    with pytest.raises(OSError):
        svdserve.Client("127.0.0.1:1", tls=svdserve.Tls(ca=pki / "none.pem"))
