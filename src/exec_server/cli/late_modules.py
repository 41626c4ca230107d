"""Modules that libraries import and rarely use: they are loaded when they are used.

A stand-in takes the place of such a module while libraries are loaded, and these libraries keep it.
When they use it, it loads the real module with an ordinary import, and asks it for everything.
Imports after the block of `late_modules` find the real module. Only the whole program says `use`:
another program may look at its modules in other ways.
"""

from __future__ import annotations

import contextlib
import os
import sys
from _thread import allocate_lock
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# What asyncio, uvloop, msgspec, picows and their libraries import, and use in rare functions alone.
LATE = (
    "asyncio.sslproto",
    "hashlib",
    "inspect",
    "ipaddress",
    "locale",
    "msgspec.inspect",
    "platform",
    "ssl",
    "urllib.parse",
    # Python 3.11 defines the classes of this one in Python, and replaces them by those in C.
    *(("datetime",) if sys.version_info < (3, 12) else ()),
    # Since Python 3.13 tracebacks need more of these, and an import in their middle may fail.
    *(("textwrap", "tokenize") if sys.version_info < (3, 13) else ()),
)

# The `inspect.CO_COROUTINE` of a function's code.
_IS_COROUTINE = 0x80

_lock = allocate_lock()

_is_used = False


def use() -> None:
    """From now on, blocks of `late_modules` have stand-ins: this is the whole program."""
    global _is_used
    _is_used = True


class _LateModule(ModuleType):
    """Stands in for the module of its name."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":
            # Each import asks for this, and none of these modules is a package.
            raise AttributeError(name)
        return getattr(self._load(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._load(), name, value)

    def __dir__(self) -> list[str]:
        return dir(self._load())

    def _load(self) -> ModuleType:
        name = self.__name__
        with _lock:
            if sys.modules.get(name) is self:
                del sys.modules[name]
        try:
            return import_module(name)
        except ImportError as exc:
            # The file was there at the start. What formats tracebacks expects such an error, and
            # goes on without the lines of a file.
            raise FileNotFoundError(0, f"the module {name} cannot be loaded any more") from exc


@contextlib.contextmanager
def late_modules() -> Iterator[None]:
    """Libraries that are loaded in this block load the modules of `LATE` when they use them."""
    if not _is_used:
        yield
        return
    if sys.version_info >= (3, 13):
        # These are imported in the middle of a traceback, where an import may fail. `inspect`,
        # which is late, would have loaded them. Older tracebacks do without.
        import ast  # noqa: F401
        import tokenize  # noqa: F401
    import urllib  # noqa: F401 (it is empty, and gets a stand-in for its module)

    stand_ins = {name: _stand_in(name) for name in LATE if name not in sys.modules}
    sys.modules.update(stand_ins)
    _bind(stand_ins)
    try:
        yield
    finally:
        _bind(stand_ins)
        with _lock:
            for name, module in stand_ins.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]


def _bind(stand_ins: dict[str, ModuleType]) -> None:
    """Let packages that are loaded have the stand-ins for their modules as attributes."""
    for name, module in stand_ins.items():
        package, _, attribute = name.rpartition(".")
        if package in sys.modules and not hasattr(sys.modules[package], attribute):
            setattr(sys.modules[package], attribute, module)


def _stand_in(name: str) -> ModuleType:
    module = _LateModule(name)
    # What libraries take from the module, or ask it, while they are loaded.
    vars(module).update(_answers(name))
    return module


def _answers(name: str) -> dict[str, Any]:
    """Objects of the module *name* that behave as its own ones, without the module."""
    if name == "platform":
        return _platform_answers()
    if name == "inspect":
        # uvloop takes the first two, and asks the second one about all that it passes to threads.
        # asyncio asks the others for the text of a task, of which an enumeration makes one.
        return {
            "isgenerator": partial(_called, "inspect", "isgenerator"),
            "iscoroutinefunction": _iscoroutinefunction,
            "unwrap": _unwrap,
            "isfunction": _isfunction,
        }
    if name == "textwrap":
        # It is needed for the text of every exception, also without a free descriptor.
        return {"indent": _indent}
    if name == "datetime":
        names = vars(import_module("_datetime"))
        return {key: value for key, value in names.items() if not key.startswith("__")}
    if name == "ssl":
        return _ssl_answers()
    if name == "hashlib":
        # picows takes it for handshakes; the module loads OpenSSL's digests. A Python without
        # digests of its own loads it at once.
        with contextlib.suppress(ImportError):
            return {"sha1": import_module("_sha1").sha1}
    if name == "urllib.parse":
        # pathlib takes it for the URIs of paths.
        return {"quote_from_bytes": partial(_called, "urllib.parse", "quote_from_bytes")}
    return {}


def _platform_answers() -> dict[str, Any]:
    """What uuid and multidict ask for while they are loaded."""
    found: dict[str, Any] = {}
    if sys.platform in ("linux", "darwin"):
        found["system"] = lambda: os.uname().sysname
    if sys.implementation.name == "cpython":
        found["python_implementation"] = lambda: "CPython"
    return found


def _ssl_answers() -> dict[str, Any]:
    """What asyncio and uvloop take while they are loaded: above all errors that they catch."""
    names = vars(import_module("_ssl"))
    found = {key: value for key, value in names.items() if key.startswith(("SSL", "MemoryBIO"))}
    found["CertificateError"] = found["SSLCertVerificationError"]
    found["SSLContext"] = _LateContext
    found["create_default_context"] = partial(_called, "ssl", "create_default_context")
    return found


class _LateContextType(type):
    def __instancecheck__(cls, obj: object) -> bool:
        real = sys.modules.get("ssl")
        # Without the module there is no context.
        return type(real) is ModuleType and isinstance(obj, real.SSLContext)


class _LateContext(metaclass=_LateContextType):
    """Stands in for `ssl.SSLContext`: libraries ask which objects are instances of it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _called("ssl", "SSLContext", *args, **kwargs)


def _called(module: str, function: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(import_module(module), function)(*args, **kwargs)


def _iscoroutinefunction(obj: object) -> bool:
    """`inspect.iscoroutinefunction`, which is asked about anything but an ordinary function."""
    found = obj.func if type(obj) is partial else obj
    found = found.__func__ if type(found) is MethodType else found
    if type(found) is BuiltinFunctionType:
        return False
    # A function that is marked as one of a coroutine has the mark among its attributes.
    if type(found) is FunctionType and not found.__dict__:
        return bool(found.__code__.co_flags & _IS_COROUTINE)
    answer: bool = _called("inspect", "iscoroutinefunction", obj)
    return answer


def _unwrap(func: Any, *, stop: Any = None) -> Any:
    if stop is None and not hasattr(func, "__wrapped__"):
        return func
    return _called("inspect", "unwrap", func, stop=stop)


def _isfunction(object: object) -> bool:
    return isinstance(object, FunctionType)


def _indent(text: str, prefix: str, predicate: Any = None) -> str:
    """`textwrap.indent`: *prefix* before lines that are not blank, or that *predicate* likes."""
    wanted = predicate or str.strip
    return "".join(f"{prefix}{line}" if wanted(line) else line for line in text.splitlines(True))
