"""asyncssh as a door loads it."""

from __future__ import annotations

import pytest

from tests.support.fresh_python import words_of

pytest.importorskip("asyncssh")


def test_a_later_import_finds_all_modules_that_were_hidden():
    said = words_of(
        "import ctypes.util\n"
        "find = ctypes.util.find_library\n"
        "from exec_server.ssh_door import quick_asyncssh\n"
        "import asyncssh, sys\n"
        "print('cryptography.x509' in sys.modules, ctypes.util.find_library is find)\n"
        "import typing_extensions\n"
        "print(typing_extensions.__spec__ is not None, 'asyncssh.crypto.x509' in sys.modules)\n"
    )
    assert said == ["False", "True", "True", "False"]


def test_a_library_may_want_more_of_typing_extensions():
    said = words_of(
        "from exec_server.ssh_door import quick_asyncssh\n"
        "found = quick_asyncssh._typing.TypedDict\n"
        "import typing_extensions\n"
        "print(found is typing_extensions.TypedDict)\n"
    )
    assert said == ["True"]
