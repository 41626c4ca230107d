"""Why a process ended and what it used, without an event loop."""

from __future__ import annotations

from exec_server import sync
from tests.requirements import requirement


@requirement("ends:client")
def test_results_and_handles_have_the_report():
    with sync.local() as box:
        done = box.run(["sh", "-c", "kill -9 $$"])
        assert done.end is not None and done.usage is not None
        assert (done.end.cause, done.end.signal) == ("signal", "SIGKILL")
        process = box.start(["sleep", "100"])
        assert process.end is None and process.usage is None
        process.terminate()
        process.wait()
        assert process.end is not None and process.usage is not None
        assert (process.end.cause, process.usage.source) == ("terminated", "rusage")
