"""fs/search: contents and names, compared with ripgrep itself, cancelled, bounded and confined."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, InvalidRequest, MethodNotFound
from exec_server.files.agents import ripgrep_output, searches
from exec_server.files.agents.match_batches import TEXT_CHARS
from exec_server.files.agents.ripgrep_output import RipgrepOutput
from exec_server.limits import Limits
from exec_server.local_server import local
from exec_server.protocol.base64 import Blob
from exec_server.protocol.file_search import FileHits, packed, unpacked
from exec_server.protocol.sandbox import read_only
from exec_server.sync import local as local_sync
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.fake_server import Talk, fake_server
from tests.support.fault_proxy import fault_proxy
from tests.support.tenants import principal, serving
from tests.support.wire import PATIENCE, Wire

pytestmark = pytest.mark.one_loop

PLACES = st.integers(0, 4096)

FILES = {
    "a.py": "import os\nclass Error(Exception):\n    '''Größe'''\n\nclass Other: pass\n",
    "sub/b.py": "x = 1\nclass lower: pass\r\nerror = 'Error Error'\n",
    "sub/c.txt": "no match here\nERROR in the last line",
    "sub/deep/d.py": "Errors\n",
    ".hidden/e.py": "Error\n",
    "build/out.py": "Error\n",
    "sub/kept.log": "Error\n",
    "sub/other.log": "Error\n",
    ".gitignore": "build/\n*.log\n!kept.log\n",
    "sub/.ignore": "deep\n",
    "binary": "Error\0Error\n",
    "empty": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    (root / ".git").mkdir()
    (root / "link.py").symlink_to("a.py")
    return root


@pytest.fixture(params=["ripgrep", "walker"])
def engine(request, monkeypatch):
    if request.param == "walker":
        monkeypatch.setattr(searches, "_ripgrep", lambda: [])
    elif not searches._ripgrep():
        pytest.skip("ripgrep is not installed")
    return request.param


def with_ripgrep(root: Path, *words: str) -> set[tuple[str, int, str]]:
    """The lines that `rg` finds."""
    command = ["rg", "--json", "--no-config", *words, "--", str(root)]
    printed = subprocess.run(command, capture_output=True, check=False).stdout
    found = set()
    for line in map(json.loads, printed.splitlines()):
        if line["type"] in ("match", "context"):
            data = line["data"]
            text = data["lines"]["text"].rstrip("\r\n")
            found.add((data["path"]["text"], data["line_number"], text))
    return found


@requirement("fs/search:own-program")
async def test_a_program_of_the_workspace_is_not_taken_for_ripgrep(
    client, tree, monkeypatch, tmp_path
):
    """A sandboxed command can put a program into a directory of the server's PATH."""
    planted, proof = tmp_path / "bin/rg", tmp_path / "proof"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {proof}\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:/usr/bin:/bin")
    async with client.fs.search(str(tree), "Error") as search:
        assert [hit async for hit in search]
    assert not proof.exists()


CASES: list[tuple[list[str], dict[str, Any]]] = [
    (["Error"], {"pattern": "Error"}),
    (["-i", "error"], {"pattern": "error", "ignore_case": True}),
    (["-w", "Error"], {"pattern": "Error", "whole_words": True}),
    (["-F", "Error(E"], {"pattern": "Error(E", "literal": True}),
    (["--hidden", "Error"], {"pattern": "Error", "hidden": True}),
    (["--no-ignore", "Error"], {"pattern": "Error", "ignored": True}),
    (["-g", "*.py", "-g", "!a.py", "Error"], {"pattern": "Error", "globs": ["*.py", "!a.py"]}),
    (["-A", "1", "-B", "2", "^class"], {"pattern": "^class", "after": 1, "before": 2}),
    (["Grö.e"], {"pattern": "Grö.e"}),
    (["not there at all"], {"pattern": "not there at all"}),
]


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
@requirement("fs/search:hits")
async def test_it_finds_what_ripgrep_finds(client, tree, engine):
    for words, options in CASES:
        search = client.fs.search(tree, **options)
        found = {(hit.path, hit.line, hit.text) async for hit in search}
        assert found == with_ripgrep(tree, *words), words
        assert search.end is not None
        assert (search.end.reason, search.end.engine) == ("complete", engine)


@requirement("fs/search:hits")
async def test_matches_are_marked_in_characters(client, tree, engine):
    hits = [hit async for hit in client.fs.search(tree, "e'''|Error", globs=["a.py", "b.py"])]
    marked = sorted(hit.text[start:end] for hit in hits for start, end in hit.ranges)
    assert marked == ["Error", "Error", "Error", "e'''"]
    (only,) = [hit async for hit in client.fs.search(tree / "sub" / "c.txt", "ERROR")]
    assert (only.path, only.line) == (str(tree / "sub" / "c.txt"), 2)


@requirement("fs/search:names")
async def test_names_are_searched(client, tree):
    found = {hit.text async for hit in client.fs.search(tree, r"\.py$", mode="names")}
    assert found == {"a.py", "link.py", "sub/b.py"}
    every = client.fs.search(tree, r"^sub/.*\.", mode="names", ignored=True, hidden=True)
    assert {hit.text async for hit in every} == {name for name in FILES if "sub/" in name}


@requirement("fs/search:errors")
async def test_a_wrong_pattern_and_a_missing_path_are_errors(client, tree, engine):
    with pytest.raises(InvalidRequest, match=r"unclosed group|unterminated"):
        [hit async for hit in client.fs.search(tree, "(")]
    with pytest.raises(InvalidRequest, match="No such file"):
        [hit async for hit in client.fs.search(tree / "nope", "x")]
    # The next one is not disturbed.
    assert [hit async for hit in client.fs.search(tree, "Errors", ignored=True)]


@requirement("fs/search:bounded")
async def test_a_search_ends_at_its_limits(client, tree, engine):
    search = client.fs.search(tree, "Error", max_matches=1)
    assert len([hit async for hit in search]) == 1
    assert search.end is not None and search.end.reason == "matches"


@requirement("fs/search:hostile")
async def test_a_hostile_pattern_stalls_nothing(client, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_ripgrep", lambda: [])
    (tmp_path / "file").write_text("a" * 5000 + "\n")
    search = client.fs.search(tmp_path, r"(a|aa)+$b", max_seconds=0.5)
    asked = asyncio.create_task(anext(search, None))
    # Other requests are answered meanwhile.
    assert (await client.fs.get_metadata(tmp_path)).is_directory
    async with asyncio.timeout(PATIENCE):
        assert await asked is None
    assert search.end is not None and search.end.reason == "time"


@requirement("fs/search:cancel")
async def test_a_search_that_is_cancelled_leaves_no_process(no_leaks, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_ripgrep", lambda: [])
    (tmp_path / "file").write_text("found\n" + "a" * 5000 + "\n")
    async with local() as client:
        for _ in range(2):
            async with client.fs.search(tmp_path, r"found|(a|aa)+$b") as search:
                assert search.end is None
            assert search.end is not None and search.end.reason == "cancelled"
        search = client.fs.search(tmp_path, r"(a|aa)+$b")
        running = asyncio.create_task(anext(search))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()


@requirement("fs/search:cancel")
async def test_a_lost_connection_ends_its_searches(server, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_ripgrep", lambda: [])
    (tmp_path / "file").write_text("a" * 5000 + "\n")
    async with fault_proxy(server.url) as proxy, connect(proxy.url) as client:
        async with client.fs.search(tmp_path, r"(a|aa)+$b") as search:
            proxy.cut()
            with pytest.raises(ConnectionClosed):
                await anext(search)


@needs_bubblewrap
@requirement("fs/search:sandbox")
async def test_a_search_sees_what_its_sandbox_shows(client, tree):
    hits = [hit async for hit in client.fs.sandboxed(read_only()).search(tree, "Error")]
    assert {hit.path for hit in hits} >= {str(tree / "a.py")}


@needs_bubblewrap
@requirement("fs/search:roots")
async def test_a_search_stays_within_the_roots_of_a_principal(no_leaks, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "own").write_text("Error\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_text("Error\n")
    (tmp_path / "app" / "way").symlink_to(tmp_path / "other")
    who = principal(roots=(f"{tmp_path}/app",))
    async with serving(who) as (running, _, _), connect(running.url) as client:
        hits = [hit async for hit in client.fs.search(tmp_path / "app", "Error")]
        assert [hit.path for hit in hits] == [str(tmp_path / "app" / "own")]
        with pytest.raises(InvalidRequest):
            [hit async for hit in client.fs.search(tmp_path / "app" / "way", "Error")]
        for outside in (tmp_path / "other", "/etc"):
            with pytest.raises(Exception, match="the roots of principal"):
                [hit async for hit in client.fs.search(outside, "Error")]


@requirement("fs/search:capability")
async def test_a_server_without_it_is_not_asked(reference, tmp_path):
    async with connect(reference.url) as client:
        with pytest.raises(MethodNotFound, match="does not offer fsSearch"):
            [hit async for hit in client.fs.search(tmp_path, "x")]


@requirement("fs/search:limits")
async def test_a_connection_has_a_number_of_searches(server, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_ripgrep", lambda: [])
    (tmp_path / "file").write_text("a" * 5000 + "\n")
    async with Wire(server.url) as wire:
        await wire.initialize()
        params = {"path": f"file://{tmp_path}", "pattern": r"(a|aa)+$b"}
        for number in range(8):
            await wire.call("fs/search", {**params, "searchId": f"s{number}"})
        error = await wire.error("fs/search", {**params, "searchId": "one more"})
        assert error["message"] == "at most 8 searches may run per connection"
        # Another one of the same name takes its place.
        await wire.call("fs/search", {**params, "searchId": "s0"})
        await wire.call("fs/cancelSearch", {"searchId": "s1"})
        await wire.call("fs/search", {**params, "searchId": "one more"})


@requirement("fs/search:sync")
def test_the_synchronous_client_searches(tree):
    with local_sync() as client:
        found = client.fs.search(str(tree), "Error")
        assert {hit.path for hit in found} >= {str(tree / "a.py")}
        assert found.end is not None and found.end.reason == "complete"


def fake_ripgrep(monkeypatch, path: Path, script: str) -> None:
    """A program that takes the place of rg."""
    program = path / "rg"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    monkeypatch.setattr(searches, "_ripgrep", lambda: [str(program)])


BEGIN = '{"type":"begin","data":{"path":{"text":"/x"}}}'
MATCH = (
    '{"type":"match","data":{"path":{"text":"/x"},"lines":{"text":"hit\\\\n"},"line_number":1,'
    '"submatches":[{"start":0,"end":3}]}}'
)
CONTEXT = MATCH.replace("match", "context", 1)
SUMMARY = '{"type":"summary","data":{"stats":{"searches":1}}}'


@requirement("fs/search:complaints")
async def test_many_complaints_of_ripgrep_do_not_stall_it(client, tmp_path, monkeypatch):
    # A pipe takes 64 KiB.
    noise = "i=0; while [ $i -lt 4000 ]; do echo /y$i: Permission denied >&2; i=$((i+1)); done"
    fake_ripgrep(
        monkeypatch, tmp_path, f"{noise}\necho '{BEGIN}\n{MATCH}'\necho '{SUMMARY}'\nexit 2\n"
    )
    search = client.fs.search(tmp_path, "hit")
    async with asyncio.timeout(PATIENCE):
        assert [hit.text async for hit in search] == ["hit"]
    assert search.end is not None
    assert (search.end.reason, search.end.matches) == ("complete", 1)
    assert search.end.message == "/y0: Permission denied"


@requirement("fs/search:errors")
async def test_a_ripgrep_that_does_not_end_by_itself_is_a_failure(client, tmp_path, monkeypatch):
    fake_ripgrep(monkeypatch, tmp_path, f"echo '{BEGIN}\n{MATCH}'\nkill -9 $$\n")
    search = client.fs.search(tmp_path, "hit")
    assert (await anext(search)).path == "/x"
    with pytest.raises(InvalidRequest, match="rg ended with status -9"):
        await anext(search)
    fake_ripgrep(monkeypatch, tmp_path, "echo nonsense\nexec sleep 1000\n")
    with pytest.raises(InvalidRequest, match="rg printed nonsense"):
        await anext(client.fs.search(tmp_path, "hit"))


@requirement("fs/search:bounded")
async def test_lines_around_the_last_match_are_shown(client, tmp_path, monkeypatch):
    fake_ripgrep(
        monkeypatch,
        tmp_path,
        f"echo '{BEGIN}\n{MATCH}\n{CONTEXT}\n{MATCH}\n{MATCH}'\nexec sleep 1000\n",
    )
    search = client.fs.search(tmp_path, "hit", max_matches=1)
    async with asyncio.timeout(PATIENCE):
        assert [hit.is_context async for hit in search] == [False, True]
    assert search.end is not None and (search.end.reason, search.end.matches) == ("matches", 1)


@requirement("fs/search:bounded")
async def test_a_line_without_end_is_left_out(client, tmp_path, engine):
    (tmp_path / "long").write_bytes(b"x" * 5_000_000 + b"hit\n")
    (tmp_path / "other").write_bytes(b"a hit\n" + b"y" * 10_000 + b"hit\n")
    hits = sorted([hit async for hit in client.fs.search(tmp_path / "other", "hit")])
    assert [(hit.line, len(hit.text), hit.ranges) for hit in hits] == [
        (1, 5, ((2, 5),)),
        (2, 4096, ()),
    ]
    if engine == "ripgrep":
        assert [hit async for hit in client.fs.search(tmp_path / "long", "hit")] == []


@requirement("fs/search:bounded")
@pytest.mark.parametrize("first", ["a", "é", "\N{GRINNING FACE}" * 5000])
def test_a_line_of_matches_costs_no_more_than_what_is_shown_of_it(first, monkeypatch):
    looked_at: list[tuple[int, int]] = []
    count = ripgrep_output._in_characters

    def counted(line: bytes, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        looked_at.append((len(line), len(found := count(line, spans))))
        return found

    monkeypatch.setattr(ripgrep_output, "_in_characters", counted)
    text, start = first + "b" * 50_000 + "\n", len(first.encode())
    spans = [{"start": start + place, "end": start + place + 1} for place in range(50_000)]
    begin = {"type": "begin", "data": {"path": {"text": "/f"}}}
    facts = {"lines": {"text": text}, "line_number": 1, "submatches": spans}
    printed = [begin, {"type": "match", "data": facts}]
    (file,) = RipgrepOutput().take(b"".join(json.dumps(each).encode() + b"\n" for each in printed))
    assert file.ranges[0] == tuple((n, n + 1) for n in range(len(first), TEXT_CHARS))
    assert all(size <= 4 * TEXT_CHARS and spans <= TEXT_CHARS + 1 for size, spans in looked_at)


def on_the_wire(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The hits of a search, whichever way they came."""
    found = []
    for event in events:
        found += [{"text": "", **match} for match in event["matches"]]
        if "dataBase64" in event:
            table, files = json.loads(base64.b64decode(event["dataBase64"]))
            for path, lines, texts, places, context in files:
                ranges = [table[place] for place in places]
                for place, text in enumerate(texts):
                    hit = {"path": path, "text": text}
                    if lines:
                        hit["line"] = lines[place]
                    if ranges[place]:
                        hit["ranges"] = ranges[place]
                    if place in context:
                        hit["isContext"] = True
                    found.append(hit)
    return sorted(found, key=lambda hit: json.dumps(hit, sort_keys=True))


@pytest.mark.parametrize("options", [{}, {"before": 1, "after": 1}, {"mode": "names"}])
@requirement("fs/search:packed")
async def test_packed_hits_are_the_same_hits(wire, tree, engine, options):
    async def ask(**more: bool) -> list[dict[str, Any]]:
        params = {"searchId": "s", "path": str(tree), "pattern": "r", **options, **more}
        await wire.call("fs/search", params)
        events: list[dict[str, Any]] = []
        while not events or "end" not in events[-1]:
            found = await wire.find(lambda message: message.get("method") == "fs/searchFound")
            events.append(found["params"])
        return events

    plain, packed = await ask(), await ask(packed=True)
    assert on_the_wire(plain) and on_the_wire(plain) == on_the_wire(packed)
    assert not any("dataBase64" in event for event in plain)
    assert not any(event["matches"] for event in packed)
    assert plain[-1]["end"] == packed[-1]["end"]


@requirement("fs/search:packed")
async def test_a_server_without_it_is_not_asked_to_pack():
    asked: list[dict[str, Any]] = []

    async def play(talk: Talk) -> None:
        info = {"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": {"fsSearch": True}}
        await talk.shake_hands({"sessionId": "s", "environmentInfo": info})
        request = await talk.expect("fs/search")
        asked.append(request["params"])
        found = {
            "searchId": request["params"]["searchId"],
            "matches": [{"path": "file:///x", "line": 1, "text": "hit", "ranges": [[0, 3]]}],
            "end": {"reason": "complete"},
        }
        await talk.send({"method": "fs/searchFound", "params": found})
        await talk.answer(request, {})
        await talk.gone()

    async with fake_server(play) as url, connect(url, reconnect=False) as client:
        hits = [hit async for hit in client.fs.search("/x", "hit")]
    assert hits == [("/x", 1, "hit", ((0, 3),), False)]
    assert "packed" not in asked[0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["file:///x", "file:///y"]),
            st.lists(st.tuples(st.text(), st.lists(st.tuples(PLACES, PLACES)), st.booleans())),
        )
    )
)
@requirement("fs/search:packed")
def test_what_is_packed_is_what_is_unpacked(files):
    found = [
        FileHits(
            path,
            list(range(len(hits))),
            [text for text, _, _ in hits],
            [tuple(ranges) for _, ranges, _ in hits],
            [place for place, (_, _, is_context) in enumerate(hits) if is_context],
        )
        for path, hits in files
    ]
    assert unpacked(packed(found), Limits()) == found


@pytest.mark.parametrize(
    ("ranges", "file"),
    [
        pytest.param([], ["file:///x", [1], ["a"], [0], []], id="no such ranges"),
        pytest.param([[]], ["file:///x", [1], ["a"], [-1], []], id="ranges before the first"),
        pytest.param([[]], ["file:///x", [1], ["a"], [0, 0], []], id="more ranges than lines"),
        pytest.param([[]], ["file:///x", [1], ["a"], [0], [1]], id="no such line"),
    ],
)
@requirement("fs/search:packed")
def test_packed_hits_that_do_not_fit_are_refused(ranges, file):
    with pytest.raises(ValueError):
        unpacked(Blob(json.dumps([ranges, [file]]).encode()), Limits())


@given(st.lists(st.booleans(), max_size=8), st.integers(0, 8))
@requirement("fs/search:bounded")
def test_the_first_hits_of_a_file_are_all_before_the_next_match(kinds, most):
    """*kinds* says which lines have a match."""
    texts = [str(place) for place in range(len(kinds))]
    context = [place for place, is_match in enumerate(kinds) if not is_match]
    found = FileHits("file:///x", list(range(len(kinds))), texts, [()] * len(kinds), context)
    first = found.first(most)
    assert first.match_count == min(most, found.match_count)
    assert first.texts == texts[: len(first.texts)]
    assert [place for place in context if place < len(first.texts)] == first.context
    if len(first.texts) < len(texts):
        assert kinds[len(first.texts)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@requirement("fs/search:errors")
async def test_a_directory_that_cannot_be_read_is_an_error(client, tmp_path, engine):
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(InvalidRequest, match="Permission denied"):
        [hit async for hit in client.fs.search(tmp_path / "closed", "x")]
    # Below the root it is only mentioned.
    search = client.fs.search(tmp_path, "x")
    assert [hit async for hit in search] == []
    assert search.end is not None and "closed: Permission denied" in search.end.message
