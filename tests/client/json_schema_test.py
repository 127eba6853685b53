"""Every command's --json is what docs/svdctl.schema.json says, against the real server.

    python3 tests/client/json_schema_test.py BIN_FOLDER CHECK_JSONSCHEMA
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs" / "svdctl.schema.json"
PROGRAMS, CHECK = pathlib.Path(), pathlib.Path()


def write_npy(path, shape, numbers):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(numbers)}d", *numbers))


class JsonSchema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.server = subprocess.Popen([PROGRAMS / "svdserve", "--listen=127.0.0.1:0", "--metrics-listen=", "--drain-delay=0s",
                                       f"--ready-file={cls.folder / 'ready'}"], stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.stop)
        ready = cls.folder / "ready"
        deadline = time.monotonic() + 120
        while not (ready.exists() and ready.read_text()):
            assert time.monotonic() < deadline and cls.server.poll() is None, "the server did not start"
            time.sleep(0.05)
        cls.address = next(line[5:] for line in ready.read_text().splitlines() if line.startswith("grpc="))
        nan = float("nan")
        write_npy(cls.folder / "a.npy", "(2, 2, 2)", [4, 1, 1, 2, nan, 0, 0, 1])
        write_npy(cls.folder / "g.npy", "(3, 2)", [1, 0, 0, 1, 1, 1])
        write_npy(cls.folder / "h.npy", "(2, 2)", [2, 1, 1, 3])
        write_npy(cls.folder / "j.npy", "(2,)", [1, -1])
        write_npy(cls.folder / "none.npy", "(0, 2, 2)", [])

    @classmethod
    def stop(cls):
        cls.server.terminate()
        cls.server.wait()

    def svdctl(self, *words):
        done = subprocess.run([PROGRAMS / "svdctl", *words, "--json", "--address", self.address], cwd=self.folder,
                              capture_output=True, text=True, timeout=300)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def check(self, *texts):
        paths = []
        for i, text in enumerate(texts):
            paths.append(self.folder / f"{i}.json")
            paths[-1].write_text(text)
        return subprocess.run([CHECK, "--schemafile", SCHEMA, *paths], capture_output=True, text=True)

    def test_every_command_is_valid(self):
        commands = [("values", "a.npy", "--print"), ("values", "a.npy", "h.npy", "none.npy"),
                    ("svd", "h.npy", "-o", "x", "--certificate"), ("svd", "h.npy", "--variant", "full-block"),
                    ("hsvd", "g.npy", "j.npy", "--certificate"), ("eigh", "a.npy"), ("eigh", "h.npy", "--relative", "--certificate"),
                    ("eig", "a.npy", "--condition", "--certificate"), ("eigvals", "h.npy", "--print"), ("eigvals", "none.npy"),
                    ("capacity", "a.npy", "--snr-db", "0,10", "-o", "c.npy"), ("info",), ("health",), ("plan", "--rate", "1000"),
                    ("latency", "--rounds", "2", "--calls", "5"),
                    ("bench", "--count", "2", "--duration", "200ms", "--warmup", "0s"),
                    ("bench", "--request-bytes", "4096", "--rate", "50", "--duration", "200ms", "--warmup", "0s", "--server-pid", str(self.server.pid)),
                    ("bench", "--count", "2", "--duration", "50ms", "--warmup", "0s", "--rate", "2000", "--find-rate-p99", "60s")]
        texts = [self.svdctl(*command) for command in commands]
        checked = self.check(*texts)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        seen = {json.loads(text)["command"] for text in texts}
        listed = json.loads(SCHEMA.read_text())["$defs"]
        named = {name for d in listed.values() if "command" in d.get("properties", {})
                 for name in d["properties"]["command"].get("enum", [d["properties"]["command"].get("const")])}
        self.assertEqual(seen, named)
        # Numbers that are not finite are null, and complex numbers are pairs.
        values = json.loads(texts[0])["files"][0]
        self.assertEqual(values["values"][1], [None, None])
        self.assertEqual(values["exceptions"], [{"index": [1], "status": "non_finite"}])
        self.assertEqual([len(x) for x in json.loads(texts[8])["files"][0]["values"][0]], [2, 2])

    def test_another_object_is_not(self):
        info = json.loads(self.svdctl("info"))
        for change in ({"version": 1}, {"more": 1}, {"command": "information"}):
            self.assertNotEqual(self.check(json.dumps({**info, **change})).returncode, 0, change)
        del info["devices"]
        self.assertNotEqual(self.check(json.dumps(info)).returncode, 0)


if __name__ == "__main__":
    CHECK = pathlib.Path(sys.argv.pop()).resolve()
    PROGRAMS = pathlib.Path(sys.argv.pop()).resolve()
    unittest.main()
