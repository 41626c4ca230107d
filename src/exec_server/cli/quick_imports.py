"""Modules of this package, and those of asyncio, are loaded without a search.

Python tries several names for each module and looks at its folder, its source and its bytecode.
Nearly all modules of these packages are one source file with bytecode that is up to date. This
finder opens that bytecode at once and compares it with the source as Python does. It leaves all
else to Python: packages, a source that has changed, archives, bytecode that is kept in another way.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
from _imp import _fix_co_filename  # type: ignore[attr-defined]
from types import CodeType, ModuleType

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# No package here has a module in Python beside the same one in C, which Python would prefer.
_PACKAGES = (__name__.partition(".")[0] + ".", "asyncio.")
# Bytecode that is valid as long as its source has the same time and size.
_HEAD = MAGIC_NUMBER + bytes(4)
_HEAD_BYTES = 16
_OTHER_WAYS = sys.flags.optimize or sys.pycache_prefix is not None


def use() -> None:
    """From now on, modules of this package are found in this way."""
    if not _OTHER_WAYS and Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


class Finder:
    """Stands before Python's own finders in `sys.meta_path`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not path or not name.startswith(_PACKAGES):
            return None
        folder, last = path[0], name[name.rfind(".") + 1 :]
        source = f"{folder}/{last}.py"
        bytecode = f"{folder}/__pycache__/{last}.{sys.implementation.cache_tag}.pyc"
        try:
            code = _up_to_date(bytecode, source)
        except (OSError, ValueError, EOFError, TypeError):
            return None
        if code is None:
            return None
        spec = ModuleSpec(name, _Loader(name, source, code), origin=source)
        spec.has_location = True
        spec.cached = bytecode
        return spec


class _Loader(SourceFileLoader):
    """Python's own loader, which has the code already."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code: CodeType | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        # The code of a module is run once, and not kept.
        code, self._code = self._code, None
        return code if code is not None else super().get_code(fullname)


def _up_to_date(bytecode: str, source: str) -> CodeType | None:
    """The code in the file *bytecode*, if it was made from the file *source* as it is now."""
    file = os.open(bytecode, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        data = os.read(file, size)
    finally:
        os.close(file)
    known = os.stat(source)
    changed, length = int(known.st_mtime) & 0xFFFFFFFF, known.st_size & 0xFFFFFFFF
    head = _HEAD + changed.to_bytes(4, "little") + length.to_bytes(4, "little")
    if len(data) != size or data[:_HEAD_BYTES] != head:
        return None
    code: object = marshal.loads(memoryview(data)[_HEAD_BYTES:])
    if not isinstance(code, CodeType):
        return None
    # The package may have been moved since, and tracebacks name the file.
    _fix_co_filename(code, source)
    return code
