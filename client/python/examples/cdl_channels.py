"""MIMO channels of a clustered delay line (CDL), after 3GPP TR 38.901.

Each drop is one user at one moment. A cluster is a bundle of 20 rays that leave and arrive around the cluster's mean
angles, in random pairing and with random phases. Table 7.5-3 has the offset of each ray. Receive antenna u gets
from transmit antenna s, on a subcarrier f apart from the carrier,

    H[u, s](f) = sum_n sqrt(P_n / 20) exp(-2 pi i f tau_n) sum_r exp(i phi_nr) a_u(zoa_nr, aoa_nr) a_s(zod_nr, aod_nr)

with the delays tau_n and powers P_n of profile A, C or D (tables 7.7.1-1, 7.7.1-3, 7.7.1-4). a_j is the phase
exp(i pi j sin(zenith) sin(azimuth)) of element j of a uniform linear array at half a wavelength. The line-of-sight
cluster of profile D is one ray. Simplifications against the report: one polarization, isotropic elements, no movement,
one OFDM symbol.

A set of channels has shape (drops * subcarriers, N_rx, N_tx), complex64, and mean |h|^2 = 1. Sets are reproducible: the
same seed and the same sequence of sets give the same channels.

    python -m svdserve.examples.cdl_channels --out channels          # the four standard sets
    python -m svdserve.examples.cdl_channels --profile C --rx 4 --tx 8 --drops 100 --out c_4x8.npy
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

SUBCARRIER_SPACING_HZ = 30e3
DEFAULT_SEED = 38901


@dataclasses.dataclass(frozen=True)
class ChannelSet:
    """A set of channels to generate."""

    profile: str  # "A", "C" or "D"
    n_rx: int
    n_tx: int
    delay_spread_seconds: float
    drops: int
    subcarriers: int

    @property
    def name(self) -> str:
        return f"cdl_{self.profile.lower()}_{self.n_rx}x{self.n_tx}"


# Generated in this order from one random stream.
STANDARD_SETS = (
    ChannelSet("C", 4, 4, 300e-9, drops=32, subcarriers=264),
    ChannelSet("A", 8, 8, 100e-9, drops=16, subcarriers=132),
    ChannelSet("D", 4, 64, 30e-9, drops=8, subcarriers=66),
    ChannelSet("A", 32, 32, 100e-9, drops=8, subcarriers=12),
)


@functools.cache
def profiles() -> dict[str, Any]:
    """The tables of the report, as cdl_profiles.json has them."""
    return json.loads(resources.files(__package__ or "svdserve.examples").joinpath("cdl_profiles.json").read_text())


def generate(what: ChannelSet, rng: np.random.Generator) -> np.ndarray:
    """Channels of one set: complex64, shape (drops * subcarriers, n_rx, n_tx), mean |h|^2 = 1.

    Raises ValueError for a profile that is not "A", "C" or "D", or a size below 1.
    """
    tables = profiles()
    if what.profile not in tables["profiles"]:
        raise ValueError(f"profile {what.profile!r} is none of {', '.join(tables['profiles'])}")
    if min(what.n_rx, what.n_tx, what.drops, what.subcarriers) < 1:
        raise ValueError("antennas, drops and subcarriers must be at least 1")
    frequencies = SUBCARRIER_SPACING_HZ * np.arange(what.subcarriers)
    h = np.zeros((what.drops, what.subcarriers, what.n_rx, what.n_tx), np.complex128)
    for drop in range(what.drops):
        for cluster in clusters_of_a_drop(what, rng):
            rays = cluster.rays
            paths = (_steering(what.n_rx, rays["zoa"], rays["aoa"]) * rays["gain"]) @ _steering(
                what.n_tx, rays["zod"], rays["aod"]).T
            h[drop] += cluster.amplitude * np.exp(-2j * np.pi * frequencies * cluster.delay)[:, None, None] * paths
    h /= np.sqrt(np.mean(h.real ** 2 + h.imag ** 2))
    return h.reshape(-1, what.n_rx, what.n_tx).astype(np.complex64)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Rays that a drop has drawn."""

    amplitude: float  # of each ray
    delay: float  # seconds
    rays: dict[str, np.ndarray]  # angles aod, aoa, zod, zoa in radians, and complex gains of magnitude 1


def clusters_of_a_drop(what: ChannelSet, rng: np.random.Generator) -> Iterator[Cluster]:
    """The clusters of the next drop, in the order of the profile."""
    tables = profiles()
    profile = tables["profiles"][what.profile]
    clusters = [dict(zip(tables["cluster_columns"], row)) for row in profile["clusters"]]
    total_power = sum(10 ** (c["power"] / 10) for c in clusters)
    half = np.array(tables["ray_offsets"])
    offsets = np.concatenate([half, -half])
    for index, cluster in enumerate(clusters):
        single_ray = profile["line_of_sight"] and index == 0
        rays = _draw_rays(cluster, profile["spread"], offsets, rng)
        if single_ray:
            rays = {name: ray[:1] if name == "gain" else np.array([np.radians(cluster[name])])
                    for name, ray in rays.items()}
        amplitude = np.sqrt(10 ** (cluster["power"] / 10) / total_power / len(rays["gain"]))
        yield Cluster(amplitude, cluster["delay"] * what.delay_spread_seconds, rays)


def _draw_rays(cluster: dict[str, float], spread: dict[str, float], offsets: np.ndarray,
               rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Angles in radians and complex gains of a cluster's rays. The order of the draws is part of what a seed means."""
    rays = {"aod": offsets, "aoa": rng.permutation(offsets), "zod": rng.permutation(offsets),
            "zoa": rng.permutation(offsets)}
    angles = {name: np.radians(cluster[name] + spread[name] * offset) for name, offset in rays.items()}
    return {**angles, "gain": np.exp(2j * np.pi * rng.random(len(offsets)))}


def _steering(elements: int, zenith: np.ndarray, azimuth: np.ndarray) -> np.ndarray:
    """Phases of a half-wavelength linear array, shape (elements, rays)."""
    return np.exp(1j * np.pi * np.arange(elements)[:, None] * (np.sin(zenith) * np.sin(azimuth)))


def capacity(singular_values: np.ndarray, n_tx: int, snr_db: float = 10.0) -> np.ndarray:
    """bit/s/Hz of each channel with equal power on every transmit antenna: sum_i log2(1 + snr / n_tx s_i^2)."""
    snr = 10 ** (snr_db / 10)
    return np.log2(1 + snr / n_tx * singular_values.astype(np.float64) ** 2).sum(axis=-1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Writes 3GPP TR 38.901 CDL channels as complex64 .npy files.")
    parser.add_argument("--out", type=Path, required=True, help="a .npy file with --profile, otherwise a folder")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    one = parser.add_argument_group("one set of your own, instead of the standard ones")
    one.add_argument("--profile", choices=sorted(profiles()["profiles"]))
    one.add_argument("--rx", type=int, default=4, help="receive antennas")
    one.add_argument("--tx", type=int, default=4, help="transmit antennas")
    one.add_argument("--delay-spread-ns", type=float, default=100.0)
    one.add_argument("--drops", type=int, default=32)
    one.add_argument("--subcarriers", type=int, default=264)
    args = parser.parse_args(arguments)
    rng = np.random.default_rng(args.seed)
    if args.profile:
        sets = [(args.out, ChannelSet(args.profile, args.rx, args.tx, args.delay_spread_ns * 1e-9, args.drops,
                                      args.subcarriers))]
        args.out.parent.mkdir(parents=True, exist_ok=True)
    else:
        args.out.mkdir(parents=True, exist_ok=True)
        sets = [(args.out / f"{s.name}.npy", s) for s in STANDARD_SETS]
    for path, what in sets:
        channels = generate(what, rng)
        np.save(path, channels)
        print(f"{path}: {channels.shape[0]} channels {what.n_rx}x{what.n_tx}, {channels.nbytes / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
