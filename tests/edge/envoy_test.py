"""Envoy with the profile of deploy/envoy in front of real servers.

    build/release/tests/lint/tools/bin/python tests/edge/envoy_test.py build/release/bin [Envoy.test_attacks ..]
    .. build/release/bin --strict       # the honest client's times, too: on a quiet machine

With --attacker-cpus=2,3 the attacker has processors of its own, as a machine of its own would.
Right and wrong alone: no bar of time without --strict, but for hangs.
"""

from __future__ import annotations

import argparse
import base64
import concurrent.futures
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import attacks
import grpc
import proxy
import yaml
from hostile_test import (ATTACKER, CHECK, DECOMPOSE, HONEST_REQUEST, REFLECTION, WATCH, Connection,
                          honest_calls, percentile)

BINARIES = pathlib.Path()
STRICT = False
ATTACKER_CPUS = ""


def read_command_line() -> list[str]:
    """Sets the names above. Returns the command line that is left to unittest."""
    global BINARIES, STRICT, ATTACKER_CPUS
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--attacker-cpus", default="")
    args, rest = parser.parse_known_args()
    BINARIES, STRICT, ATTACKER_CPUS = args.binaries.resolve(), args.strict, args.attacker_cpus
    return [sys.argv[0], *rest]


def start_attack(name: str, address: tuple[str, int], *options: str) -> subprocess.Popen:
    """Its stdout is a report in JSON."""
    return subprocess.Popen(proxy.pinned([sys.executable, attacks.__file__, name, *map(str, address), *options],
                                         ATTACKER_CPUS), stdout=subprocess.PIPE, text=True)


class Replica:
    """A server of one thread."""

    def __init__(self, folder: pathlib.Path, *flags: str, cpus: str = ""):
        folder.mkdir()
        ready, self._log = folder / "ready", folder / "log"
        with open(self._log, "wb") as log:
            command = [BINARIES / "svdserve", "--listen=127.0.0.1:0", "--devices=host", "--threads=1",
                       "--calibration-time=1ms", "--metrics-listen=127.0.0.1:0", f"--ready-file={ready}",
                       "--trusted-proxies=127.0.0.1", "--access-log=1", "--reflection=on", *flags]
            self.process = subprocess.Popen(proxy.pinned(command, cpus), stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + proxy.SECONDS
        while not ready.exists():
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.02)
        lines = dict(line.split("=", 1) for line in ready.read_text().splitlines())
        self.address, self.metrics = lines["grpc"], lines["metrics"]

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def token(folder: pathlib.Path, **claims: object) -> str:
    """A token (JWT) signed by the key in the folder."""

    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = ".".join(text(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "k"}, claims))
    made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", folder / "jwt.key"], input=signed.encode(), check=True,
                          capture_output=True)
    return f"{signed}.{text(made.stdout)}"


def add_options(profile: dict, folder: pathlib.Path) -> None:
    """The filters of options.yaml, with a key for tokens in the folder."""
    subprocess.run(["openssl", "genrsa", "-out", folder / "jwt.key", "2048"], check=True, capture_output=True)
    modulus = subprocess.run(["openssl", "rsa", "-in", folder / "jwt.key", "-noout", "-modulus"], check=True,
                             capture_output=True, text=True).stdout.strip().partition("=")[2]
    n = base64.urlsafe_b64encode(bytes.fromhex(modulus)).rstrip(b"=").decode()
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "etc/jwks.json").write_text(json.dumps(
        {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k", "n": n, "e": "AQAB"}]}))
    options = yaml.safe_load(proxy.moved((proxy.PROFILE / "options.yaml").read_text(), folder))
    chain = proxy.filters(profile)
    chain[-1:-1] = options


def raw(channel: grpc.Channel, path: str) -> grpc.UnaryUnaryMultiCallable:
    return channel.unary_unary(path)


class Envoy(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.replicas: list[Replica] = []
        self.envoy = None

    def tearDown(self):
        if self.envoy:
            self.envoy.stop()
        for replica in self.replicas:
            replica.kill()
        self._folder.cleanup()

    def start(self, replicas: int = 1, tls: bool = False, change=lambda profile: None, flags: tuple[str, ...] = ()) -> None:
        if tls:
            proxy.place_certificates(self.folder)
            made = self.folder / "made"
            flags = (*flags, f"--tls-cert={made}/replica.pem", f"--tls-key={made}/replica.key",
                     f"--tls-client-ca={made}/server-ca.pem")
        for i in range(replicas):
            self.replicas.append(Replica(self.folder / f"replica{i}", *flags))
        profile = proxy.load_profile(self.folder, [r.address for r in self.replicas], tls)
        change(profile)
        self.envoy = proxy.Envoy(profile, self.folder)
        self.envoy.wait_for_replicas(replicas)

    def svdctl(self, *words: object, cert: bool = True) -> subprocess.CompletedProcess:
        made = self.folder / "made"
        mine = ["--tls-cert", made / "client.pem", "--tls-key", made / "client.key"] if cert else []
        return subprocess.run([BINARIES / "svdctl", *words, "--address", "127.0.0.1:%d" % self.envoy.address[1],
                               "--tls-ca", made / "server-ca.pem", *mine, "--tls-server-name", "svdserve", "--timeout", "60s"],
                              capture_output=True, text=True)

    def test_calls_pass_with_certificates_on_both_sides(self):
        self.start(tls=True)
        matrix = self.folder / "matrix.csv"
        matrix.write_text("3,0\n0,4\n")
        done = self.svdctl("values", matrix)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.svdctl("health").returncode, 0)
        # A large matrix goes up and comes back in chunks.
        matrix.write_text("\n".join(",".join(str(i * j % 7 + (i == j)) for j in range(300)) for i in range(300)))
        done = self.svdctl("svd", matrix, "--strategy=round-robin", "--certificate", "-o", self.folder / "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("method=DecomposeLarge code=OK", self.replicas[0].log())
        stream = self.svdctl("bench", "--stream", "--duration=300ms", "--warmup=10ms", "--json")
        self.assertEqual(stream.returncode, 0, stream.stderr)
        self.assertIn("method=DecomposeStream", self.replicas[0].log())
        # Nobody without a certificate, neither at Envoy nor past it.
        self.assertEqual(self.svdctl("health", cert=False).returncode, 1)
        self.assertEqual(self.envoy.stat("listener.127.0.0.1_0.ssl.fail_verify_no_cert") > 0, True)
        past = subprocess.run([BINARIES / "svdctl", "health", "--address", self.replicas[0].address, "--tls-ca",
                               self.folder / "made/server-ca.pem", "--tls-cert", self.folder / "made/client.pem", "--tls-key",
                               self.folder / "made/client.key", "--tls-server-name", "svdserve"], capture_output=True)
        self.assertEqual(past.returncode, 1)

    def test_the_profile_is_up_to_date(self):
        self.start()
        self.assertNotIn("Deprecated", self.envoy.log())
        status, text = self.envoy.public("/stats/prometheus")
        self.assertEqual(status, 200)
        self.assertIn(b"envoy_cluster_upstream_rq", text)
        self.assertEqual(self.envoy.public("/ready")[0], 200)
        self.assertEqual(self.envoy.public("/quitquitquit")[0], 404)

    def test_clients_are_told_apart_and_cannot_lie(self):
        self.start()
        for source in (ATTACKER, "127.0.0.3"):
            client = Connection(self.envoy.address, source)
            self.assertTrue(client.call(DECOMPOSE, HONEST_REQUEST))
            client.close()
        with grpc.insecure_channel("%s:%d" % self.envoy.address) as channel:
            raw(channel, DECOMPOSE)(HONEST_REQUEST, metadata=[("x-forwarded-for", "192.0.2.9"), ("x-request-id", "mine")])
        peers = [dict(word.partition("=")[::2] for word in line.split()).get("peer")
                 for line in self.replicas[0].log().splitlines() if "method=Decompose " in line]
        self.assertEqual(peers[:2], [ATTACKER, "127.0.0.3"])
        self.assertNotEqual(peers[2], "192.0.2.9")
        self.assertIn("id=mine", self.replicas[0].log())

    def test_what_is_not_for_clients_ends_at_envoy(self):
        self.start()
        with grpc.insecure_channel("%s:%d" % self.envoy.address) as channel:
            for path in (REFLECTION, "/svdserve.v1.Other/Call"):
                with self.assertRaises(grpc.RpcError) as caught:
                    raw(channel, path)(b"")
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
            watch = channel.unary_stream(WATCH)(b"")
            self.assertEqual(next(watch), b"\x08\x01")
            watch.cancel()

    def test_a_replica_that_dies_costs_no_call(self):
        self.start(replicas=3)
        stop, answered = threading.Event(), []

        def call_until_stopped() -> int:
            count = 0
            with grpc.insecure_channel("%s:%d" % self.envoy.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                decompose = raw(channel, DECOMPOSE)
                while not stop.is_set():
                    decompose(HONEST_REQUEST, timeout=60)
                    count += 1
                    answered.append(1)
            return count

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            callers = [pool.submit(call_until_stopped) for _ in range(8)]
            with contextlib.ExitStack() as stack:
                stack.callback(stop.set)
                for number, replica in ((signal.SIGKILL, self.replicas[0]), (signal.SIGTERM, self.replicas[1])):
                    before = len(answered)
                    self.wait(lambda: len(answered) > before + 100)
                    replica.process.send_signal(number)
                    replica.process.wait()
                before = len(answered)
                self.wait(lambda: len(answered) > before + 100)
            self.assertGreater(min(caller.result() for caller in callers), 0)
        self.assertEqual(self.replicas[1].process.returncode, 0)

    def test_a_replica_that_hangs_is_left(self):
        self.start(replicas=2)
        self.replicas[0].process.send_signal(signal.SIGSTOP)
        self.envoy.wait_for_replicas(1)
        honest_calls(self.envoy, 10)
        self.replicas[0].process.send_signal(signal.SIGCONT)
        self.envoy.wait_for_replicas(2)

    def test_attacks_harm_nobody(self):
        self.start()
        quiet = honest_calls(self.envoy, 100 if STRICT else 10)
        for name in attacks.ATTACKS:
            with self.subTest(attack=name):
                attacker = start_attack(name, self.envoy.address, f"--seconds={8 if STRICT else 2.5}")
                busy = honest_calls(self.envoy, 300 if STRICT else 60)
                done = json.loads(attacker.communicate()[0])
                bar = 2 * percentile(quiet, 0.99) + 0.1
                print(f"{name:16} calls {len(busy)}  p50 {percentile(busy, 0.5) * 1e3:5.1f} ms  p99 "
                      f"{percentile(busy, 0.99) * 1e3:6.1f} ms  bar {bar * 1e3:6.1f} ms  sent {done['bytes'] / 1e6:.0f} MB, cut off "
                      f"{len(done['cut_off'])} times", flush=True)
                self.assertGreater(done["parts"], 10)
                if name != "bad_bin_header":  # which Envoy drops, and answers the call
                    self.assertGreater(len(done["cut_off"]), 0)
                if STRICT:
                    self.assertLess(percentile(busy, 0.99), bar)
        # Nothing has broken a connection to the replica, on which calls of others are.
        self.assertEqual(self.envoy.stat("cluster.svdserve.upstream_cx_destroy_remote_with_active_rq"), 0)

    def test_without_the_rule_a_header_of_bytes_harms_others(self):
        """The rule is needed: a test that never fails proves nothing."""

        def drop_the_rule(profile: dict) -> None:
            chain = proxy.filters(profile)
            self.assertEqual(chain.pop(0)["name"], "envoy.filters.http.header_mutation")

        self.start(change=drop_the_rule)
        attacks.attack("bad_bin_header", self.envoy.address, 1, 3, False)
        self.assertGreater(self.envoy.stat("cluster.svdserve.upstream_cx_destroy_remote_with_active_rq"), 0)

    def test_tokens_and_rates(self):
        def change(profile: dict) -> None:
            add_options(profile, self.folder)
            bucket = proxy.filters(profile)[-2]["typed_config"]["descriptors"][0]["token_bucket"]
            bucket.update(max_tokens=20, tokens_per_fill=1, fill_interval="60s")

        self.start(change=change)
        claims = {"iss": "https://issuer.example.com", "aud": "svdserve", "sub": "somebody", "exp": int(time.time()) + 600}
        good = token(self.folder, **claims)
        bad = [None, good[:-8] + "AAAAAAAA", token(self.folder, **{**claims, "aud": "other"}),
               token(self.folder, **{**claims, "exp": int(time.time()) - 600}), token(self.folder, **{**claims, "iss": "other"})]
        with grpc.insecure_channel("%s:%d" % self.envoy.address) as channel:
            call = raw(channel, DECOMPOSE)

            def code(text: str | None) -> grpc.StatusCode:
                try:
                    call(HONEST_REQUEST, metadata=[("authorization", f"Bearer {text}")] if text else [])
                except grpc.RpcError as error:
                    return error.code()
                return grpc.StatusCode.OK

            self.assertEqual([code(b) for b in bad[:2]], 2 * [grpc.StatusCode.UNAUTHENTICATED])
            self.assertEqual({code(b) for b in bad[2:]} - {grpc.StatusCode.UNAUTHENTICATED,
                                                           grpc.StatusCode.PERMISSION_DENIED}, set())
            raw(channel, CHECK)(b"")
            codes = [code(good) for _ in range(40)]
        self.assertEqual(codes[0], grpc.StatusCode.OK)
        self.assertEqual(codes[-1], grpc.StatusCode.RESOURCE_EXHAUSTED)

    def wait(self, holds) -> None:
        end = time.monotonic() + proxy.SECONDS
        while not holds():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main(argv=read_command_line())
