"""Writes tests/data/hermitian/: Hermitian matrices, and factors with signs, beside their eigenvalues to 25 digits.

    hermitian_references.py [NAME ...]        needs mpmath and NumPy; minutes, and an hour for `batch`

The matrices are those on which relative accuracy is lost or kept: graded ones, saddle points, low rank. Eigenvalues are
mpmath's with 150 digits of the doubles as they are stored. A file begins with a line `kind rows cols`, and of a factor
a line of its signs. A line for each row follows, each component a C99 hexadecimal number. The eigenvalues are last, each
in a line, ascending.

batch.txt has eigenvalues alone, of matrices up to 128 x 128 whose entries are exact in every type. They are functions of
family, n and kind, and tests/support/numerics/hermitian_references.h makes the same. A line `family n kind` begins a matrix.
"""
import pathlib
import sys

import mpmath
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "hermitian"
N = 24


def hermitian(random, n, is_complex):
    a = random.standard_normal((n, n)) + (1j * random.standard_normal((n, n)) if is_complex else 0)
    return (a + a.conj().T) / 2


def well_conditioned(random, n, is_complex):
    """Hermitian, indefinite, condition at most 2."""
    a = random.standard_normal((n, n)) + (1j * random.standard_normal((n, n)) if is_complex else 0)
    q = np.linalg.qr(a)[0]
    return symmetric((q * (random.uniform(1, 2, n) * random.choice([-1, 1], n))) @ q.conj().T)


def symmetric(a):
    """The Hermitian matrix that the lower triangle of `a` says."""
    lower = np.tril(a, -1)
    return lower + lower.conj().T + np.diag(np.diag(a).real)


def graded(matrix, exponents):
    d = np.float64(10) ** exponents
    return symmetric(d[:, None] * matrix * d)


def saddle(random):
    rows = N // 3
    b = random.standard_normal((rows, N - rows))
    return np.block([[np.diag(10.0 ** np.linspace(8, -8, N - rows)), b.T], [b, np.zeros((rows, rows))]])


def with_spectrum(random, values):
    q = np.linalg.qr(random.standard_normal((len(values), len(values))))[0]
    return symmetric((q * values) @ q.T)


def low_rank(random):
    """Rank n / 2 exactly: products and sums of small integers."""
    b = random.integers(-9, 10, (N, N // 2)).astype(float)
    return (b * random.choice([-1, 1], N // 2)) @ b.T


def factor(random, rows, cols, decades):
    return random.standard_normal((rows, cols)) * 10.0 ** random.permutation(np.linspace(0, -decades, cols))


MATRICES = {
    "graded_sorted": lambda r: graded(hermitian(r, N, False), np.linspace(0, -10, N)),
    "graded_shuffled": lambda r: graded(hermitian(r, N, False), r.permutation(np.linspace(0, -40, N))),
    "graded_shuffled_complex": lambda r: graded(hermitian(r, N, True), r.permutation(np.linspace(0, -40, N))),
    "scaled_shuffled": lambda r: graded(well_conditioned(r, N, False), r.permutation(np.linspace(0, -30, N))),
    "scaled_shuffled_complex": lambda r: graded(well_conditioned(r, N, True), r.permutation(np.linspace(0, -30, N))),
    "saddle_point": saddle,
    "both_signs": lambda r: with_spectrum(
        r, r.uniform(2e-4, 20, N) * np.repeat([-1, 1], N // 2)),
    "random": lambda r: hermitian(r, N, False),
    "low_rank": low_rank,
}
FACTORS = {"factor": lambda r: (factor(r, 64, 48, 20), r.choice([-1, 1], 48))}


class Integers:
    """Integers of 24 bits with a sign, the same as in C++."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) - 2**23

    def element(self, is_complex, scale=1):
        re = self()
        return complex(re, self()) * scale if is_complex else re * scale


def from_lower(n, entry):
    """entry(i, j) of the lower triangle, by columns."""
    a = np.zeros((n, n), complex)
    for j in range(n):
        for i in range(j, n):
            a[i, j] = entry(i, j)
    return symmetric(a)


def batch_random(next_, n, is_complex):
    return from_lower(n, lambda i, j: next_.element(is_complex and i > j, 2.0**-23))


def batch_graded(next_, n, is_complex):
    e = [next_() % 41 for _ in range(n)]
    return from_lower(n, lambda i, j: next_.element(is_complex and i > j, 2.0 ** (-23 - e[i] - e[j])))


def batch_half_rank(next_, n, is_complex):
    def small():
        return next_() % 7 - 3

    b = [[complex(small(), small() if is_complex else 0) for _ in range((n + 1) // 2)] for _ in range(n)]
    return from_lower(n, lambda i, j: sum((-1) ** c * x * y.conjugate() for c, (x, y) in enumerate(zip(b[i], b[j]))))


def batch_reflection(next_, n, is_complex):
    v = [(1, -1, 1j, -1j)[next_() % (4 if is_complex else 2)] for _ in range(n)]
    return from_lower(n, lambda i, j: (i == j) - 2 / n * complex(v[i]) * complex(v[j]).conjugate())


def batch_second_difference(next_, n, is_complex):
    return from_lower(n, lambda i, j: {0: 2, 1: -1}.get(i - j, 0))


def batch_wilkinson(next_, n, is_complex):
    return from_lower(n, lambda i, j: abs(2 * j - n + 1) / 2 if i == j else float(i == j + 1))


def batch_clusters(next_, n, is_complex):
    return from_lower(n, lambda i, j: (-1.0) ** (next_() % 2) if i == j else next_.element(is_complex, 2.0**-43))


BATCH = (batch_random, batch_graded, batch_half_rank, batch_reflection, batch_second_difference, batch_wilkinson, batch_clusters)


def write_batch():
    lines = []
    for n in (4, 16, 32, 64, 128):
        for family, make in enumerate(BATCH):
            for is_complex in (False, True):
                if is_complex and make in (batch_second_difference, batch_wilkinson):
                    continue
                a = make(Integers(family * 1000003 + n * 101 + is_complex), n, is_complex)
                values = eigenvalues(mpmath.matrix([[exact(x if is_complex else x.real) for x in row] for row in a]))
                largest = max(abs(v) for v in values)
                lines.append(f"{family} {n} {'complex' if is_complex else 'real'}")
                lines += [mpmath.nstr(v, 25) if abs(v) > largest * mpmath.mpf(10) ** -120 else "0" for v in values]
                print(lines[-n - 1], flush=True)
    (FOLDER / "batch.txt").write_text("\n".join(lines) + "\n")


def exact(x):
    return mpmath.mpc(float(x.real), float(x.imag)) if np.iscomplexobj(x) else mpmath.mpf(float(x))


def eigenvalues(matrix):
    solve = mpmath.mp.eighe if any(x.imag != 0 for x in matrix) else mpmath.mp.eigsy
    return sorted(mpmath.re(x) for x in solve(matrix, eigvals_only=True))


def product(g, signs):
    g = mpmath.matrix([[exact(x) for x in row] for row in g])
    return g * mpmath.diag([int(s) for s in signs]) * g.T


def write(name, kind, array, signs, values):
    lines = [f"{kind} {array.shape[0]} {array.shape[1]}"]
    if signs is not None:
        lines.append(" ".join(str(s) for s in signs))
    for row in array:
        parts = [part for x in row for part in ((x.real, x.imag) if np.iscomplexobj(x) else (x,))]
        lines.append(" ".join(float(part).hex() for part in parts))
    largest = max(abs(v) for v in values)
    # An exact zero comes out as a number below the precision.
    lines += [mpmath.nstr(v, 25) if abs(v) > largest * mpmath.mpf(10) ** -120 else "0" for v in values]
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n")


def main():
    mpmath.mp.dps = 150
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, (name, make) in enumerate([*MATRICES.items(), *FACTORS.items()]):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        made = make(np.random.default_rng(number))
        if name in FACTORS:
            array, signs = made
            matrix = product(array, signs)
        else:
            array, signs = made, None
            matrix = mpmath.matrix([[exact(x) for x in row] for row in array])
        write(name, "complex" if np.iscomplexobj(array) else "real", array, signs, eigenvalues(matrix))
        print(name, flush=True)
    if not sys.argv[1:] or "batch" in sys.argv[1:]:
        write_batch()


if __name__ == "__main__":
    main()
