"""Pages for the public names of the package, which Sphinx fills from their docstrings."""

from __future__ import annotations

import inspect
from pathlib import Path

import exec_server

# Chapters of the reference, in order; a class that none of them names is a shape or an error.
_TITLES = {
    "client": ("The client", ("ExecServerClient", "RemoteProcess", "WatchedProcess", "OutputView")),
    "files": (
        "Files",
        (
            "RemoteFiles",
            "RemotePath",
            "ReadStream",
            "WriteStream",
            "FileSearch",
            "FileWatch",
            "TransferResult",
            "Progress",
        ),
    ),
    "http": ("HTTP", ("RemoteHttp", "HttpResponse", "StreamedHttpResponse", "HttpHeaders")),
    "environments": (
        "Environments",
        ("EnvironmentManager", "EnvironmentFacts", "EnvironmentStatus"),
    ),
    "server": ("A server in your program", ("ExecServer", "Limits", "ExecServerRuntimePaths")),
}
# Programs get this one and do not make it; its annotations need more than is imported.
_MADE_BY_US = {"RunningServer"}


def write(folder: Path) -> None:
    """Write the pages to *folder*."""
    folder.mkdir(parents=True)
    names = {name: getattr(exec_server, name) for name in [*exec_server.__all__, "open"]}
    placed = {name for _, listed in _TITLES.values() for name in listed}
    errors, shapes, functions = [], [], []
    for name, value in sorted(names.items()):
        if name in placed | _MADE_BY_US or name.startswith("_"):
            continue
        if inspect.isclass(value):
            (errors if issubclass(value, BaseException) else shapes).append(name)
        elif inspect.isroutine(value):
            functions.append(name)
    pages = {
        "functions": ("Functions", functions),
        **{
            key: (title, [n for n in listed if n in names])
            for key, (title, listed) in _TITLES.items()
        },
        "errors": ("Errors", errors),
        "shapes": ("Other classes", shapes),
    }
    lines = [
        "# The client library\n",
        "These pages are made from the docstrings of the public names of `exec_server`. The guide",
        "with examples is [client.md](../../client.md). `exec_server.sync` has the same without an",
        "event loop.\n",
    ]
    for key, (title, listed) in pages.items():
        (folder / f"{key}.md").write_text(_page(title, listed, functions=key == "functions"))
        shown = ", ".join(f"`{name}`" for name in listed[:8]) + (", ..." if len(listed) > 8 else "")
        lines.append(f"* [{title}]({key}.md): {shown}")
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def _page(title: str, names: list[str], *, functions: bool) -> str:
    kind = "autofunction" if functions else "autoclass"
    parts = [f"# {title}\n"]
    for name in names:
        parts += [f"## {name}\n", "```{eval-rst}", f".. {kind}:: exec_server.{name}"]
        parts += (
            [] if functions else ["   :members:", "   :inherited-members: Exception, Struct, tuple"]
        )
        parts += ["```\n"]
    return "\n".join(parts)
