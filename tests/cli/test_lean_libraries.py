"""Libraries that are loaded without what they can do without: other programs find them whole."""

from __future__ import annotations

from tests.support.fresh_python import words_of


def test_argparse_does_without_gettext_and_others_get_the_real_one():
    said = words_of(
        "import sys\n"
        "from exec_server.cli import lean_libraries\n"
        "lean_libraries.load_argparse()\n"
        "import argparse\n"
        "print('gettext' in sys.modules, argparse._('usage: '), argparse.ngettext('a', 'b', 2))\n"
        "import gettext\n"
        "print(callable(gettext.translation), argparse.ngettext('a', 'b', 1))\n"
    )
    assert said == ["False", "usage:", "b", "True", "a"]


def test_msgspec_does_without_typing_extensions_and_others_get_the_real_one():
    said = words_of(
        "import sys\n"
        "from exec_server.cli import lean_libraries\n"
        "lean_libraries.load_msgspec()\n"
        "print('typing_extensions' in sys.modules)\n"
        "import msgspec, typing_extensions\n"
        "print(msgspec.json.decode(b'[1]', type=list[int]), typing_extensions.__name__)\n"
    )
    assert said == ["False", "[1]", "typing_extensions"]


def test_what_is_loaded_already_stays():
    said = words_of(
        "import gettext, sys, typing_extensions\n"
        "from exec_server.cli import lean_libraries\n"
        "lean_libraries.load_argparse()\n"
        "lean_libraries.load_msgspec()\n"
        "print(sys.modules['gettext'] is gettext)\n"
        "print(sys.modules['typing_extensions'] is typing_extensions)\n"
    )
    assert said == ["True", "True"]
