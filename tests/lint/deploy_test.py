"""The files for operators agree with the server.

Rules and configuration are valid, alerts fire when they should, and each has its runbook. Every series, flag and variable
in deploy/ exists.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROMTOOL = "promtool"

SERIES = set(re.findall(r'\{\s*"((?:svdserve|process)_\w+)"', (ROOT / "server/metrics/names.h").read_text()))
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|sum|count)$")
FLAGS = set(re.findall(r'_flag(?:<\w+>)?\(\s*(?:k\w+,\s*)?"([a-z-]+)"', (ROOT / "server/config.cc").read_text()))


def unknown_series(text):
    names = set(re.findall(r"\b(?:svdserve|process)_[a-z_]+\b", text))
    return sorted(n for n in names if n not in SERIES and HISTOGRAM_SUFFIX.sub("", n) not in SERIES)


class Deploy(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run([PROMTOOL, *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_prometheus_accepts_configuration_and_rules(self):
        self.promtool("check", "config", "prometheus.yaml")
        self.promtool("check", "rules", "alerts.yaml")

    def test_alerts_fire_when_they_should(self):
        self.promtool("test", "rules", "alerts_test.yaml")

    def test_each_alert_has_a_runbook_and_tests(self):
        rules = (DEPLOY / "prometheus/alerts.yaml").read_text()
        alerts = re.findall(r"alert: (\w+)", rules)
        tests = (DEPLOY / "prometheus/alerts_test.yaml").read_text()
        self.assertTrue(alerts)
        for alert in alerts:
            self.assertIn(f"runbook: deploy/runbooks/{alert}.md", rules)
            self.assertTrue((DEPLOY / f"runbooks/{alert}.md").read_text().startswith(f"# {alert}\n"))
            self.assertGreaterEqual(len(re.findall(rf"alertname: {alert}\b", tests)), 2, alert)
        self.assertEqual(sorted(alerts), sorted(p.stem for p in (DEPLOY / "runbooks").glob("*.md")))

    def test_every_series_exists(self):
        self.assertIn("svdserve_requests_total", SERIES)
        files = [p for p in DEPLOY.rglob("*") if p.suffix in (".yaml", ".json", ".md")]
        for file in [*files, ROOT / "quickstart.sh", *(ROOT / "docs").glob("*.md")]:
            with self.subTest(file=file.name):
                self.assertEqual(unknown_series(file.read_text()), [])
        self.assertEqual(unknown_series("svdserve_requests_totals > 0"), ["svdserve_requests_totals"])

    def test_every_flag_and_variable_exists(self):
        self.assertIn("max-inflight-bytes", FLAGS)
        variables = {"SVDSERVE_" + f.upper().replace("-", "_") for f in FLAGS}
        for file in [DEPLOY / "compose.yaml", DEPLOY / "kubernetes.yaml", *(DEPLOY / "runbooks").glob("*.md"),
                     ROOT / "Dockerfile"]:
            text = file.read_text()
            with self.subTest(file=file.name):
                used = set(re.findall(r"- --([a-z-]+)=", text)) if file.suffix == ".yaml" else set(
                    re.findall(r"`--([a-z-]+)`", text))
                self.assertEqual(used - FLAGS, set())
                self.assertEqual(set(re.findall(r"\bSVDSERVE_(?!TESTS|BENCHMARKS)[A-Z_]+", text)) - variables, set())

    def test_dashboard_is_whole(self):
        dashboard = json.loads((DEPLOY / "grafana/svdserve.json").read_text())
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        self.assertIn("svdserve_ready", expressions[0])
        rules = [{"record": f"panel:{i}", "expr": e.replace("$__rate_interval", "5m")} for i, e in enumerate(expressions)]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:  # as rules, so that promtool parses them
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            self.promtool("check", "rules", file.name)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument.startswith("--promtool="):
            PROMTOOL = argument.removeprefix("--promtool=") or "promtool"
    sys.exit(unittest.main(argv=sys.argv[:1]))
