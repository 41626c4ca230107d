"""An environment for mini-swe-agent.

::

    mini --environment-class exec_server.integrations.mini_swe_agent.ExecServerMiniEnvironment
"""

from __future__ import annotations

import weakref
from typing import Any

from minisweagent.exceptions import Submitted
from pydantic import BaseModel

import exec_server
from exec_server.integrations.boxes import SyncBox
from exec_server.integrations.workplaces import SyncWorkplace

# The first line of the output by which an agent hands in its work.
_SUBMISSION = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class MiniConfig(BaseModel):
    """The keyword arguments of the environment, also in the agent's YAML."""

    # A URL or a name; None is the default of environments.toml.
    server: str | None = None
    cwd: str = ""
    env: dict[str, str] = {}
    # Seconds for a command.
    timeout: int = 30
    sandbox: str | None = None
    # Bytes of output that are kept: the first half, and as much of the end.
    max_output: int = 1 << 20


class ExecServerMiniEnvironment:
    """Commands of an agent on a server; threads may share it."""

    def __init__(self, **kwargs: Any) -> None:
        self.config = MiniConfig(**kwargs)
        self._box = SyncBox(self.config.server, client_name="exec-server mini_swe_agent")
        self._place = SyncWorkplace(self._box, self.config.cwd or None, self.config.sandbox)
        self._finalizer = weakref.finalize(self, self._box.close)

    def close(self) -> None:
        """Disconnect, and end what runs in the background."""
        self._finalizer()

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        """Run the command of *action*; both outputs come together."""
        try:
            done = self._box.client().run(
                ["/bin/sh", "-c", f"exec 2>&1\n{action.get('command', '')}"],
                cwd=cwd or self.config.cwd or None,
                env=self.config.env,
                timeout=timeout or self.config.timeout,
                max_output=self.config.max_output,
                sandbox=self._place.sandbox(),
            )
        except (exec_server.ExecServerError, OSError) as exc:
            output = exc.stdout if isinstance(exc, exec_server.CommandTimeout) else b""
            return {
                "output": output.decode(errors="replace"),
                "returncode": -1,
                "exception_info": f"An error occurred while executing the command: {exc}",
                "extra": {"exception_type": type(exc).__name__, "exception": str(exc)},
            }
        answer = {"output": done.text(), "returncode": done.returncode, "exception_info": ""}
        self._check_submission(answer)
        return answer

    def _check_submission(self, answer: dict[str, Any]) -> None:
        first, _, rest = str(answer["output"]).lstrip().partition("\n")
        if first.strip() == _SUBMISSION and answer["returncode"] == 0:
            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """The configuration, and what the machine says about itself, for the agent's prompts."""
        names = ("system", "release", "version", "machine")
        done = self._box.client().run(["uname", "-s", "-r", "-v", "-m"])
        # The version has spaces in it.
        system, release, *version, machine = done.text().split() or [""] * 4
        uname = dict(zip(names, (system, release, " ".join(version), machine), strict=True))
        return {**self.config.model_dump(), **uname, **kwargs}

    def serialize(self) -> dict[str, Any]:
        """What a trajectory records."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}
