"""The version is one: CMakeLists.txt has it, and all other places have the same."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PLACES = {
    "client/python/pyproject.toml": [r'(?m)^version = "(.+)"', r"svdserve-server==([\d.]+)", r"svdserve-cuda==([\d.]+)"],
    "engine/backends/cuda_door/plugin_abi.h": [r'kRelease\[\] = "(.+)"'],
    "deploy/chart/Chart.yaml": [r"(?m)^version: (.+)", r"(?m)^appVersion: (.+)"],
    "deploy/chart/examples/gpu.yaml": [r"tag: ([\d.]+)-cuda"],
    "deploy/chart/examples/gpu-slice.yaml": [r"tag: ([\d.]+)-cuda"],
}


class Version(unittest.TestCase):
    def test_all_places_have_it(self):
        version = re.search(r"project\(svdserve VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertRegex(version, r"^\d+\.\d+\.\d+$")
        for path, patterns in PLACES.items():
            text = (ROOT / path).read_text()
            for pattern in patterns:
                with self.subTest(path=path, pattern=pattern):
                    found = set(re.findall(pattern, text))
                    self.assertEqual(found, {version})

    def test_the_changes_have_sections_of_versions(self):
        sections = re.findall(r"(?m)^## (.+)", (ROOT / "CHANGELOG.md").read_text())
        self.assertTrue(sections)
        for section in sections:
            self.assertRegex(section, r"^(Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\))$")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
