"""Pictures of terminals for the pages: ``python -m scripts.site.casts``.

Each is a session that is really run: a server is started, a shell types the words on a terminal of
that server, and what the terminal shows is drawn into docs/pictures/NAME.svg.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import exec_server

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
_SECONDS = 120

CASTS = {
    "session": [
        "exec-server run $BOX -- uname -s",
        "echo hello | exec-server run $BOX -- tr a-z A-Z",
        "exec-server run $BOX -- sh -c 'exit 3'; echo status $?",
        "exec-server cp -r src $BOX:$HOME/there",
        "exec-server find $BOX:$HOME/there",
        "exec-server grep main $BOX:$HOME/there",
    ],
    "detach": [
        "exec-server run --detach --name build $BOX -- sh -c 'echo compiling; sleep 600'",
        "exec-server ps $BOX",
    ],
}
_ROWS = {"session": 16, "detach": 7}


async def play(name: str, lines: list[str], home: Path) -> None:
    """Run *lines* in a shell on a terminal, and draw what the terminal shows at the end."""
    async with asyncio.timeout(_SECONDS), exec_server.serve("ws://127.0.0.1:0") as server:
        env = {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PS1": "$ ",
            "BOX": server.url,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        async with exec_server.connect(server.url) as box:
            shell = await box.start(
                ["bash", "--norc", "--noprofile", "-i"],
                tty=True,
                text=True,
                env=env,
                cwd=str(home),
                rows=_ROWS[name],
                cols=92,
                screen=True,
            )
            async with shell:
                await shell.wait_for(regex=r"^\$ *$")
                for line in lines:
                    await shell.send_keys(line, "enter")
                    await shell.wait_for(regex=r"^\$ *$")
                picture = await shell.screenshot()
    FOLDER.mkdir(exist_ok=True)
    # As long as the name of a temporary folder in /tmp: the picture has the width of each text.
    picture = picture.replace(os.fsencode(home), b"/home/you/laptop")
    (FOLDER / f"{name}.svg").write_bytes(picture)


async def main() -> None:
    for name, lines in CASTS.items():
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            (home / "src").mkdir()
            (home / "src" / "main.c").write_text("int main(void) { return 0; }\n")
            await play(name, lines, home)
            print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    os.umask(0o022)
    asyncio.run(main())
