"""TLS and mutual TLS with the real server, and certificates made for the occasion."""

import re
import shutil
import subprocess

import google_crc32c
import grpc
import numpy as np
import pytest

import svdserve
from svdserve import _proto

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
RETRY = svdserve.RetryPolicy(max_attempts=1)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """A folder with a certificate authority ca.pem, and server.pem, client.pem and their keys. expired.pem is client.pem of
    the day before, and nobody knows the authority stranger.pem."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("ca", "stranger"):
        openssl("req", "-x509", *new_key, "-days", "2", "-subj", f"/CN=test {name}", "-keyout", f"{name}.key", "-out",
                f"{name}.pem")
    for name, host in (("server", "svdserve"), ("client", "svdserve"), ("other", "other")):
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{host}.test\n")
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
    openssl("x509", "-req", "-in", "client.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "-1", "-out", "expired.pem")
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


def test_errors_name_what_is_wrong(start_server, pki):
    own = {"ca": pki / "ca.pem", "server_name": "svdserve.test"}
    closed = r"the server at ADDRESS closed the connection \(.*\); "
    refused = closed + r"the certificate in Tls\(cert=\) must not have expired, and an authority of .* --tls-client-ca"
    unknown = r"the certificate of the server at ADDRESS is not trusted, or has expired \(.*\); give .* in Tls\(ca=\)"
    cases = {
        "tls": [(False, closed + r"if it has TLS, give tls=svdserve.Tls\(ca=\) with the authority"), (True, unknown),
                (svdserve.Tls(ca=pki / "stranger.pem"), unknown),
                (svdserve.Tls(ca=pki / "ca.pem", server_name="other.test"),
                 r"the certificate of .* ADDRESS is for another name \(.*\); give .* in Tls\(server_name=\), or in address")],
        "plain": [(svdserve.Tls(**own), r"the server at ADDRESS has no TLS \(WRONG_VERSION_NUMBER.*\); leave tls out")],
        "mutual": [(svdserve.Tls(**own), closed + r"if it asks for a client certificate, give Tls\(cert=, key=\)"),
                   (svdserve.Tls(**own, cert=pki / "expired.pem", key=pki / "client.key"), refused),
                   (svdserve.Tls(**own, cert=pki / "stranger.pem", key=pki / "stranger.key"), refused),
                   (svdserve.Tls(**own, cert=pki / "client.pem", key=pki / "other.key"),
                    r"no connection to .* ADDRESS: gRPC cannot use the PEM texts; Tls\(key=\) must belong to Tls\(cert=\)")]}
    files = (f"--tls-cert={pki / 'server.pem'}", f"--tls-key={pki / 'server.key'}")
    flags = {"tls": files, "plain": (), "mutual": (*files, f"--tls-client-ca={pki / 'ca.pem'}")}
    for kind, mistakes in cases.items():
        with start_server(*flags[kind]) as address:
            for tls, said in mistakes:
                with svdserve.Client(address, tls=tls, retry=RETRY) as client, pytest.raises(svdserve.Unavailable) as raised:
                    client.svdvals(np.eye(3), timeout=60)
                assert re.match(said.replace("ADDRESS", re.escape(address)), str(raised.value)), (kind, str(raised.value))


def large_call(address, pki, name, matrix, resume=b""):
    """DecomposeLarge of a client with this certificate, up to the first progress after commit or, of one that is resumed,
    to acceptance: the token. Raises grpc.RpcError."""
    def requests():
        yield _proto.DecomposeLargeRequest(open=_proto.LargeOpen(
            data_type=_proto.DATA_TYPES["F64"], memory_order=_proto.MEMORY_ORDERS["ROW_MAJOR"], rows=matrix.shape[0],
            cols=matrix.shape[1], resume=resume))
        if not resume:
            operand = matrix.tobytes()
            for offset in range(0, len(operand), 1 << 20):
                request = _proto.DecomposeLargeRequest()
                request.chunk.offset, request.chunk.data = offset, operand[offset:offset + (1 << 20)]
                request.chunk.crc32c = google_crc32c.value(request.chunk.data)
                yield request
            yield _proto.DecomposeLargeRequest(commit=_proto.LargeCommit())

    credentials = grpc.ssl_channel_credentials(*((pki / file).read_bytes() for file in ("ca.pem", f"{name}.key", f"{name}.pem")))
    with grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", "svdserve.test")]) as channel:
        method = channel.stream_stream(_proto.DECOMPOSE_LARGE,
                                       request_serializer=lambda request: request.SerializeToString(),
                                       response_deserializer=_proto.DecomposeLargeResponse.FromString)
        token = b""
        call = method(requests(), timeout=600)
        for reply in call:
            token = reply.accepted.resume or token
            if resume or reply.WhichOneof("step") == "progress":
                call.cancel()
                return token
        raise AssertionError("there was no progress")


def test_only_the_same_certificate_goes_on_with_a_matrix(start_server, pki, tmp_path):
    matrix = np.random.default_rng(1).standard_normal((1200, 600))  # its results fill every window
    with start_server(f"--tls-cert={pki / 'server.pem'}", f"--tls-key={pki / 'server.key'}",
                      f"--tls-client-ca={pki / 'ca.pem'}", f"--checkpoint-dir={tmp_path / 'checkpoints'}") as address:
        token = large_call(address, pki, "client", matrix)
        assert len(token) == 16
        with pytest.raises(grpc.RpcError) as refused:
            large_call(address, pki, "other", matrix, token)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        assert large_call(address, pki, "client", matrix, token) == token


def test_files_that_are_not_there(pki):
    with pytest.raises(OSError):
        svdserve.Client("127.0.0.1:1", tls=svdserve.Tls(ca=pki / "none.pem"))


def test_files_of_another_kind(pki):
    for tls, said in ((svdserve.Tls(ca=pki / "ca.key"), f"ca: {pki / 'ca.key'} has no CERTIFICATE"),
                      (svdserve.Tls(cert=pki / "client.pem", key=pki / "client.pem"),
                       f"key: {pki / 'client.pem'} has no PRIVATE KEY"),
                      (svdserve.Tls(ca=b"ca.pem"), "ca: the text is not PEM")):
        with pytest.raises(ValueError, match=re.escape(said)):
            svdserve.Client("127.0.0.1:1", tls=tls)
