"""The command line of a keeper: a Python that runs one program of the package, and little else.

The package has no `__init__.py` there, which would load more than the keeper needs. The program is
imported as a module and not run as a file: Python compiles a file that it runs, also if its
bytecode is there, which takes 10 ms for a keeper and leaves it with 2 MB more.
"""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_START = """\
import sys
del sys.argv[0]
package = sys.modules["exec_server"] = type(sys)("exec_server")
package.__path__ = [{path!r}]
from exec_server.{module} import main
main()
"""


def keeper_command(module: str, *arguments: str) -> list[str]:
    """The words that run `main()` of *module*, a dotted name below the package.

    The first word after the code is the file of the module, by which people and programs know it.
    """
    start = _START.format(path=_PACKAGE, module=module)
    file = os.path.join(_PACKAGE, *module.split(".")) + ".py"
    return [sys.executable, "-I", "-S", "-c", start, file, *arguments]
