"""Writes what the programs of a build are made of, as SPDX 2.3 in JSON: the Debian packages of their shared libraries.

    python3 deploy/sbom.py build/release > svdserve.spdx.json

The packages are those that dpkg knows on this machine, with their versions. The time is that of the commit, or
SOURCE_DATE_EPOCH, so that the same sources on the same machine give the same file.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("svdserve", "svdctl")
FIELDS = ("Package", "Version", "Architecture", "source:Package", "Homepage")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def version() -> str:
    found = re.search(r"project\(svdserve VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert found
    return found[1]


def libraries(program: Path) -> set[str]:
    """The files that the linker loads with a program."""
    return set(re.findall(r"=> (/\S+)", output("ldd", str(program))))


def package_of(library: str) -> str:
    """The name of the Debian package that has a file; it may know the file by its path without /usr."""
    for path in (library, library.removeprefix("/usr"), os.path.realpath(library)):
        found = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.partition(": ")[0].split(",")[0]
    raise SystemExit(f"sbom: no Debian package has {library}")


def spdx_id(name: str) -> str:
    return "SPDXRef-" + re.sub(r"[^a-zA-Z0-9.-]", "-", name)


def described(package: str) -> dict[str, object]:
    wanted = "\\n".join(f"${{{field}}}" for field in FIELDS)
    values = dict(zip(FIELDS, output("dpkg-query", "-W", "-f", wanted, package).split("\n")))
    name, number, architecture = (values[f] for f in FIELDS[:3])
    return {
        "SPDXID": spdx_id(name),
        "name": name,
        "versionInfo": number,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "homepage": values["Homepage"] or "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from the Debian source package {values['source:Package']}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{number}?arch={architecture}"}],
    }


def document(build: Path) -> dict[str, object]:
    programs = [build / "bin" / name for name in PROGRAMS]
    packages = sorted({package_of(path) for program in programs for path in libraries(program)})
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in programs)).hexdigest()
    own = {
        "SPDXID": spdx_id("svdserve"),
        "name": "svdserve",
        "versionInfo": version(),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
    }
    others = [described(package) for package in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"svdserve-{version()}",
        "documentNamespace": f"https://spdx.org/spdxdocs/svdserve-{version()}-{digest[:32]}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: svdserve-deploy-sbom"],
        },
        "packages": [own, *others],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]},
            *({"spdxElementId": own["SPDXID"], "relationshipType": "DYNAMIC_LINK", "relatedSpdxElement": o["SPDXID"]}
              for o in others),
        ],
    }


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    json.dump(document(Path(sys.argv[1]).resolve()), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
