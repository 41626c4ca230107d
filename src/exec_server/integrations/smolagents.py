"""A Python executor for smolagents: `CodeAgent(..., executor=ExecServerExecutor("build-box"))`.

The code of an agent runs in one Python interpreter on the server, so that what it has defined is
there in the next step.
"""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from typing import Any

from smolagents import AgentLogger, LogLevel
from smolagents.local_python_executor import CodeOutput
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

import exec_server
from exec_server.integrations.boxes import SyncBox
from exec_server.integrations.workplaces import SyncWorkplace

# Seconds for one step.
TIME_LIMIT = 600.0
# Bytes that one step may print and return.
MAX_ANSWER = 64 << 20

# Runs over there: a line of JSON with code comes in, and one with what came of it goes out. What
# the code prints is collected; what its children print is dropped unless the code collects it.
_DRIVER = r"""
import ast, contextlib, io, json, os, subprocess, sys, traceback
answers = os.fdopen(os.dup(1), "w")
nowhere = os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 1)
os.dup2(nowhere, 2)
names = {"__name__": "__main__"}
def run(code):
    shell = [line[1:] for line in code.splitlines() if line.startswith("!")]
    for line in shell:
        print(subprocess.run(line, shell=True, capture_output=True, text=True).stdout)
    code = "\n".join(line for line in code.splitlines() if not line.startswith("!"))
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<agent>", "exec"), names)
    if last is not None:
        return eval(compile(ast.Expression(last.value), "<agent>", "eval"), names)
for line in sys.stdin:
    answer = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            value = run(json.loads(line))
            try:
                answer["output"] = json.loads(json.dumps(value))
            except (TypeError, ValueError):
                answer["output"] = repr(value)
        except BaseException as exc:
            if type(exc).__name__ == "FinalAnswerException":
                answer["final"] = exc.value
            else:
                answer["error"] = traceback.format_exc()
    answer["logs"] = printed.getvalue()
    print(json.dumps(answer), file=answers, flush=True)
"""


class ExecServerExecutor(RemotePythonExecutor):
    """Python on a server; *server* is a URL or a name, *options* are those of `connect`."""

    def __init__(
        self,
        server: str | None = None,
        *,
        additional_imports: list[str] | None = None,
        logger: Any = None,
        python: str = "python3",
        cwd: str | None = None,
        sandbox: Any = None,
        time_limit: float = TIME_LIMIT,
        **options: Any,
    ) -> None:
        super().__init__(additional_imports or [], logger or AgentLogger(level=LogLevel.OFF))
        self._python = python
        self._time_limit = time_limit
        self._box = SyncBox(server, client_name="exec-server smolagents", **options)
        self._place = SyncWorkplace(self._box, cwd, sandbox)
        self._process: Any = None
        self._finalizer = weakref.finalize(self, self._box.close)
        self.installed_packages = self.install_packages(additional_imports or [])

    def cleanup(self) -> None:
        """End the interpreter, and disconnect."""
        self._finalizer()

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run code in the interpreter. After a time limit the next step has a new one."""
        if self._process is None:
            client = self._box.client()
            command = [self._python, "-u", "-c", _DRIVER]
            place = {"cwd": self._place.directory, "sandbox": self._place.sandbox()}
            self._process = client.start(command, stdin=True, **place)
        answer = self._ask(code)
        if "error" in answer:
            raise AgentError(f"{answer['logs']}\n{answer['error']}", self.logger)
        if "final" in answer:
            value = self._deserialize_final_answer(answer["final"], self.allow_pickle)
            return CodeOutput(output=value, logs=answer["logs"], is_final_answer=True)
        return CodeOutput(output=answer["output"], logs=answer["logs"], is_final_answer=False)

    def _ask(self, code: str) -> dict[str, Any]:
        process = self._process
        late = threading.Event()

        def end() -> None:
            late.set()
            process.abandon()

        watch = threading.Timer(self._time_limit, end)
        watch.start()
        try:
            process.write(json.dumps(code).encode() + b"\n")
            return dict(json.loads(process.stdout.read_until(b"\n", limit=MAX_ANSWER)))
        except (asyncio.IncompleteReadError, exec_server.ExecServerError) as exc:
            why = "the interpreter has ended" if isinstance(exc, EOFError) else str(exc)
        except asyncio.LimitOverrunError:
            why = f"the code wrote more than {MAX_ANSWER} bytes"
        finally:
            watch.cancel()
        process.abandon()
        self._process = None
        if late.is_set():
            why = f"the code took longer than {self._time_limit:g} seconds"
        return {"logs": "", "error": f"{why}; what it had defined is lost"}
