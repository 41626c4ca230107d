"""The client in a program without an event loop; the names are those of the asynchronous client.

python examples/synchronous.py ws://127.0.0.1:41181
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from exec_server import sync


def main(url: str) -> None:
    with sync.connect(url) as box:
        print(box.run(["uname", "-s"], check=True).stdout.decode(), end="")

        process = box.start(["sh", "-c", "for n in 1 2 3; do echo $n; done"])
        print("counted", b"".join(process.stdout).split())

        note = box.fs.path("/tmp") / "note-of-the-synchronous-example"
        note.write_text("hello")
        print(note.name, "says", note.read_text())
        note.unlink()

        # Any number of threads may use the client.
        with ThreadPoolExecutor() as threads:
            words = ["one", "two", "three"]
            outputs = threads.map(lambda word: box.run(["echo", word]).stdout, words)
            print(*[output.decode().strip() for output in outputs])


if __name__ == "__main__":
    main(sys.argv[1])
