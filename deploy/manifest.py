"""Writes deploy/kubernetes.yaml: the Helm chart in deploy/chart with its default values, for clusters without Helm.

    python3 deploy/manifest.py            # writes it
    python3 deploy/manifest.py --check    # exit status 1 where it is not up to date

Needs helm-python-sdk from PyPI (tests/lint/requirements.txt), and no Helm.
"""

import pathlib
import sys

from helm_python.chart import Chart

DEPLOY = pathlib.Path(__file__).resolve().parent
HEAD = """\
# svdserve on Kubernetes: two instances behind one name, TLS, probes, and room to drain. Written by deploy/manifest.py from
# the chart in deploy/chart, which can do more.
#   kubectl create secret tls svdserve-tls --cert=server.pem --key=server.key
#   kubectl apply -f deploy/kubernetes.yaml
"""


def manifest() -> str:
    """The objects of a release called svdserve, in the namespace that kubectl is told."""
    with Chart.load(DEPLOY / "chart") as chart:
        rendered = chart.render({}, name="svdserve", namespace="default")
    texts = [rendered[path].strip() for path in sorted(rendered)]
    lines = "\n---\n".join(text for text in texts if text).splitlines()
    return HEAD + "".join(f"{line.rstrip()}\n" for line in lines if line.strip() != "namespace: default")


def main() -> int:
    path = DEPLOY / "kubernetes.yaml"
    if sys.argv[1:] == ["--check"]:
        if path.read_text(encoding="utf-8") == manifest():
            return 0
        print("deploy/kubernetes.yaml is not up to date: run deploy/manifest.py")
        return 1
    path.write_text(manifest(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
