"""The guard on connections: without Envoy, attacks on the transport are cut off, and honest clients never are.

    build/release/tests/lint/tools/bin/python tests/edge/guard_test.py build/release/bin [Guard.test_offenders ..]
    .. build/release/bin --strict       # times, too: each offender within 5 s, service back within 5 s; on a quiet machine

With --attacker-cpus=2,3 the attacker has processors of its own, as a machine of its own would.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

import attacks
import envoy_test as edge
import grpc
import proxy
from hostile_test import ATTACKER, DECOMPOSE, HONEST, HONEST_REQUEST, STREAM, Connection, framed, message, number, request

CUT_OFF = [name for name in attacks.ATTACKS if name != "bad_bin_header"]  # libgrpc itself ends that one


class Guard(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.kill()
        self._folder.cleanup()

    def start(self, *flags: str) -> None:
        self.tearDown()
        self.setUp()
        self.server = edge.Replica(self.folder / "server", "--access-log=0", "--trusted-proxies=192.0.2.1", "--threads=2",
                                   "--metrics-max-age=0s", *flags)
        host, port = self.server.address.rsplit(":", 1)
        self.address = (host, int(port))

    def cut_off(self) -> float:
        """How many connections the guard has broken."""
        with urllib.request.urlopen(f"http://{self.server.metrics}/metrics", timeout=proxy.SECONDS) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith("svdserve_cut_off_connections_total"))

    def wait_for_service(self) -> float:
        """Seconds until a new client gets a reply."""
        begin = time.monotonic()
        while time.monotonic() < begin + proxy.SECONDS:
            with contextlib.suppress(OSError):
                client = Connection(self.address, HONEST)
                served = client.call(DECOMPOSE, HONEST_REQUEST, 1)
                client.close()
                if served:
                    return time.monotonic() - begin
        self.fail("the server does not answer")

    def svdctl(self, *words: object) -> None:
        done = subprocess.run([edge.BINARIES / "svdctl", *map(str, words), "--address", self.server.address, "--timeout=60s"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_offenders_are_cut_off(self):
        for name in CUT_OFF:
            with self.subTest(attack=name):
                self.start()
                self.wait_for_service()
                done = json.loads(edge.start_attack(name, self.address, "--seconds=60", "--once").communicate()[0])
                back = self.wait_for_service()
                print(f"{name:16} cut off after {max(done['cut_off'], default=0):.1f} s, service back after {back:.1f} s",
                      flush=True)
                self.assertEqual(done["left"], 0)
                self.assertGreater(self.cut_off(), 0)
                self.assertIn(f"event=connection_cut_off peer={ATTACKER}", self.server.log())
                if edge.STRICT:
                    self.assertLess(max(done["cut_off"]), 5)
                    self.assertLess(back, 5)
        # It may not come back at once. Others may come.
        again = socket.create_connection(self.address, source_address=(ATTACKER, 0), timeout=proxy.SECONDS)
        with again, contextlib.suppress(ConnectionError):
            self.assertEqual(again.recv(1), b"")
        self.wait_for_service()

    def test_without_it_nobody_is(self):
        self.start("--connection-guard=0s")
        done = attacks.attack("many_headers", self.address, 2, 1, True)
        self.assertEqual(done["left"], 1)
        self.assertEqual(self.cut_off(), 0)

    def test_honest_clients_stay(self):
        """The guard has no patience here: one look beyond a bound would be enough."""
        self.start("--connection-guard=1ms")
        self.upload_slowly()
        self.call_often()
        self.give_up_calls()
        large = self.folder / "large.csv"
        large.write_text("\n".join(",".join(str((i * j + i) % 1000) for j in range(900)) for i in range(900)))
        for words in (["bench", "--shape=64x64", "--request-bytes=60000000", "--duration=2s", "--warmup=10ms"],
                      ["bench", "--count=1", "--concurrency=64", "--duration=2s", "--warmup=10ms"],
                      ["bench", "--empty", "--concurrency=16", "--duration=2s", "--warmup=10ms"],
                      ["bench", "--stream", "--window=16", "--duration=2s", "--warmup=10ms"],
                      ["bench", "--shape=640x1", "--count=2000", "--duration=2s", "--warmup=10ms"],
                      ["svd", large, "--strategy=round-robin"]):
            self.svdctl(*words)
        self.assertEqual(self.cut_off(), 0, self.server.log()[-2000:])

    def test_a_paused_client_stays(self):
        """The server cuts off a stream whose client stops in the midst of a message. The rest of the message comes late."""
        self.start("--connection-guard=1ms", "--stream-idle-timeout=1s")
        client = Connection(self.address, HONEST)
        whole = framed(number(1, 1) + message(2, request(64, 64, 60)))
        stream = client.open(STREAM)
        client.write(stream, whole)
        client.read_for(proxy.SECONDS, lambda: client.received.get(stream, 0) > 0)
        half = len(whole) // 2
        client.write(stream, whole[:half])
        client.read_for(proxy.SECONDS, lambda: stream in client.ended)
        client.read_for(2)  # some looks
        client.ended.discard(stream)
        client.write(stream, whole[half:], patience=1)
        client.read_for(2)
        self.assertTrue(client.call(DECOMPOSE, HONEST_REQUEST, proxy.SECONDS))
        client.close()
        self.assertEqual(self.cut_off(), 0, self.server.log()[-2000:])

    def test_honest_clients_stay_with_certificates(self):
        proxy.place_certificates(self.folder)
        made = self.folder / "made"
        flags = [f"--tls-cert={made}/replica.pem", f"--tls-key={made}/replica.key", f"--tls-client-ca={made}/server-ca.pem"]
        self.server = edge.Replica(self.folder / "server", "--access-log=0", "--trusted-proxies=192.0.2.1",
                                   "--metrics-max-age=0s", "--connection-guard=1ms", *flags)
        tls = ["--tls-ca", made / "server-ca.pem", "--tls-cert", made / "edge.pem", "--tls-key", made / "edge.key",
               "--tls-server-name", "svdserve"]
        for words in (["bench", "--count=1", "--concurrency=64", "--duration=2s", "--warmup=10ms"],
                      ["bench", "--shape=64x64", "--request-bytes=30000000", "--duration=2s", "--warmup=10ms"],
                      ["bench", "--stream", "--duration=2s", "--warmup=10ms"]):
            self.svdctl(*words, *tls)
        self.assertEqual(self.cut_off(), 0, self.server.log()[-2000:])

    def upload_slowly(self) -> None:
        """A message of 20 MB in a few seconds, and one that stays half sent."""
        client = Connection(self.address, HONEST)
        message = framed(request(64, 64, 600))
        for end in (True, False):
            stream = client.open(DECOMPOSE)
            for at in range(0, len(message) - (0 if end else 1 << 20), 1 << 18):
                client.write(stream, message[at:at + (1 << 18)], end=end and at + (1 << 18) >= len(message))
                client.read_for(0.03)
            if end:
                client.read_for(proxy.SECONDS, lambda stream=stream: stream in client.ended)
                self.assertGreater(client.received.get(stream, 0), 0)
        client.read_for(1.5)
        self.assertFalse(client.dead)
        client.close()

    def call_often(self) -> None:
        """Small calls with many headers, of which none is in HPACK's table."""
        with grpc.insecure_channel(self.server.address) as channel:
            call = channel.unary_unary(DECOMPOSE)
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                headers = [(f"x-{i}", os.urandom(100).hex()) for i in range(20)]
                pending = [call.future(HONEST_REQUEST, metadata=headers) for _ in range(50)]
                for one in pending:
                    one.result(timeout=proxy.SECONDS)

    def give_up_calls(self) -> None:
        """Calls of 1 MB whose deadlines pass while they are sent."""
        big = request(64, 64, 30)
        with grpc.insecure_channel(self.server.address) as channel:
            call = channel.unary_unary(DECOMPOSE)
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                pending = [call.future(big, timeout=0.01) for _ in range(10)]
                for one in pending:
                    with contextlib.suppress(grpc.RpcError):
                        one.result()


if __name__ == "__main__":
    unittest.main(argv=edge.read_command_line())
