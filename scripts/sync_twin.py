"""Write the generated parts of the client: `python scripts/sync_twin.py [--check]`.

sync/sync_api.py has a synchronous twin for each class of CLASSES, whose methods wait for those of
the asynchronous class, and a context manager for each function of OPENERS. Signatures and
docstrings are copied from the source, so that editors and type checkers see them.
client/connect_keywords.py has the fields of the structs of KEYWORDS as keyword arguments.
`--check` fails if a file that is checked in is out of date.

The script is one file of more than 400 lines, because it is run by its path and has no package.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "exec_server"
TWIN = PACKAGE / "sync" / "sync_api.py"

CLASSES = {
    "RemotePath": "client.files.remote_path",
    "ReadStream": "client.files.file_streams",
    "WriteStream": "client.files.file_streams",
    "MissingWatch": "client.files.missing_watch",
    "FileSearch": "client.files.search_results",
    "FileWatch": "client.files.change_reports",
    "FileMethods": "client.files.file_methods",
    "LinkMethods": "client.files.link_methods",
    "LookingMethods": "client.files.looking",
    "RemoteFiles": "client.files.remote_files",
    "StreamedHttpResponse": "client.http.remote_http",
    "RemoteHttp": "client.http.remote_http",
    "RemoteDiscovery": "client.discovery",
    "OutputView": "client.process.output_view",
    "ScreenMethods": "client.process.screen_calls",
    "ScreenCalls": "client.process.screen_calls",
    "RemoteProcess": "client.process.remote_process",
    "WatchedProcess": "client.process.watched_process",
    "DenialCalls": "client.process.denial_calls",
    "SharingCalls": "client.process.sharing_calls",
    "Processes": "client.process.processes",
    "StreamLists": "client.streams.stream_lists",
    "ExecServerClient": "client.client",
    "EnvironmentManager": "client.environments.manager",
}
# Base classes whose members the twin of a class has itself.
MERGED = {
    "ExecServerClient": (
        "Processes",
        "SharingCalls",
        "DenialCalls",
        "ScreenCalls",
        "StreamLists",
    ),
    "RemoteProcess": ("ScreenMethods",),
    "RemoteFiles": ("FileMethods", "LinkMethods", "LookingMethods"),
}
# Base classes whose methods take or return objects of asyncio; the twin has none of these methods.
ASYNCIO_ALONE = {"StreamCalls": "client.streams.stream_calls"}
OPENERS = {"connect": "client_urls", "local": "local_server", "environments": "local_server"}
# Functions that open a client without a block.
PLAIN_OPENERS = {"open": "client_urls"}
# Structs of options, and the keyword arguments that are made of their fields.
OPTIONS = "client.connect_options"
KEYWORDS = {"ConnectOptions": "ConnectKeywords", "UrlOptions": "UrlKeywords"}
KEYWORDS_TARGET = PACKAGE / "client" / "connect_keywords.py"
# Classes of text alone, which need no event loop.
PURE = {"RemotePath"}
DUNDERS = {"__str__", "__truediv__", "__lt__"}
RENAMED = {
    "AsyncIterator": "Iterator",
    "AbstractAsyncContextManager": "AbstractContextManager",
}
# What `asynccontextmanager` returns, although the source does not name it.
IMPLIED = {
    "AbstractAsyncContextManager": "from contextlib import AbstractAsyncContextManager",
}
# Aliases that contain a class with a twin; the generated module defines its own.
ALIASES = {"AnyPath": "str | bytes | os.PathLike[str] | os.PathLike[bytes] | RemotePath | PathUri"}
WORDS = {
    "`async with`": "`with`",
    "asynchronous iterator": "iterator",
    "`asyncio.subprocess.Process`": "`subprocess.Popen`",
    "`asyncio.StreamReader`": "a file",
    "; use `asyncio.timeout` to set an end to it": "",
    "what asks the server is asynchronous": "what asks the server waits",
    "It is closed at once, and `await client.close()` waits until": "It waits until",
    "`await client.close()`": "`client.close()`",
}

HEADER = '''"""The client for programs without an event loop, class by class.

This file is generated: change the asynchronous classes and run `scripts/sync_twin.py`.
"""

from __future__ import annotations

'''

KEYWORDS_HEADER = '''"""The options of `connect` and `environments` as keyword arguments.

This file is generated: change the structs in connect_options.py and run `scripts/sync_twin.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

'''

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A module of the package, and the import statement for each name in it."""

    def __init__(self, module: str) -> None:
        self.name = f"exec_server.{module}"
        path = ROOT / "src" / "exec_server" / Path(*module.split(".")).with_suffix(".py")
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.origins = dict(self._origins())

    def _origins(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    line = f"from {node.module} import {alias.name}"
                    yield alias.asname or alias.name, line
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.asname or alias.name, f"import {alias.name}"
        for node in self.tree.body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            for name in names:
                yield name, f"from {self.name} import {name}"

    def find(self, name: str) -> ast.ClassDef | FunctionNode:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | FunctionNode) and node.name == name:
                return node
        raise SystemExit(f"{self.name} has no {name}")


class Module:
    """The text of the generated module, and its imports."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.lines: list[str] = []

    def need(self, name: str, line: str) -> None:
        if self.imports.setdefault(name, line) != line:
            raise SystemExit(f"`{name}` means two things: {self.imports[name]}, {line}")

    def text(self, header: str) -> str:
        imports = sorted(set(self.imports.values()))
        lines = [*imports, "", *(line.rstrip() for line in self.lines), ""]
        return header + "\n".join(lines)


class Writer:
    """Writes functions of one source."""

    def __init__(self, source: Source, out: Module) -> None:
        self.source = source
        self.out = out

    # Types.

    def type_of(self, node: ast.expr) -> str:
        """An annotation as the twin has it; the names in it are imported."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                self._import(each.id)
        text = ast.unparse(node)
        for name, other in RENAMED.items():
            text = _replace(text, name, other)
        return text

    def _import(self, name: str) -> None:
        if name in CLASSES or hasattr(builtins, name):
            return
        if name in ALIASES:
            return
        origin = self.source.origins.get(name) or IMPLIED.get(name)
        if origin is None and name in self.out.imports:
            # It is a name of the options, and they are in another module.
            return
        if origin is None:
            raise SystemExit(f"{self.source.name}: where does `{name}` come from?")
        name = RENAMED.get(name, name)
        for each, other in RENAMED.items():
            origin = _replace(origin, each, other)
        self._check_has_no_twin(name, origin)
        self.out.need(name, origin)

    def _check_has_no_twin(self, name: str, origin: str) -> None:
        """A class with asynchronous methods must have a twin."""
        if not origin.startswith("from exec_server.client."):
            return
        value = getattr(importlib.import_module(origin.split()[1]), name, None)
        if isinstance(value, type) and any(_is_async(each) for each in vars(value).values()):
            raise SystemExit(f"{name} is asynchronous and has no twin: add it to CLASSES")

    # Functions.

    def signature(self, node: FunctionNode, returns: str) -> str:
        arguments = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
        for each in _all_arguments(arguments):
            if each.annotation is not None:
                each.annotation = ast.parse(self.type_of(each.annotation), mode="eval").body
        for default in (*arguments.defaults, *arguments.kw_defaults):
            for name in ast.walk(default) if default is not None else ():
                if isinstance(name, ast.Name):
                    self._import(name.id)
        return f"def {node.name}({ast.unparse(arguments)}) -> {returns}:"

    def call(self, node: FunctionNode, target: str) -> str:
        arguments = node.args
        words = [self._passed(each) for each in (*arguments.posonlyargs, *arguments.args)]
        if words and arguments.args[0].arg == "self":
            del words[0]
        if arguments.vararg is not None:
            words.append(f"*{arguments.vararg.arg}")
        words += [f"{each.arg}={self._passed(each)}" for each in arguments.kwonlyargs]
        if arguments.kwarg is not None:
            words.append(f"**{arguments.kwarg.arg}")
        return f"{target}({', '.join(words)})"

    def _passed(self, argument: ast.arg) -> str:
        names = _names(argument.annotation)
        if not names & {*CLASSES, *ALIASES}:
            return argument.arg
        self.out.need("unwrapped", "from exec_server.sync.portal import unwrapped")
        if "Iterable" in names:
            return f"[unwrapped(each) for each in {argument.arg}]"
        return f"unwrapped({argument.arg})"

    def result(self, node: FunctionNode, call: str, *, is_pure: bool = False) -> str:
        """The statement that returns the result of *call*."""
        assert node.returns is not None, node.name
        text = ast.unparse(node.returns)
        if text.startswith("AsyncIterator["):
            inner = text.removeprefix("AsyncIterator[").removesuffix("]")
            values = f"self._portal.iterate({call})"
            if inner in CLASSES:
                self.out.need("partial", "from functools import partial")
                values = f"map(partial({inner}, self._portal), {values})"
            return f"return {values}"
        if text.startswith("AbstractAsyncContextManager["):
            inner = text.removeprefix("AbstractAsyncContextManager[").removesuffix("]")
            return f"return self._portal.entered(self._portal.run(lambda: {call}), {inner})"
        if isinstance(node, ast.AsyncFunctionDef):
            call = f"self._portal.wait({call})"
        elif not is_pure:
            call = f"self._portal.run(lambda: {call})"
        if text in CLASSES:
            call = f"{text}(self._portal, {call})"
        elif text.removesuffix(" | None") in CLASSES:
            self.out.need("wrapped_some", "from exec_server.sync.portal import wrapped_some")
            call = f"wrapped_some({text.removesuffix(' | None')}, self._portal, {call})"
        return call if text == "None" else f"return {call}"

    def function(self, node: FunctionNode, *, is_property: bool, is_pure: bool) -> list[str]:
        assert node.returns is not None, f"{self.source.name}: {node.name} has no return type"
        if any(ast.unparse(each).endswith("asynccontextmanager") for each in node.decorator_list):
            node = _without_decorator(node)
        assert node.returns is not None
        returns = self.type_of(node.returns)
        target = f"self._inner.{node.name}"
        call = target if is_property else self.call(node, target)
        lines = ["@property"] if is_property else []
        lines += [self.signature(node, returns), *_docstring(node, "    ")]
        return [*lines, f"    {self.result(node, call, is_pure=is_pure)}", ""]


# Classes.


def write_class(name: str, out: Module) -> None:
    module = CLASSES[name]
    node = Source(module).find(name)
    assert isinstance(node, ast.ClassDef)
    out.need("Twin", "from exec_server.sync.portal import Twin")
    out.need(f"Async{name}", f"from exec_server.{module} import {name} as Async{name}")
    lines = [
        f"class {name}(Twin[Async{name}]):",
        *_docstring(node, "    "),
        "    __slots__ = ()",
        "",
    ]
    for part in (*MERGED.get(name, ()), name):
        lines += [f"    {line}" for line in members(part, out=out)]
    out.lines += [*lines, ""]


def members(name: str, *, out: Module) -> Iterator[str]:
    source = Source(CLASSES[name])
    writer = Writer(source, out)
    node = source.find(name)
    assert isinstance(node, ast.ClassDef)
    for each in node.body:
        if not isinstance(each, FunctionNode) or _is_decorated(each, "classmethod"):
            # Class methods make a client; the twin's functions do that in OPENERS.
            continue
        if each.name in PROTOCOLS:
            is_end = (name, each.name) == ("ExecServerClient", "__aexit__")
            *lines, blank = PROTOCOLS[each.name](each, writer)
            # A client that was opened without a block has a thread of its own.
            yield from (*lines, *(["    self.close()"] if is_end else []), blank)
        elif (name, each.name) == ("ExecServerClient", "close"):
            yield from _close(each, writer)
        elif each.name in DUNDERS or not each.name.startswith("_"):
            is_property = _is_decorated(each, "property")
            is_pure = name in PURE or (is_property and _reads_an_attribute(each))
            yield from writer.function(each, is_property=is_property, is_pure=is_pure)


def _enter(node: FunctionNode, writer: Writer) -> list[str]:
    writer.out.need("Self", "from typing import Self")
    return [
        "def __enter__(self) -> Self:",
        "    self._portal.wait(self._inner.__aenter__())",
        "    return self",
        "",
    ]


def _exit(node: FunctionNode, writer: Writer) -> list[str]:
    node.name = "__exit__"
    head = writer.signature(node, "None")
    call = writer.call(node, "self._inner.__aexit__")
    return [head, f"    self._portal.wait({call})", ""]


def _iter(node: FunctionNode, writer: Writer) -> list[str]:
    if isinstance(node, ast.AsyncFunctionDef):
        assert node.returns is not None
        head = f"def __iter__(self) -> {writer.type_of(node.returns)}:"
        return [head, "    return self._portal.iterate(self._inner.__aiter__())", ""]
    writer.out.need("Self", "from typing import Self")
    return ["def __iter__(self) -> Self:", "    return self", ""]


def _next(node: FunctionNode, writer: Writer) -> list[str]:
    assert node.returns is not None
    return [
        f"def __next__(self) -> {writer.type_of(node.returns)}:",
        "    try:",
        "        return self._portal.wait(self._inner.__anext__())",
        "    except StopAsyncIteration:",
        "        raise StopIteration from None",
        "",
    ]


def _close(node: FunctionNode, writer: Writer) -> list[str]:
    """`close` of a client, whose result is for `await` alone."""
    writer.out.need("close_client", "from exec_server.sync.portal import close_client")
    head = writer.signature(node, "None")
    return [head, *_docstring(node, "    "), "    close_client(self._portal, self._inner)", ""]


PROTOCOLS = {"__aenter__": _enter, "__aexit__": _exit, "__aiter__": _iter, "__anext__": _next}


def write_opener(name: str, out: Module) -> None:
    source = Source(OPENERS[name])
    writer = Writer(source, out)
    node = source.find(name)
    assert isinstance(node, FunctionNode) and node.returns is not None
    inner = ast.unparse(node.returns).rpartition("[")[2].removesuffix("]")
    out.need("AbstractContextManager", "from contextlib import AbstractContextManager")
    out.need("opened", "from exec_server.sync.portal import opened")
    node = _with_keywords(node, out)
    call = writer.call(node, f"async_{name}")
    out.lines += [
        writer.signature(node, f"AbstractContextManager[{inner}]"),
        *_docstring(node, "    "),
        # The import is local, so that a client does not load a server.
        f"    from {source.name} import {name} as async_{name}",
        "",
        f"    return opened(lambda: {call}, {inner})",
        "",
        "",
    ]


def write_plain_opener(name: str, out: Module) -> None:
    source = Source(PLAIN_OPENERS[name])
    writer = Writer(source, out)
    node = source.find(name)
    assert isinstance(node, FunctionNode) and node.returns is not None
    inner = ast.unparse(node.returns)
    out.need("opened_alone", "from exec_server.sync.portal import opened_alone")
    node = _with_keywords(node, out)
    out.lines += [
        writer.signature(node, inner),
        *_docstring(node, "    "),
        f"    from {source.name} import {name} as async_{name}",
        "",
        f"    return opened_alone(lambda: {writer.call(node, f'async_{name}')}, {inner})",
        "",
        "",
    ]


# Options.


def struct_fields(name: str) -> Iterator[ast.AnnAssign]:
    """The fields of a struct of options, those of its base classes first."""
    source = Source(OPTIONS)
    node = source.find(name)
    assert isinstance(node, ast.ClassDef)
    for base in node.bases:
        if isinstance(base, ast.Name):
            yield from struct_fields(base.id)
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            yield each


def write_keywords(out: Module) -> None:
    """A TypedDict for each struct, on top of the one before."""
    writer, base, known = Writer(Source(OPTIONS), out), "TypedDict", set[str]()
    for struct, name in KEYWORDS.items():
        out.lines += [
            f"class {name}({base}, total=False):",
            f'    """Keyword arguments for {struct}."""',
            "",
        ]
        for each in struct_fields(struct):
            field = ast.unparse(each.target)
            if field not in known:
                known.add(field)
                out.lines.append(f"    {field}: {writer.type_of(each.annotation)}")
        out.lines += ["", ""]
        base = name


def _with_keywords(node: FunctionNode, out: Module) -> FunctionNode:
    """*node* with explicit keywords where its decorator `with_keywords_of` names a struct."""
    words = [ast.unparse(each) for each in node.decorator_list]
    structs = [re.fullmatch(r"with_keywords_of\((\w+)\)", word) for word in words]
    for struct in filter(None, structs):
        writer = Writer(Source(OPTIONS), out)
        node.args.kwarg = None
        for each in struct_fields(struct[1]):
            for name in (*_names(each.annotation), *_names(each.value)):
                writer._import(name)
            node.args.kwonlyargs.append(ast.arg(ast.unparse(each.target), each.annotation))
            node.args.kw_defaults.append(each.value)
    return node


# Words.


def _replace(text: str, name: str, other: str) -> str:
    return re.sub(rf"\b{name}\b", other, text)


def _without_decorator(node: FunctionNode) -> FunctionNode:
    """The function that `asynccontextmanager` makes: a plain one that returns a manager."""
    text = ast.unparse(ast.FunctionDef(**{**vars(node), "decorator_list": []}))
    plain = ast.parse(text).body[0]
    assert isinstance(plain, ast.FunctionDef) and plain.returns is not None
    inner = ast.unparse(plain.returns).removeprefix("AsyncIterator[")
    plain.returns = ast.parse(f"AbstractAsyncContextManager[{inner}", mode="eval").body
    return plain


def _names(node: ast.expr | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else set()


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    more = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _is_decorated(node: FunctionNode, name: str) -> bool:
    return any(ast.unparse(each) == name for each in node.decorator_list)


def _reads_an_attribute(node: FunctionNode) -> bool:
    """True for a property that only returns an attribute, which any thread may do."""
    *_, last = node.body
    return len(node.body) == 2 and isinstance(last, ast.Return) and _is_attribute(last.value)


def _is_attribute(node: ast.expr | None) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_async(value: object) -> bool:
    return inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)


def _docstring(node: ast.ClassDef | FunctionNode, indent: str) -> list[str]:
    text = ast.get_docstring(node)
    if text is None:
        return []
    for word, other in WORDS.items():
        text = text.replace(word, other)
    if "\n" not in text:
        return [f'{indent}"""{text}"""']
    lines = f'"""{text}\n"""'.splitlines()
    return [f"{indent}{line}".rstrip() for line in lines]


def generated() -> str:
    out = Module()
    merged = {part for parts in MERGED.values() for part in parts}
    for name in CLASSES:
        if name not in merged:
            write_class(name, out)
    for name in OPENERS:
        write_opener(name, out)
    for name in PLAIN_OPENERS:
        write_plain_opener(name, out)
    out.need("os", "import os")
    out.need("PathUri", "from exec_server.protocol.paths import PathUri")
    out.lines += [f"{name} = {meaning}" for name, meaning in ALIASES.items()]
    return _formatted(out.text(HEADER), TWIN)


def generated_keywords() -> str:
    out = Module()
    write_keywords(out)
    # Type checkers alone need the imports, and some of these are slow.
    imports = sorted(set(out.imports.values()))
    lines = ["if TYPE_CHECKING:", *(f"    {line}" for line in imports), "", "", *out.lines]
    return _formatted(KEYWORDS_HEADER + "\n".join(lines), KEYWORDS_TARGET)


def _formatted(text: str, target: Path) -> str:
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in (
        [ruff, "check", "--quiet", "--select=I,F", "--fix"],
        [ruff, "format", "--quiet"],
    ):
        done = subprocess.run(
            [*command, f"--stdin-filename={target}", "-"],
            input=text, capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        text = done.stdout
    return text


def main() -> int:
    is_current = True
    for target, make in ((KEYWORDS_TARGET, generated_keywords), (TWIN, generated)):
        text = make()
        if "--check" not in sys.argv[1:]:
            target.write_text(text, encoding="utf-8")
        elif target.read_text(encoding="utf-8") != text:
            print(f"{target.relative_to(ROOT)} is out of date: run scripts/sync_twin.py")
            is_current = False
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
