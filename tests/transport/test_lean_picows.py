"""The compiled part of picows alone: `import picows` later finds the whole package."""

from __future__ import annotations

from tests.support.fresh_python import words_of


def test_the_package_is_loaded_later_if_a_program_wants_it():
    said = words_of(
        "import sys\n"
        "from exec_server.transport.picows_names import WSFrame\n"
        "print('picows' in sys.modules, 'picows.picows' in sys.modules)\n"
        "import picows\n"
        "print(picows.WSFrame is WSFrame, callable(picows.ws_connect))\n"
    )
    assert said == ["False", "True", "True", "True"]


def test_a_package_that_is_there_is_used():
    said = words_of(
        "import picows\n"
        "from exec_server.transport.picows_names import WSFrame\n"
        "import sys\n"
        "print(picows.WSFrame is WSFrame, sys.modules['picows'] is picows)\n"
    )
    assert said == ["True", "True"]


def test_another_thread_never_sees_an_empty_package():
    said = words_of(
        "import sys, threading\n"
        "end = threading.Event()\n"
        "threading.Thread(target=end.wait).start()\n"
        "from exec_server.transport import lean_picows, picows_names\n"
        "print(hasattr(sys.modules['picows'], 'ws_connect'))\n"
        "sys.modules.pop('aiofastnet', None)\n"
        "with lean_picows.without_transports():\n"
        "    print('aiofastnet' in sys.modules)\n"
        "end.set()\n"
    )
    assert said == ["True", "False"]


def test_transports_are_absent_only_while_picows_asks():
    said = words_of(
        "import sys\n"
        "from exec_server.transport import lean_picows\n"
        "with lean_picows.without_transports():\n"
        "    print(sys.modules['aiofastnet'])\n"
        "print('aiofastnet' in sys.modules)\n"
        "import aiofastnet\n"
        "with lean_picows.without_transports():\n"
        "    print(sys.modules['aiofastnet'] is aiofastnet)\n"
    )
    assert said == ["None", "False", "True"]
