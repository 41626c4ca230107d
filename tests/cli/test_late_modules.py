"""Modules that libraries rarely use: they are there when a library does use them."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import sys
import textwrap
from functools import partial
from typing import Any

import pytest

from exec_server.cli import late_modules
from tests.support.fresh_python import words_of

_LOAD = """\
import sys
from exec_server.cli import late_modules, lean_libraries
from exec_server.cli.loading import loading
late_modules.use()
with loading():
    lean_libraries.load_msgspec()
    import asyncio, logging, msgspec, subprocess, traceback, urllib.parse, uuid, uvloop
    from exec_server.transport import picows_names
"""
# What a program prints in a Python whose libraries are loaded in the usual way and in ours.
_USES = {
    "inspect": "print(asyncio.coroutines.inspect.signature(print))",
    "iscoroutinefunction": (
        "async def work(): pass\n"
        "class Work:\n"
        "    async def run(self): pass\n"
        "    async def __call__(self): pass\n"
        "for f in (work, Work().run, Work(), Work, print, len, lambda: 0):\n"
        "    print(asyncio.iscoroutinefunction(f))"
    ),
    "repr of a task": (
        "async def work(): return repr(asyncio.current_task())\nprint(asyncio.run(work()))"
    ),
    "ipaddress": (
        "for url in ('ws://[::1]:1/', 'ws://[v1.x]/', 'ws://[1.2.3.4]/'):\n"
        "    try: print(urllib.parse.urlsplit(url))\n"
        "    except ValueError as exc: print(exc)"
    ),
    "locale": "print(subprocess.run(['echo', 'ä'], text=True, capture_output=True).stdout)",
    "locale names": "print(subprocess.locale.getencoding())",
    "msgspec.inspect": "print(msgspec.json.schema(list[int]), msgspec.inspect.type_info(int))",
    "msgspec.inspect later": "import msgspec.inspect as i; print(i.IntType, msgspec.inspect is i)",
    "platform": "import platform; print(platform.platform(), platform.python_implementation())",
    "an exception": (
        "try: traceback.nothing\n"
        "except AttributeError: print(traceback.format_exc())\n"
        "import json\n"
        "try: json.loads('{')\n"
        "except ValueError: print(traceback.format_exc())"
    ),
    "a logged exception": (
        "import json\n"
        "logging.basicConfig(stream=sys.stdout)\n"
        "try: json.loads('{')\n"
        "except ValueError: logging.exception('no')"
    ),
    "a group of exceptions": (
        "try: raise ExceptionGroup('two', [ValueError('one'), OSError(2, 'no')])\n"
        "except ExceptionGroup: print(traceback.format_exc())"
    ),
    "datetime": (
        "import datetime as d\n"
        "found = msgspec.json.decode(b'\"2020-02-03T04:05:06Z\"', type=d.datetime)\n"
        "print(repr(found), type(found) is d.datetime, d.datetime.strptime('1999', '%Y'))\n"
        "import pickle; print(pickle.loads(pickle.dumps(found)) == found, sorted(vars(d)))"
    ),
    "ssl of asyncio": (
        "ssl = asyncio.sslproto.ssl\n"
        "context = ssl.create_default_context()\n"
        "print(type(context), isinstance(context, ssl.SSLContext), ssl.Purpose.SERVER_AUTH)\n"
        "print(isinstance(3, ssl.SSLContext), type(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)))"
    ),
    "errors of ssl": (
        "errors = asyncio.sslproto.SSLAgainErrors, asyncio.sslproto.ssl.CertificateError\n"
        "import ssl\n"
        "print(errors == ((ssl.SSLWantReadError, ssl.SSLSyscallError), ssl.CertificateError))\n"
        "print(asyncio.sslproto.ssl.SSL_ERROR_WANT_READ == ssl.SSL_ERROR_WANT_READ)"
    ),
    "sslproto": (
        "import asyncio.sslproto as real\n"
        "print(asyncio.sslproto is real, asyncio.base_events.sslproto.SSLProtocol is"
        " real.SSLProtocol)"
    ),
    "hashlib": (
        "import hashlib\n"
        "from picows import picows\n"
        "print(picows.sha1(b'x').hexdigest(), hashlib.new('md5').name)\n"
        "print(hashlib.sha256(b'x').hexdigest())"
    ),
    "URIs": (
        "import pathlib, urllib, urllib.parse as p\n"
        "print(pathlib.Path('/ä b').as_uri(), p.unquote('%20'), urllib.parse is p)"
    ),
    "uuid": "print(uuid.UUID(int=5), uuid.uuid4().version, uuid.getnode() == uuid.getnode())",
}


def _output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return re.sub(" at 0x[0-9a-f]+", "", done.stdout)


def test_libraries_are_loaded_without_them():
    assert words_of(f"{_LOAD}print(*(n for n in late_modules.LATE if n in sys.modules))") == []


@pytest.mark.parametrize("use", _USES)
def test_what_uses_them_works_as_in_a_usual_start(use: str):
    program = _LOAD + _USES[use]
    assert _output(program) == _output(program.replace("late_modules.use()", "late_modules.LATE"))


def test_a_python_that_has_the_digests_of_openssl_alone_is_served_by_these():
    """Some distributions build it without code of its own."""
    said = words_of(
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('_sha1', '_sha2', '_sha256')))\n"
        f"{_LOAD}"
        "from picows import picows\n"
        "from exec_server.small_digests import sha256\n"
        "print(picows.sha1(b'x').hexdigest()[:5], sha256(b'x').hexdigest()[:5])\n"
    )
    assert said == ["11f6a", "2d711"]


def test_programs_that_call_us_load_everything_as_usual():
    program = _LOAD.replace("late_modules.use()", "from exec_server.cli.main import main")
    said = words_of(
        f"{program}main(['--version'])\nprint(*(n in sys.modules for n in late_modules.LATE))"
    )
    assert said[2:] == ["True"] * len(late_modules.LATE)


def test_what_is_loaded_already_stays():
    said = words_of(
        "import inspect, sys\n"
        f"{_LOAD}"
        "print(asyncio.coroutines.inspect is inspect, sys.modules['inspect'] is inspect)"
    )
    assert said == ["True", "True"]


def test_a_library_may_take_a_name_or_set_one_at_once():
    said = words_of(
        "import sys\n"
        "from exec_server.cli.late_modules import late_modules, use\n"
        "use()\n"
        "with late_modules():\n"
        "    import locale, ipaddress\n"
        "    from platform import machine, system\n"
        "    locale.ours = 5\n"
        "    print('ipaddress' in sys.modules, 'ip_address' in dir(ipaddress))\n"
        "import platform, locale as real\n"
        "print(machine() == platform.machine(), system() == platform.system(), real.ours)\n"
    )
    assert said == ["True"] * 4 + ["5"]


def test_threads_that_use_one_at_once_get_the_same_module():
    said = words_of(
        f"{_LOAD}"
        "import threading\n"
        "sys.setswitchinterval(1e-6)\n"
        "stand_in = asyncio.coroutines.inspect\n"
        "found, start = [], threading.Barrier(8)\n"
        "def use():\n"
        "    start.wait()\n"
        "    found.append(stand_in.Signature)\n"
        "threads = [threading.Thread(target=use) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "import inspect\n"
        "print(len(found), {*found} == {inspect.Signature})\n"
    )
    assert said == ["8", "True"]


def test_threads_may_import_while_libraries_are_loaded():
    said = words_of(
        "import sys, threading\n"
        "from exec_server.cli.late_modules import late_modules, use\n"
        "use()\n"
        "sys.setswitchinterval(1e-6)\n"
        "found, start = [], threading.Barrier(8)\n"
        "def load():\n"
        "    start.wait()\n"
        "    import inspect\n"
        "    found.append(inspect.Signature)\n"
        "with late_modules():\n"
        "    threads = [threading.Thread(target=load) for _ in range(7)]\n"
        "    for thread in threads: thread.start()\n"
        "    start.wait()\n"
        "for thread in threads: thread.join()\n"
        "import inspect\n"
        "print(len(found), {*found} == {inspect.Signature})\n"
    )
    assert said == ["7", "True"]


def test_an_exception_is_printed_if_its_modules_are_gone():
    said = _output(
        f"{_LOAD}"
        "import json\n"
        "sys.path[:], sys.meta_path[:] = [], []\n"
        "try: json.loads('{')\n"
        "except ValueError: print(traceback.format_exc())\n"
    )
    assert "json.decoder.JSONDecodeError" in said
    assert "return loads(" not in said


@pytest.mark.parametrize("known", ["", "linecache.getlines(json.decoder.__file__)\n"])
def test_an_exception_is_printed_without_a_free_descriptor(known: str):
    said = _output(
        f"{_LOAD}"
        "import json, linecache, resource\n"
        f"{known}"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: json.loads('{')\n"
        "except ValueError: print(traceback.format_exc())\n"
    )
    assert "json.decoder.JSONDecodeError" in said
    assert ("obj, end = self.scan_once(s, idx)" in said) == bool(known)


@pytest.mark.parametrize("kind", ["plain", "marked"])
def test_functions_of_coroutines_are_told_apart_as_python_does(kind: str):
    async def work() -> None: ...

    class Work:
        async def run(self) -> None: ...

        async def __call__(self) -> None: ...

    def usual() -> None: ...

    if kind == "marked" and sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(usual)
    once = functools.lru_cache(usual)
    each: list[Any] = [
        work,
        Work().run,
        Work.run,
        Work(),
        Work,
        usual,
        once,
        print,
        [].append,
        None,
        3,
    ]
    each += [partial(f) for f in each if callable(f)]
    each += [partial(partial(f)) for f in each if callable(f)]
    assert late_modules._IS_COROUTINE == inspect.CO_COROUTINE
    for f in each:
        assert late_modules._iscoroutinefunction(f) is inspect.iscoroutinefunction(f), f
        assert late_modules._isfunction(f) is inspect.isfunction(f)
        assert late_modules._unwrap(f) is inspect.unwrap(f)
    stop = functools.wraps(work)(lambda: None)
    assert late_modules._unwrap(stop, stop=lambda f: True) is stop


@pytest.mark.parametrize("text", ["", "\n", "a", " a\n\n \r\n\tb\x0cc\u2028d", "\x1c\x1f\u3000\na"])
def test_lines_are_indented_as_python_does(text: str):
    for predicate in (None, str.isspace, lambda line: True):
        assert late_modules._indent(text, "> ", predicate) == textwrap.indent(text, "> ", predicate)
