"""svdserve.linalg: NumPy's functions, by NumPy's own tests."""

import concurrent.futures
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpys_linalg import OURS
from test_arrays import OnDevice

import svdserve
from svdserve import linalg

HERE = Path(__file__).parent
CLASSES = "SVD or Pinv or MatrixRank or Cond or Norm or Eig or Lstsq"


@pytest.fixture(autouse=True)
def client(address):
    with svdserve.Client(address) as client:
        linalg.use(client)
        yield client
        linalg.use(None)


def matrices(rng, *shape, dtype="f8"):
    a = rng.standard_normal(shape)
    return (a + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else a).astype(dtype)


def test_numpys_own_tests_pass(address):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "numpys_linalg", "-p", "no:cacheprovider", "-W", "ignore",
         "-k", CLASSES, "--pyargs", "numpy.linalg.tests.test_linalg"],
        env={**os.environ, "SVDSERVE_ADDRESS": address, "PYTHONPATH": str(HERE)}, cwd=HERE, capture_output=True, text=True,
        timeout=900)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 100


@pytest.mark.parametrize("name", OURS)
def test_signatures_are_numpys(name):
    if not hasattr(np.linalg, name):
        pytest.skip("this NumPy does not have it")
    theirs = inspect.signature(getattr(np.linalg, name)).parameters
    mine = inspect.signature(getattr(linalg, name)).parameters
    assert [name for name in mine if name in theirs] == list(theirs)
    for name, parameter in theirs.items():
        assert mine[name].kind == parameter.kind
        assert name in ("rtol", "rcond") or mine[name].default == parameter.default  # these two have changed with NumPy


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_stacks(rng, dtype):
    a = matrices(rng, 5, 6, 4, dtype=dtype)
    a[1] = 0
    a[2, :, 1] = a[2, :, 0]
    close = dict(rtol=0, atol=200 * np.finfo(dtype).eps)
    np.testing.assert_allclose(linalg.pinv(a, rcond=1e-5), np.linalg.pinv(a, rcond=1e-5), **close)
    assert linalg.pinv(a).dtype == a.dtype
    assert linalg.matrix_rank(a).tolist() == np.linalg.matrix_rank(a).tolist() == [4, 0, 3, 4, 4]
    np.testing.assert_allclose(linalg.cond(a[3:]), np.linalg.cond(a[3:]), rtol=1e-4)
    assert linalg.cond(a)[1] == np.inf  # the zero matrix
    for order in (2, -2, "nuc"):
        for axis in ((1, 2), (2, 0), (-1, -3)):
            for keep in (True, False):
                mine, theirs = (f(a, order, axis, keep) for f in (linalg.norm, np.linalg.norm))
                assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
                np.testing.assert_allclose(mine, theirs, **close)
    assert linalg.norm(a) == np.linalg.norm(a) and linalg.norm(a[0], 1) == np.linalg.norm(a[0], 1)
    h = a @ a.conj().swapaxes(-1, -2) - np.eye(6, dtype=dtype)
    u, s, vh = linalg.svd(h, hermitian=True)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, h, **close)
    np.testing.assert_allclose(linalg.svd(h, compute_uv=False, hermitian=True), np.linalg.svd(h, compute_uv=False), **close)


@pytest.mark.parametrize("axis", [(0, 0), (0, 3), (0, 1, 2), "x"])
def test_wrong_axes_get_numpys_errors(axis):
    raised = []
    for norm in (np.linalg.norm, linalg.norm):
        with pytest.raises(Exception) as told:
            norm(np.ones((2, 2, 2)), 2, axis)
        raised.append((type(told.value), str(told.value)))
    assert raised[0] == raised[1]


@pytest.mark.parametrize("function", [linalg.svd, linalg.svdvals, linalg.pinv, linalg.matrix_rank, linalg.eigh, linalg.eigvalsh,
                                      linalg.eig, linalg.eigvals])
@pytest.mark.parametrize("order", [3, 600])
def test_what_is_not_finite_is_a_linalg_error(function, order):
    a = np.eye(order)
    a[1, 1] = np.nan
    with pytest.raises(np.linalg.LinAlgError):
        function(a)


def test_cond_of_what_is_not_finite():
    assert np.isnan(linalg.cond([[np.nan, 0], [0, 1]])) and linalg.cond(np.zeros((2, 2))) == np.inf
    with pytest.raises(np.linalg.LinAlgError, match="empty"):
        linalg.cond(np.zeros((0, 2)))


def test_arrays_of_other_libraries(monkeypatch, rng):
    monkeypatch.setitem(sys.modules, "cupy", type("cupy", (), dict(ndarray=OnDevice, asarray=OnDevice)))
    a = matrices(rng, 4, 4)
    for name in OURS:
        mine, device = (getattr(linalg, name)(x) for x in (a, OnDevice(a)))
        pairs = zip(mine, device) if isinstance(mine, tuple) else [(mine, device)]
        for x, y in pairs:
            assert isinstance(y, OnDevice) and np.array_equal(x, y.data)
    assert isinstance(linalg.norm(x=OnDevice(a), ord="nuc"), OnDevice)


def test_other_names_are_numpys():
    assert linalg.solve is np.linalg.solve and linalg.LinAlgError is np.linalg.LinAlgError and "qr" in dir(linalg)
    with pytest.raises(AttributeError, match="has no attribute 'solv'"):
        linalg.solv  # noqa: B018
    with pytest.raises(TypeError, match="missing"):
        linalg.svd()


def test_all_threads_share_one_client(address, monkeypatch):
    monkeypatch.setenv("SVDSERVE_ADDRESS", address)
    made = []

    def count(*arguments):
        made.append(svdserve.Client(*arguments))
        return made[-1]

    monkeypatch.setattr(linalg, "Client", count)
    linalg.use(None)
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda n: linalg.svdvals(np.eye(n)), range(1, 100)))
    linalg.use(address)
    assert linalg.svdvals(np.eye(2)).tolist() == [1, 1]
    assert [client._settings.address for client in made] == [address, address]
    for client in made:
        client.close()


def test_a_process_ends_with_its_client(address):
    code = "from svdserve import linalg; print(linalg.svdvals([[3, 0], [0, 4]]))"
    ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "SVDSERVE_ADDRESS": address}, capture_output=True,
                         text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[4. 3.]\n", "")


def test_one_norm_is_a_number():
    for order in (2, -2, "nuc"):
        assert isinstance(linalg.norm(np.eye(3), order), np.float64)
