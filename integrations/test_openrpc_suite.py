"""Every method of a live server, called with parameters that were generated from the document.

The calls start random programs, remove random paths and ask for random URLs: the server has a
read-only root directory and a network of its own, from which nothing can be reached.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integrations.node_packages import ROOT, installed, node_of

PROGRAM = """
ip link set lo up || exit 3
url=$1; shift
bwrap --die-with-parent --unshare-pid --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp \
    "$0" -m exec_server </dev/null >"$url" & server=$!
while ! [ -s "$url" ]; do kill -0 $server || exit 4; sleep 0.1; done
"$@" "$(cat "$url")"; status=$?
kill $server
wait $server
exit $status
"""


@pytest.mark.timeout(900)
def test_every_method_answers_as_the_document_says(tmp_path, record_property):
    confine = ["unshare", "--net", "--mount"]
    if not shutil.which("bwrap") or subprocess.run([*confine, "true"], check=False).returncode:
        pytest.skip("this needs root and bubblewrap: the calls are confined")
    folder = installed("openrpc_node")
    script, document = (
        ROOT / "integrations/openrpc_coverage.mjs",
        ROOT / "docs/protocol/openrpc.json",
    )
    words = [*confine, "sh", "-c", PROGRAM, sys.executable, str(tmp_path / "url")]
    call = [str(node_of(folder)), str(script), str(document), str(folder)]
    done = subprocess.run([*words, *call], capture_output=True, text=True, timeout=800, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["bad"]
    methods = [
        each for each in json.loads(Path(document).read_text())["methods"] if "result" in each
    ]
    # All but one, which a server calls.
    assert found["methods"] == len(methods) - 1
    assert found["results"] > found["methods"] / 2, "calls have results, and not only errors"
    record_property("passed elsewhere", found["methods"])
