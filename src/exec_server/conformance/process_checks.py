"""`process/*`: start, output, input, signals, the end."""

from __future__ import annotations

import base64

from exec_server.conformance.check import Kit, check, expect, expect_that
from exec_server.conformance.kit_process import run, shell, start, start_params, wants_error

_INVALID = -32602
_REFUSED = -32600
_FAILED = -32603


@check("start.answer", "The answer to a start has the id and the kind of sandbox.")
async def start_answer(kit: Kit) -> None:
    wire = await kit.ready()
    params = start_params(["true"])
    expected = {"processId": params["processId"], "sandboxType": "none"}
    expect("the answer", await wire.call("process/start", params), expected)


@check("start.empty-argv", "An empty argv is refused with -32602.")
async def empty_argv(kit: Kit) -> None:
    await wants_error(await kit.ready(), _INVALID, "process/start", start_params([]))


@check("start.missing-member", "A start without `env`, `cwd` or `tty` is refused with -32602.")
async def missing_member(kit: Kit) -> None:
    wire = await kit.ready()
    for name in ("processId", "argv", "cwd", "env", "tty"):
        params = start_params(["true"])
        del params[name]
        await wants_error(wire, _INVALID, "process/start", params)


@check("start.bad-cwd", "A cwd that is no file URI of this machine is refused with -32602.")
async def bad_cwd(kit: Kit) -> None:
    wire = await kit.ready()
    for cwd in ("http://localhost/tmp", "file://elsewhere/tmp", "", "tmp"):
        await wants_error(wire, _INVALID, "process/start", start_params(["true"], cwd=cwd))


@check("start.missing-program", "A program that does not exist is -32603, and its id is free.")
async def missing_program(kit: Kit) -> None:
    wire = await kit.ready()
    params = start_params(["/no/such/program"])
    await wants_error(wire, _FAILED, "process/start", params)
    await wire.call("process/start", {**params, "argv": ["true"]})


@check("start.missing-cwd", "A directory that does not exist is -32603.")
async def missing_cwd(kit: Kit) -> None:
    params = start_params(["true"], cwd="file:///no/such/directory")
    await wants_error(await kit.ready(), _FAILED, "process/start", params)


@check("start.duplicate", "An id that is in use is refused with -32600, also after the exit.")
async def duplicate(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["true"])
    await process.finished()
    again = start_params(["true"], processId=process.id)
    await wants_error(wire, _REFUSED, "process/start", again)


@check("start.arguments", "Arguments arrive as they are, without a shell.")
async def arguments(kit: Kit) -> None:
    words = ["a b", "", "$HOME", "*", "\n", "ä", "--"]
    found = await run(await kit.ready(), ["printf", "<%s>", *words])
    expect("the output", found.output("stdout").decode(), "".join(f"<{w}>" for w in words))


@check("start.environment", "A child has exactly the variables of `env`.")
async def environment(kit: Kit) -> None:
    wire = await kit.ready()
    found = await run(wire, ["/usr/bin/env"], env={"A": "1", "B": "two words"})
    seen = sorted(found.output("stdout").decode().splitlines())
    expect("the environment", seen, ["A=1", "B=two words"])


@check("start.cwd", "A child starts in its cwd, also if the URI is percent-encoded.")
async def cwd(kit: Kit) -> None:
    wire = await kit.ready()
    for uri, native in (("file:///usr", "/usr"), ("file:///%75sr/./lib/../bin", "/usr/bin")):
        found = await run(wire, ["/bin/sh", "-c", "pwd -P"], cwd=uri)
        expected = (await run(wire, ["/bin/sh", "-c", f"cd {native}; pwd -P"])).output("stdout")
        expect("the directory", found.output("stdout"), expected)


@check("start.arg0", "`arg0` is what the program sees as its name.")
async def arg0(kit: Kit) -> None:
    found = await run(await kit.ready(), ["/bin/sh", "-c", "echo $0"], arg0="other")
    expect("the name", found.output("stdout"), b"other\n")


@check("start.null-stdin", "Without `pipeStdin` the input is empty.")
async def null_stdin(kit: Kit) -> None:
    found = await run(await kit.ready(), ["cat"])
    expect("the exit code", found.exit_code, 0)
    expect("the output", found.output("stdout"), b"")


@check("output.streams", "stdout and stderr are told apart, and every byte arrives in order.")
async def streams(kit: Kit) -> None:
    found = await shell(await kit.ready(), "seq 1 3000; seq 5000 8000 >&2; seq 1 10")
    found.check_numbers()
    out = "".join(f"{n}\n" for n in (*range(1, 3001), *range(1, 11)))
    expect("stdout", found.output("stdout").decode(), out)
    expect("stderr", found.output("stderr").decode(), "".join(f"{n}\n" for n in range(5000, 8001)))


@check("output.binary", "All bytes survive.")
async def binary(kit: Kit) -> None:
    every = bytes(range(256)) * 300
    wire = await kit.ready()
    process = await start(wire, ["head", "-c", str(len(every))], pipeStdin=True)
    expect("the status", await process.write(every, "1"), "accepted")
    found = await process.finished()
    expect("the number of bytes", len(found.output("stdout")), len(every))
    expect_that(found.output("stdout") == every, "the same bytes")


@check("output.numbers", "Events of a process are numbered from 1 without gaps; the close is last.")
async def numbers(kit: Kit) -> None:
    found = await shell(await kit.ready(), "for i in 1 2 3 4 5; do echo $i; done; exit 3")
    found.check_numbers()
    expect("the exit code", found.exit_code, 3)


@check("output.chunks", "A chunk has at most 8192 bytes.")
async def chunks(kit: Kit) -> None:
    found = await shell(await kit.ready(), "head -c 200000 /dev/zero")
    sizes = [
        len(base64.b64decode(event["params"]["chunk"]))
        for event in found.events
        if event["method"] == "process/output"
    ]
    expect("the number of bytes", sum(sizes), 200_000)
    expect_that(min(sizes) > 0, "no empty chunk")


@check("output.interleaved", "Events of two processes keep their own numbers.")
async def interleaved(kit: Kit) -> None:
    wire = await kit.ready()
    several = [await start(wire, ["/bin/sh", "-c", "seq 1 500"]) for _ in range(4)]
    for process in several:
        found = await process.finished()
        found.check_numbers()
        expect("the lines", len(found.output("stdout").splitlines()), 500)


@check("exit.code", "The exit code is the program's.")
async def exit_code(kit: Kit) -> None:
    wire = await kit.ready()
    for code in (0, 1, 124, 137, 255):
        expect("the exit code", (await shell(wire, f"exit {code}")).exit_code, code)


@check("exit.signal", "A signal is 128 and its number.")
async def exit_signal(kit: Kit) -> None:
    found = await shell(await kit.ready(), "kill -TERM $$")
    expect("the exit code", found.exit_code, 143)


@check("exit.not-denied", "Without a sandbox nothing is denied by one.")
async def not_denied(kit: Kit) -> None:
    found = await shell(await kit.ready(), "echo permission denied >&2; exit 1")
    expect("sandboxDenied", found.sandbox_denied, False)


@check("exit.background", "A child in the background keeps the process open; its output follows.")
async def background(kit: Kit) -> None:
    wire = await kit.ready()
    made = await run(wire, ["mktemp", "-u", "/tmp/conformance.XXXXXX"])
    file = made.output("stdout").decode().strip()
    wait = f"while [ ! -e {file} ]; do sleep 0.05; done"
    process = await start(wire, ["/bin/sh", "-c", f"({wait}; echo late) & echo early"])
    await process.event("process/exited")
    state = await process.read()
    expect("exited and closed", [state["exited"], state["closed"]], [True, False])
    await wire.call("fs/writeFile", {"path": f"file://{file}", "dataBase64": ""})
    found = await process.finished()
    found.check_numbers()
    expect("the output", found.output("stdout"), b"early\nlate\n")
    await wire.call("fs/remove", {"path": f"file://{file}", "recursive": False, "force": True})


@check("read.all", "`process/read` returns all output with its numbers, and the end.")
async def read_all(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["/bin/sh", "-c", "echo out; echo err >&2; exit 5"])
    found = await process.finished()
    page = await process.read()
    pushed = {
        event["params"]["seq"]: event["params"]["chunk"]
        for event in found.events
        if event["method"] == "process/output"
    }
    expect("the chunks", {c["seq"]: c["chunk"] for c in page["chunks"]}, pushed)
    expect("nextSeq", page["nextSeq"], len(found.events) + 1)
    end = [page["exited"], page["exitCode"], page["closed"], page["failure"]]
    expect("the end", end, [True, 5, True, None])


@check("read.cursor", "`afterSeq` and `maxBytes` select what is returned.")
async def read_cursor(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["cat"], pipeStdin=True)
    for number in range(3):
        await process.write(b"12345\n", str(number))
        await process.event("process/output")
    expect("all", [c["seq"] for c in (await process.read())["chunks"]], [1, 2, 3])
    after = await process.read(afterSeq=2)
    expect("after 2", [c["seq"] for c in after["chunks"]], [3])
    for most, numbers_seen, following in ((0, [1], 2), (11, [1], 2), (12, [1, 2], 3)):
        page = await process.read(maxBytes=most)
        expect(f"at most {most} bytes", [c["seq"] for c in page["chunks"]], numbers_seen)
        expect("nextSeq", page["nextSeq"], following)
    await wire.call("process/terminate", {"processId": process.id})


@check("read.wait", "`waitMs` waits for news, and not longer than until there is some.")
async def read_wait(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["/bin/sh", "-c", "sleep 0.2; echo late; sleep 60"])
    page = await process.read(waitMs=60_000)
    expect("the chunks", [c["seq"] for c in page["chunks"]], [1])
    empty = await process.read(afterSeq=1, waitMs=10)
    expect("nothing more", [empty["chunks"], empty["exited"]], [[], False])
    await wire.call("process/terminate", {"processId": process.id})


@check("read.unknown", "Reading an unknown process fails with -32600.")
async def read_unknown(kit: Kit) -> None:
    await wants_error(await kit.ready(), _REFUSED, "process/read", {"processId": "unknown"})


@check("read.numbers", "A number that is negative or has a fraction is refused with -32602.")
async def read_numbers(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["true"])
    for number in (-1, 1.5, "1"):
        params = {"processId": process.id, "afterSeq": number}
        await wants_error(wire, _INVALID, "process/read", params)


@check("write.stdin", "Writes reach the program in their order.")
async def write_stdin(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["head", "-c", "26"], pipeStdin=True)
    for number, letter in enumerate(b"abcdefghijklmnopqrstuvwxyz"):
        expect("the status", await process.write(bytes([letter]), str(number)), "accepted")
    found = await process.finished()
    expect("the output", found.output("stdout"), b"abcdefghijklmnopqrstuvwxyz")


@check("write.once", "A repeated `writeId` is accepted and not written again.")
async def write_once(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["head", "-c", "6"], pipeStdin=True)
    for data, write_id in ((b"one", "1"), (b"one", "1"), (b"xxx", "1"), (b"two", "2")):
        expect("the status", await process.write(data, write_id), "accepted")
    expect("the output", (await process.finished()).output("stdout"), b"onetwo")


@check("write.unknown", "A write to an unknown process is not an error: `unknownProcess`.")
async def write_unknown(kit: Kit) -> None:
    params = {"processId": "unknown", "chunk": "", "writeId": "1"}
    result = await (await kit.ready()).call("process/write", params)
    expect("the answer", result, {"status": "unknownProcess"})


@check("write.no-stdin", "A write to a process without input says `stdinClosed`.")
async def write_no_stdin(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["sleep", "60"])
    expect("the status", await process.write(b"x", "1"), "stdinClosed")
    await wire.call("process/terminate", {"processId": process.id})


@check("write.base64", "Base64 is strict.")
async def write_base64(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["sleep", "60"], pipeStdin=True)
    for chunk in ("aGVsbG8", "_-8=", "YR==", "YQ==\n", "%"):
        params = {"processId": process.id, "chunk": chunk, "writeId": "1"}
        await wants_error(wire, _INVALID, "process/write", params)
    empty = {"processId": process.id, "chunk": "", "writeId": ""}
    await wants_error(wire, _INVALID, "process/write", empty)
    await wire.call("process/terminate", {"processId": process.id})


@check("signal.interrupt", "`interrupt` sends SIGINT to the group; others are refused.")
async def interrupt(kit: Kit) -> None:
    wire = await kit.ready()
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    process = await start(wire, ["/bin/sh", "-c", script])
    await process.output_until(b"ready")
    answer = await wire.call("process/signal", {"processId": process.id, "signal": "interrupt"})
    expect("the answer", answer, {})
    found = await process.finished()
    expect("the exit code", found.exit_code, 7)
    expect_that(b"caught" in found.output("stdout"), "the trap to run")


@check("signal.unknown", "A signal to an unknown or ended process does nothing.")
async def signal_unknown(kit: Kit) -> None:
    wire = await kit.ready()
    params = {"processId": "unknown", "signal": "interrupt"}
    expect("the answer", await wire.call("process/signal", params), {})
    await wants_error(wire, _INVALID, "process/signal", {**params, "signal": "no such signal"})


@check("terminate.running", "A running process ends by SIGKILL, with its group.")
async def terminate(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["/bin/sh", "-c", "trap '' TERM INT; echo on; sleep 60 & wait"])
    await process.output_until(b"on")
    answer = await wire.call("process/terminate", {"processId": process.id})
    expect("the answer", answer, {"running": True})
    found = await process.finished()
    found.check_numbers()
    expect("the exit code", found.exit_code, 137)


@check("terminate.ended", "An ended or unknown process is not running.")
async def terminate_ended(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["true"])
    await process.finished()
    for process_id in (process.id, "unknown"):
        answer = await wire.call("process/terminate", {"processId": process_id})
        expect("the answer", answer, {"running": False})


@check("terminal.output", "A terminal has one stream, 24 rows and 80 columns.")
async def terminal_output(kit: Kit) -> None:
    wire = await kit.ready()
    found = await run(wire, ["/bin/sh", "-c", "tty -s && stty size; echo err >&2"], tty=True)
    expect("the output", found.output("pty"), b"24 80\r\nerr\r\n")
    expect("the exit code", found.exit_code, 0)


@check("terminal.input", "What is typed is echoed, and byte 4 ends the input.")
async def terminal_input(kit: Kit) -> None:
    wire = await kit.ready()
    process = await start(wire, ["cat"], tty=True)
    expect("the status", await process.write(b"hello\n", "1"), "accepted")
    await process.output_until(b"hello\r\nhello\r\n")
    await process.write(b"\x04", "2")
    expect("the exit code", (await process.finished()).exit_code, 0)


@check("terminal.interrupt", "Byte 3 interrupts the program in the foreground.")
async def terminal_interrupt(kit: Kit) -> None:
    wire = await kit.ready()
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    process = await start(wire, ["/bin/sh", "-c", script], tty=True)
    await process.output_until(b"ready")
    await process.write(b"\x03", "1")
    expect("the exit code", (await process.finished()).exit_code, 9)


@check("policy.inherit", "`envPolicy` inherits, excludes and sets variables in its order.")
async def env_policy(kit: Kit) -> None:
    policy = {
        "inherit": "none",
        "ignoreDefaultExcludes": False,
        "exclude": ["B*"],
        "set": {"A": "1", "B1": "2", "MY_TOKEN": "3", "C": "4"},
        "includeOnly": ["A", "B?", "*TOKEN", "D"],
    }
    wire = await kit.ready()
    found = await run(wire, ["/usr/bin/env"], envPolicy=policy, env={"D": "5"})
    seen = sorted(found.output("stdout").decode().splitlines())
    expect("the environment", seen, ["A=1", "B1=2", "D=5", "MY_TOKEN=3"])
