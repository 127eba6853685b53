"""The Python client of the last release works with this server: everything that it knows, against NumPy.

    python3 tests/python/old_client_test.py --release proto/released/e156949 --build build/release

The wheel is installed, with what it depends on, into an environment of its own in the build tree. The next run finds it
there. Needs PyPI when it first runs. proto/released/README.md says what the last release is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_SECONDS = 60  # a server built with sanitizers on a busy machine


def install(wheel: Path, venv: Path) -> Path:
    """The interpreter of an environment with the wheel."""
    python, stamp = venv / "bin" / "python", venv / "installed"
    state = sys.version + hashlib.sha256(wheel.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != state:
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel], check=True)
        stamp.write_text(state)
    return python


def run(python: Path, build: Path) -> int:
    """Runs this file by the old client's interpreter beside a server of the build. Returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready")
        server = subprocess.Popen([build / "bin" / "svdserve", "--listen=127.0.0.1:0", "--metrics-listen=",
                                   "--drain-delay=0s", f"--ready-file={ready}"], stderr=subprocess.DEVNULL)
        try:
            give_up = time.monotonic() + START_SECONDS
            while not (ready.exists() and ready.read_text()):
                if server.poll() is not None or time.monotonic() > give_up:
                    sys.exit("the server did not start")
                time.sleep(0.02)
            address = next(line[5:] for line in ready.read_text().splitlines() if line.startswith("grpc="))
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            return subprocess.run([python, __file__, "--ask", address], env=environment, timeout=300).returncode
        finally:
            server.terminate()
            server.wait()


def ask(address: str) -> None:
    """The old client's side."""
    import asyncio

    import numpy as np
    import svdserve

    rng = np.random.default_rng(1)

    def random(shape, dtype):
        return (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else 0)).astype(dtype)

    def check_svd(a, u, s, vh):
        np.testing.assert_allclose((u * s[..., None, :]) @ vh, a, atol=50 * np.finfo(a.dtype).eps * np.abs(s).max())

    with svdserve.Client(address) as client:
        info = client.info()
        assert info.version and info.limits.max_values >= 32 and info.devices, info
        assert client.health() == "SERVING"
        for dtype in ("f4", "f8", "c8", "c16"):
            a = random((200, 5, 4), dtype)
            exact = np.linalg.svd(a, compute_uv=False)
            np.testing.assert_allclose(client.svdvals(a), exact, rtol=0, atol=50 * np.finfo(a.dtype).eps * exact.max())
            check_svd(a, *client.svd(a, full_matrices=False)[:3])
        h = random((300, 4, 4), "c8")
        s = np.linalg.svd(h.astype("c16"), compute_uv=False)
        np.testing.assert_allclose(client.capacity(h, [0.0, 10.0])[:, 1], np.log2(1 + 10 * s ** 2 / 4).sum(-1), rtol=1e-4)
        assert client.capacity(h, 10.0, water_filling=True).shape == (300,)
        v = client.precoders(h, 2)
        np.testing.assert_allclose(v.conj().swapaxes(-1, -2) @ v, np.broadcast_to(np.eye(2), (300, 2, 2)), atol=1e-5)
        mimo = client.mimo(h, condition_number=True, effective_rank=True)
        np.testing.assert_allclose(mimo.condition_number, s[:, 0] / s[:, -1], rtol=1e-3)
        shapes = [random((3, 2, 7), "f8"), random((2, 6, 6), "f8")]
        for x, values in zip(shapes, client.svdvals(shapes)):
            np.testing.assert_allclose(values, np.linalg.svd(x, compute_uv=False), atol=1e-13)
        bad = h.copy()
        bad[7, 0, 0] = np.nan
        _, status = client.svdvals(bad, return_status=True)
        assert status.nonzero()[0].tolist() == [7], status
        large = random((700, 600), "f8")
        check_svd(large, *client.svd(large, full_matrices=False)[:3])
        g, j = random((40, 30), "f8"), np.where(np.arange(30) % 3, 1, -1)
        u, s, vh = client.hsvd(g, j)[:3]
        np.testing.assert_allclose((u * s) @ vh, g, atol=1e-11)
        for wrong, field in ((dict(tolerance=3.0), "tolerance"), (dict(max_sweeps=5000, method="jacobi"), "max_sweeps")):
            try:
                client.svdvals(h, **wrong)
            except svdserve.InvalidArgument as error:
                assert field in error.field, error
            else:
                raise AssertionError(wrong)
        try:
            client.svdvals(random((2000, 32, 32), "f8"), timeout=1e-4)
        except svdserve.DeadlineExceeded:
            pass
        else:
            raise AssertionError("the deadline was not kept")

    async def both():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(client.svdvals(h), client.info())

    values, _ = asyncio.run(both())
    np.testing.assert_allclose(values, np.linalg.svd(h, compute_uv=False), atol=1e-4)
    print("svdserve", svdserve.__version__, "of", svdserve.__file__, "with the server", info.version)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--release", type=Path, help="folder of the release, with its wheel")
    parser.add_argument("--build", type=Path, help="build tree with bin/svdserve")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        ask(args.ask)
        return 0
    build = args.build.resolve()
    (wheel,) = args.release.resolve().glob("*.whl")
    return run(install(wheel, build / "tests" / "python" / "old_client"), build)


if __name__ == "__main__":
    sys.exit(main())
