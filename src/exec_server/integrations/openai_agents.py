"""Tools of the OpenAI Agents SDK that work on a server: `ShellTool` and `ApplyPatchTool`.

::

    box = ExecServerTools("build-box", cwd="/srv/app")
    agent = Agent(name="builder", tools=[box.shell_tool(), box.apply_patch_tool()])
    ...
    await box.close()
"""

from __future__ import annotations

import posixpath
from typing import Any

from agents import (
    ApplyPatchTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    apply_diff,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult

import exec_server
from exec_server.integrations.boxes import AsyncBox
from exec_server.integrations.workplaces import Workplace

# Seconds for a command if the model does not say.
TIME_LIMIT = 120.0


class ExecServerTools:
    """The executor of `ShellTool` and the editor of `ApplyPatchTool`, on one server.

    *server* is a URL or a name, *options* are those of `exec_server.connect`. *cwd* is where
    commands run, and patches change nothing outside of it.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        cwd: str | None = None,
        sandbox: Any = None,
        time_limit: float = TIME_LIMIT,
        **options: Any,
    ) -> None:
        self._time_limit = time_limit
        self._box = AsyncBox(server, client_name="exec-server openai_agents", **options)
        self._place = Workplace(self._box, cwd, sandbox)

    def shell_tool(self, **options: Any) -> ShellTool:
        """A `ShellTool`; *options* are the SDK's, such as `needs_approval`."""
        return ShellTool(executor=self.run_shell, **options)

    def apply_patch_tool(self, **options: Any) -> ApplyPatchTool:
        """An `ApplyPatchTool`; *options* are the SDK's."""
        return ApplyPatchTool(editor=self, **options)

    async def close(self) -> None:
        """Disconnect, and end what runs in the background."""
        await self._box.close()

    # The shell.

    async def run_shell(self, request: ShellCommandRequest) -> ShellResult:
        """Run the commands of a call one after the other; a time limit ends the call."""
        action = request.data.action
        limit = action.timeout_ms / 1000 if action.timeout_ms else self._time_limit
        output = []
        for command in action.commands:
            output.append(await self._run(command, limit))
            if output[-1].outcome.type == "timeout":
                break
        return ShellResult(output=output, max_output_length=action.max_output_length)

    async def _run(self, command: str, limit: float) -> ShellCommandOutput:
        status, out, err, _ = await self._place.shell(command, limit=limit)
        how: Any = "timeout" if status is None else "exit"
        outcome = ShellCallOutcome(type=how, exit_code=status)
        return ShellCommandOutput(out, err, outcome, command)

    # Patches.

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Write a new file; the directories above it are made."""
        files, path = await self._at(operation.path)
        if await files.exists(path):
            return _failed(f"{operation.path} exists")
        text = apply_diff("", operation.diff or "", mode="create")
        await self._place.write(path, text.encode())
        return _completed(f"created {operation.path}")

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Change a file, and move it if the operation says so."""
        files, path = await self._at(operation.path)
        try:
            text = apply_diff(await files.read_text(path), operation.diff or "")
        except (OSError, ValueError) as exc:
            return _failed(str(exc))
        target = path
        if operation.move_to:
            _, target = await self._at(operation.move_to)
        await self._place.write(target, text.encode())
        if target != path:
            await files.remove(path)
        return _completed(f"updated {operation.path}")

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Remove a file."""
        files, path = await self._at(operation.path)
        try:
            await files.remove(path)
        except OSError as exc:
            return _failed(str(exc))
        return _completed(f"deleted {operation.path}")

    async def _at(self, path: str) -> tuple[exec_server.RemoteFiles, str]:
        root = posixpath.normpath(await self._place.path())
        target = posixpath.normpath(posixpath.join(root, path))
        if target != root and not target.startswith(f"{root.rstrip('/')}/"):
            raise ValueError(f"{path} is outside of {root}")
        return await self._place.files(), target


def _completed(text: str) -> ApplyPatchResult:
    return ApplyPatchResult(status="completed", output=text)


def _failed(text: str) -> ApplyPatchResult:
    return ApplyPatchResult(status="failed", output=text)
