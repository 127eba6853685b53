"""The examples: channels after the tables of TR 38.901, and what a user sees who runs them."""

import csv
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from svdserve.examples import antenna_selection, array_positions, cdl_channels, channel_eigenvalues, damped_modes, mimo_capacity

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "tests/data/cdl_c_4x4.npy"
MEAN_CAPACITY = {"cdl_c_4x4": 9.796857, "cdl_a_8x8": 18.103140, "cdl_d_4x64": 7.955041}  # bit/s/Hz at 10 dB


@pytest.fixture(scope="module")
def standard_sets():
    rng = np.random.default_rng(cdl_channels.DEFAULT_SEED)
    return {what.name: (what, cdl_channels.generate(what, rng)) for what in cdl_channels.STANDARD_SETS}


def test_the_generator_reproduces_the_reference_file(standard_sets):
    reference = np.load(REFERENCE)
    channels = standard_sets["cdl_c_4x4"][1]
    assert (channels.shape, channels.dtype) == (reference.shape, reference.dtype) == ((8448, 4, 4), np.complex64)
    np.testing.assert_allclose(channels, reference, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MEAN_CAPACITY)
def test_mean_capacity(standard_sets, client, name):
    what, channels = standard_sets[name]
    values = client.svdvals(channels)
    assert cdl_channels.capacity(values, what.n_tx).mean() == pytest.approx(MEAN_CAPACITY[name], abs=2e-6)


def test_mean_capacity_of_the_reference_file(client):
    values = client.svdvals(np.load(REFERENCE))
    assert cdl_channels.capacity(values, 4).mean() == pytest.approx(MEAN_CAPACITY["cdl_c_4x4"], abs=2e-6)


def test_statistics_of_the_channels(standard_sets):
    for what, channels in standard_sets.values():
        assert channels.shape == (what.drops * what.subcarriers, what.n_rx, what.n_tx)
        assert np.mean(np.abs(channels) ** 2) == pytest.approx(1, rel=1e-5)
    # The line-of-sight ray of profile D holds 0.97 of the power: its channels are close to rank one.
    s = np.linalg.svd(standard_sets["cdl_d_4x64"][1], compute_uv=False)
    assert np.median(s[:, 0] ** 2 / (s ** 2).sum(axis=1)) > 0.9


def test_the_tables_are_whole():
    profiles = cdl_channels.profiles()["profiles"]
    assert {name: len(p["clusters"]) for name, p in profiles.items()} == {"A": 23, "C": 24, "D": 14}
    for profile in profiles.values():
        delays, powers, *angles = np.array(profile["clusters"]).T
        assert delays[0] == 0 and (delays >= 0).all() and (powers <= 0).all()
        assert (np.abs(angles[:2]) <= 180).all() and (np.array(angles[2:]) >= 0).all()
    # The rays of a cluster have the unit angular spread that its own spread multiplies.
    offsets = np.array(cdl_channels.profiles()["ray_offsets"])
    assert np.sqrt(np.mean(offsets ** 2)) == pytest.approx(1, abs=2e-3)


def test_a_seed_means_the_same_channels():
    what = cdl_channels.ChannelSet("D", 2, 3, 1e-7, drops=2, subcarriers=4)
    one, again, other = (cdl_channels.generate(what, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.tobytes() == again.tobytes() != other.tobytes()


@pytest.mark.parametrize("wrong", [dict(profile="B"), dict(n_rx=0), dict(drops=0)])
def test_wrong_sets(wrong):
    with pytest.raises(ValueError):
        cdl_channels.generate(cdl_channels.ChannelSet(**(dict(profile="A", n_rx=2, n_tx=2, delay_spread_seconds=1e-7,
                                                              drops=1, subcarriers=1) | wrong)),
                              np.random.default_rng(1))


def run(*arguments, **options):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


def test_the_generators_command(tmp_path):
    done = run("-m", "svdserve.examples.cdl_channels", "--profile", "A", "--rx", 2, "--tx", 3, "--drops", 2,
               "--subcarriers", 5, "--out", tmp_path / "new" / "a.npy")
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "new" / "a.npy").shape == (10, 2, 3)


def test_the_capacity_command(address):
    done = run("-m", "svdserve.examples.mimo_capacity", address, "--check")
    assert done.returncode == 0, done.stderr + done.stdout
    mean = re.search(r"capacity at 10 dB +mean +([0-9.]+)", done.stdout)
    assert float(mean[1]) == pytest.approx(MEAN_CAPACITY["cdl_c_4x4"], abs=1e-4)
    assert "8448 channels, 4x4 complex64" in done.stdout and "agrees" in done.stdout
    assert all(len(line) <= 120 for line in done.stdout.splitlines())


def test_the_capacity_command_as_a_script_with_a_file(address, tmp_path):
    a = np.random.default_rng(1).standard_normal((3, 5, 2, 12))
    a[0, 0, 0, 0] = np.nan
    np.save(tmp_path / "h.npy", a)
    done = run(ROOT / "client/python/examples/mimo_capacity.py", address, tmp_path / "h.npy", "--check")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "1 of 15 with a status other than OK" in done.stdout


def test_the_capacity_command_without_a_server():
    done = run("-m", "svdserve.examples.mimo_capacity", "127.0.0.1:1", "--timeout", "5")
    assert done.returncode == 1 and "UNAVAILABLE" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("more", [[], ["--method", "jacobi"], ["--hyperbolic"]])
def test_the_large_factor_command(address, more):
    done = run("-m", "svdserve.examples.large_matrix", address, "--order", 150, "--check", *more)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "  upload " in done.stdout and "  download " in done.stdout and "\r" not in done.stdout
    assert "150 x 150 float64 in " in done.stdout and done.stdout.count(": good") == (3 if "--hyperbolic" in more else 4)


def test_the_large_factor_command_with_a_file(address, tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(1).standard_normal((140, 160)).astype(np.complex64))
    done = run("-m", "svdserve.examples.large_matrix", address, tmp_path / "a.npy", "--check")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "140 x 160 complex64" in done.stdout
    assert run("-m", "svdserve.examples.large_matrix", "127.0.0.1:1", "--order", 40).returncode == 1


def test_the_structure_modes_command(address, tmp_path):
    done = run("-m", "svdserve.examples.structure_modes", address, "--plot", tmp_path / "modes.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    ours, numpys = re.search(r"of all: (\S+) by eigh_factored, (\S+) by NumPy", done.stdout).groups()
    assert float(ours) < 1e-11 and float(numpys) > 1e-3  # log10 of a product of 48 eigenvalues
    assert (tmp_path / "modes.svg").exists() or "matplotlib is not installed" in done.stdout
    # The whole stack on its lowest isolator is the slowest mode but for the softer ones above: of one part it is known.
    alone = run("-m", "svdserve.examples.structure_modes", address, "--parts", 1, "--masses", 5)
    slowest = float(re.search(r"mode  1  eigh_factored +([0-9.e-]+)", alone.stdout)[1])
    assert slowest == pytest.approx(np.sqrt(10.0 / 500) / (2 * np.pi), rel=1e-5)


def test_the_structure_modes_command_explains_itself():
    assert run("-m", "svdserve.examples.structure_modes", "127.0.0.1:1", "--soft", 0).returncode == 2
    done = run("-m", "svdserve.examples.structure_modes", "127.0.0.1:1")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_dampers_in_every_storey_damp_each_mode_by_itself(client):
    """Then C = c / k K, and every mode has l^2 + g c / m l + g k / m = 0, g an eigenvalue of the chain of ones."""
    a, da = damped_modes.motion(5, 1)
    dampings = damped_modes.UNIT * np.logspace(-2, 2, 80)
    found = client.eig(a + dampings[:, None, None] * da, left=True)
    rates, _ = damped_modes.slopes(found, da)
    values = np.take_along_axis(found.eigenvalues, damped_modes.followed(found.eigenvalues, rates, dampings), -1)
    g = np.linalg.eigvalsh(damped_modes.chain(np.ones(5)))
    critical = 2 * np.sqrt(damped_modes.STIFFNESS * damped_modes.MASS / g)
    starts = damped_modes.overdamped_from(values)
    assert np.array_equal(starts, np.searchsorted(dampings, critical))
    b, w2 = np.outer(dampings, g) / damped_modes.MASS, g * damped_modes.STIFFNESS / damped_modes.MASS
    root = np.sqrt(b ** 2 - 4 * w2 + 0j)
    expected = np.stack([(-b - root) / 2, (-b + root) / 2], -1)  # the imaginary part of the first one is negative
    for mode, start in enumerate(starts):
        assert np.abs(values[:start, 2 * mode:2 * mode + 2] - expected[:start, mode]).max() < 1e-9
    assert np.abs(np.sort_complex(values) - np.sort_complex(expected.reshape(values.shape))).max() < 1e-7
    assert damped_modes.difference(client, a, da, dampings, found) < 1e-5


def test_the_damped_modes_command(address, tmp_path):
    done = run("-m", "svdserve.examples.damped_modes", address, "--steps", 60, "--plot", tmp_path / "dampers.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    hertz = [float(f) for f in re.findall(r"mode [0-9]+: +([0-9.]+) Hz", done.stdout)]
    # Weak dampers leave the frequencies sqrt(k / m) / pi sin(pi (2 i - 1) / (4 n + 2)) of the chain.
    assert np.allclose(hertz, np.sqrt(1e3) / np.pi * np.sin(np.pi * np.arange(1, 12, 2) / 26), atol=1e-3)
    assert done.stdout.count("never overdamped") == 3 == done.stdout.count("overdamped from")
    assert float(re.search(r"at most (\S+) from finite", done.stdout)[1]) < 1e-5
    assert all(len(line) <= 120 for line in done.stdout.splitlines())
    assert (tmp_path / "dampers.svg").exists() or "matplotlib is not installed" in done.stdout


def test_the_damped_modes_command_explains_itself():
    assert run("-m", "svdserve.examples.damped_modes", "127.0.0.1:1", "--every", 0).returncode == 2
    done = run("-m", "svdserve.examples.damped_modes", "127.0.0.1:1")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_channels_of_neighbours_are_alike():
    rng = np.random.default_rng(2)
    h = channel_eigenvalues.channels(6, 5, 3, 1e-8, 10, rng)
    assert (h.shape, h.dtype) == ((3, 5, 6, 6), np.complex64)
    assert np.mean(np.abs(h) ** 2) == pytest.approx(1, rel=0.3)
    size = np.linalg.norm(h, axis=(-2, -1)).max()
    assert 0 < np.linalg.norm(h[:, 1:] - h[:, :-1], axis=(-2, -1)).max() < 0.01 * size
    assert 0 < np.linalg.norm(h[1:] - h[:-1], axis=(-2, -1)).max() < 0.04 * size


def test_neighbours_of_a_channel_save_sweeps(client):
    h = channel_eigenvalues.channels(12, 16, 3, 1e-8, 10, np.random.default_rng(2))
    slots = channel_eigenvalues.follow(client, h)
    cold = channel_eigenvalues.sweeps_needed(client, h[2])
    warm = channel_eigenvalues.sweeps_needed(client, h[2], slots[1].eigenvectors)
    assert 1 <= warm <= cold - 2
    values = slots[2].eigenvalues.astype("c16")
    assert np.abs(np.sort_complex(values.sum(-1)) - np.sort_complex(np.trace(h[2], axis1=1, axis2=2))).max() < 1e-4
    assert channel_eigenvalues.order_kept(np.array([[1, 2j], [1.1, 2.1j], [2.2j, 1.2]])).tolist() == [True, False]


def test_the_channel_eigenvalues_command(address, tmp_path):
    done = run("-m", "svdserve.examples.channel_eigenvalues", address, "--slots", 3, "--repeats", 1, "--plot",
               tmp_path / "eigenvalues.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    cold, centre, before = (int(s) for s in re.findall(r"jacobi from .* ([0-9]+) sweeps", done.stdout))
    assert max(centre, before) < cold <= channel_eigenvalues.MOST_SWEEPS
    assert re.search(r"order kept in [0-9]+ of 63 steps .* [0-9]+ of 128 from slot to slot", done.stdout)
    assert all(len(line) <= 120 for line in done.stdout.splitlines())
    assert (tmp_path / "eigenvalues.svg").exists() or "matplotlib is not installed" in done.stdout


def test_the_channel_eigenvalues_command_explains_itself():
    assert run("-m", "svdserve.examples.channel_eigenvalues", "127.0.0.1:1", "--slots", 1).returncode == 2
    done = run("-m", "svdserve.examples.channel_eigenvalues", "127.0.0.1:1", "--slots", 2)
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_effective_rank():
    values = np.array([[1.0, 1, 1, 1], [3, 0, 0, 0], [2, 2, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(mimo_capacity.effective_rank(values), [4, 1, 2, 1])


def test_the_comparison_with_numpy(address):
    done = run(ROOT / "client/python/benchmarks/against_numpy.py", address, "--repeats", 1, "--case", "4x4:c64:500",
               env={**os.environ, "OPENBLAS_NUM_THREADS": "4"})
    assert done.returncode == 0, done.stderr
    header, row = done.stdout.splitlines()
    assert header.startswith("machine,shape,dtype,count,svdserve_ms,numpy_ms,ratio")
    assert ",4x4,c64,500," in row


def test_the_comparison_of_outputs_with_numpy(address):
    done = run(ROOT / "client/python/benchmarks/outputs_against_numpy.py", address, "--repeats", 1, "--count", 500)
    assert done.returncode == 0, done.stderr
    header, *rows = csv.reader(done.stdout.splitlines())
    assert [row[header.index("work")] for row in rows] == ["capacity at 1", "capacity at 10", "svd", "svdvals of a list",
                                                           "eigh", "eigh c128", "eig", "eig c128"]
    assert float(rows[0][header.index("sent_over_returned")]) == 32


def test_pieces(address):
    done = run(ROOT / "client/python/benchmarks/pieces.py", address, "--repeats", 1, "--count", 2000, "--connections", "1,2",
               "--piece-mib", "0.125,1", "--in-flight", 2)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["piece_mib"] for row in rows] == ["default", "0.125", "1", "0.125", "1"]
    assert all(float(row["best_ms"]) <= float(row["median_ms"]) for row in rows)


def test_antenna_selection_finds_the_best_pair(client):
    """Small enough to try every choice."""
    rng = np.random.default_rng(3)
    h = rng.standard_normal((5, 2, 7)) + 1j * rng.standard_normal((5, 2, 7))
    found = antenna_selection.search(client, h, 2, snr_db=10, candidates=100, steps=20, rng=rng)
    every = np.array([(i, j) for i in range(7) for j in range(i)])
    s = np.linalg.svd(h[:, :, every].transpose(2, 0, 1, 3), compute_uv=False)
    expected = cdl_channels.capacity(s, 2, 10).mean(axis=-1)
    assert found.capacities[-1] == pytest.approx(expected.max())
    assert sorted(found.best) == sorted(every[expected.argmax()])
    assert all(a < b for a, b in zip(found.capacities, found.capacities[1:]))


def test_neighbours_are_choices_of_different_antennas():
    rng = np.random.default_rng(1)
    best = np.array([1, 4, 5])
    for antennas, candidates in ((9, 500), (9, 4), (4, 500), (3, 5)):
        choices = antenna_selection.neighbours(np.minimum(best, antennas - 1) if antennas > 5 else np.arange(3), antennas,
                                               candidates, rng)
        assert len(choices) <= max(candidates, 1) and choices.min() >= 0 and choices.max() < antennas
        assert all(len(set(row)) == 3 for row in choices.tolist())


def test_the_antenna_selection_command(address, tmp_path):
    done = run("-m", "svdserve.examples.antenna_selection", address, "--antennas", 12, "--select", 3, "--channels", 4,
               "--candidates", 300, "--plot", tmp_path / "plot.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    capacities = [float(c) for c in re.findall(r"step +[0-9]+ +([0-9.]+) bit/s/Hz #", done.stdout)]
    random = float(re.search(r"random +([0-9.]+)", done.stdout)[1])
    assert capacities == sorted(capacities) and capacities[-1] > random
    assert (tmp_path / "plot.svg").exists() or "matplotlib is not installed" in done.stdout


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@needs_torch
def test_positions_give_the_channels_of_the_generator():
    """Half a wavelength apart they are those of cdl_channels."""
    import torch

    what = cdl_channels.ChannelSet("D", 3, 5, 3e-8, drops=2, subcarriers=4)
    h = array_positions.draw(what, np.random.default_rng(1)).channels(array_positions.SPACING * torch.arange(5)).numpy()
    h /= np.sqrt(np.mean(np.abs(h) ** 2))
    assert np.abs(h - cdl_channels.generate(what, np.random.default_rng(1))).max() < 1e-5


@needs_torch
def test_the_array_positions_command(address, tmp_path):
    done = run("-m", "svdserve.examples.array_positions", address, "--users", 4, "--subcarriers", 8, "--rx", 4, "--elements",
               4, "--steps", 25, "--plot", tmp_path / "plot.svg")
    assert done.returncode == 0, done.stderr + done.stdout
    capacities = [float(c) for c in re.findall(r"step +[0-9]+ +([0-9.]+) bit/s/Hz #", done.stdout)]
    assert capacities[-1] > capacities[0] + 0.05 and max(capacities) < capacities[-1] + 0.05
    assert float(re.search(r"differ by at most (\S+)", done.stdout)[1]) < 1e-3
    positions = [float(p) for p in re.search(r"positions (.*)", done.stdout)[1].split(",")]
    assert min(b - a for a, b in zip(positions, positions[1:])) > 0.49 and 0 <= positions[0] and positions[-1] <= 10
    assert re.search(r"25 steps of 32 channels: [0-9.]+ ms each by svdserve.torch, [0-9.]+ ms by torch alone", done.stdout)
    assert all(len(line) <= 120 for line in done.stdout.splitlines())
    assert (tmp_path / "plot.svg").exists() or "matplotlib is not installed" in done.stdout


def test_the_array_positions_command_explains_itself():
    wrong = run("-m", "svdserve.examples.array_positions", "127.0.0.1:1", "--aperture", 3)
    assert wrong.returncode == 2 and ("--aperture must be more than 3.5 wavelengths" in wrong.stderr or
                                      "pip install torch" in wrong.stderr)
    done = run("-m", "svdserve.examples.array_positions", "127.0.0.1:1", "--steps", 1)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr


@needs_torch
def test_the_comparison_of_gradients_with_torch(address):
    done = run(ROOT / "client/python/benchmarks/gradient_against_torch.py", address, "--repeats", 1, "--count", 500, "--svdvals",
               "--server-pid", os.getpid())
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["way"] for row in rows] == ["svdserve", "torch slogdet", "torch svdvals"]
    assert {(row["shape"], row["dtype"], row["count"]) for row in rows} == {("4x4", "c64", "500")}


def test_the_antenna_selection_command_explains_itself(address):
    done = run("-m", "svdserve.examples.antenna_selection", address, "--select", 99)
    assert done.returncode == 2 and "--select" in done.stderr
