"""client.discovery."""

from __future__ import annotations

from tests.requirements import requirement


@requirement("discover/roots:files", "config/read:layers")
async def test_a_client_asks_for_what_is_on_the_machine(client, tmp_path):
    (tmp_path / "SKILL.md").write_text("x")
    found = await client.discovery.discover_roots({"mine": tmp_path})
    assert len(found["mine"].skills) == 1
    assert isinstance((await client.discovery.discover()).skills, list)
    read = await client.discovery.read_config([["no_such_key"]], cwd=tmp_path)
    assert read.codex_home_dir.startswith("file:")
    assert read.config.layers == []
