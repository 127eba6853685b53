"""Writes tests/data/general/batch.txt: eigenvalues of general matrices, and their condition numbers, to 25 digits.

    general_references.py        needs mpmath; half an hour

The matrices are functions of family, n and kind, with entries that are exact in every type. The header
tests/support/numerics/general_references.h makes the same. A line `family n kind` begins a matrix. A line for each
eigenvalue follows: real part, imaginary part, condition 1 / |y^H x| of unit left and right eigenvectors. They are
mpmath's with 80 digits.
"""
import pathlib

import mpmath

FILE = pathlib.Path(__file__).resolve().parents[1] / "data" / "general" / "batch.txt"


class Integers:
    """Integers of 24 bits with a sign, the same as in C++."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) - 2**23

    def element(self, is_complex, scale):
        re = self() * scale
        return complex(re, self() * scale) if is_complex else complex(re)


def by_columns(n, entry):
    """entry(i, j), column after column."""
    a = [[0j] * n for _ in range(n)]
    for j in range(n):
        for i in range(n):
            a[i][j] = complex(entry(i, j))
    return a


def random(next_, n, is_complex):
    return by_columns(n, lambda i, j: next_.element(is_complex, 2.0**-23))


def similar(next_, n, is_complex):
    """D A D^-1 over 40 bits."""
    e = [next_() % 41 for _ in range(n)]
    return by_columns(n, lambda i, j: next_.element(is_complex, 2.0 ** (-23 + e[i] - e[j])))


def graded(next_, n, is_complex):
    """D A D over 24 bits."""
    e = [next_() % 13 for _ in range(n)]
    return by_columns(n, lambda i, j: next_.element(is_complex, 2.0 ** (-23 - e[i] - e[j])))


def frank(next_, n, is_complex):
    return by_columns(n, lambda i, j: n - max(i, j) if j >= i - 1 else 0)


def grcar(next_, n, is_complex):
    return by_columns(n, lambda i, j: -1 if j == i - 1 else float(i <= j <= i + 3))


def companion(next_, n, is_complex):
    return by_columns(n, lambda i, j: next_.element(is_complex, 2.0**-23) if j == n - 1 else float(i == j + 1))


def nearly_normal(next_, n, is_complex):
    """A cyclic shift and small entries."""
    return by_columns(n, lambda i, j: float(j == (i + 1) % n) + 2.0**-20 * (next_() % 7))


def triangular(next_, n, is_complex):
    return by_columns(n, lambda i, j: next_.element(is_complex, 2.0**-23) if i <= j else 0)


def small_integers(next_, n, is_complex):
    return by_columns(n, lambda i, j: complex(next_() % 7 - 3, next_() % 7 - 3 if is_complex else 0))


FAMILIES = (random, similar, graded, frank, grcar, companion, nearly_normal, triangular, small_integers)


def norm(x):
    return mpmath.sqrt(sum(abs(v) ** 2 for v in x))


def main():
    mpmath.mp.dps = 80
    FILE.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for n in (2, 4, 8, 16, 32):
        for family, make in enumerate(FAMILIES):
            for is_complex in (False, True):
                if is_complex and make in (frank, grcar, nearly_normal):
                    continue
                a = make(Integers(family * 1000003 + n * 101 + is_complex), n, is_complex)
                values, left, right = mpmath.mp.eig(mpmath.matrix([[mpmath.mpc(x) for x in row] for row in a]),
                                                    left=True, right=True)
                lines.append(f"{family} {n} {'complex' if is_complex else 'real'}")
                print(lines[-1], flush=True)
                for j, value in enumerate(values):
                    y, x = [left[j, i] for i in range(n)], [right[i, j] for i in range(n)]
                    condition = norm(y) * norm(x) / abs(sum(p * q for p, q in zip(y, x, strict=True)))
                    lines.append(" ".join(mpmath.nstr(part, 25) for part in (mpmath.re(value), mpmath.im(value)))
                                 + " " + mpmath.nstr(condition, 6))
                FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
