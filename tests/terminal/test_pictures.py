"""Pictures of screens."""

from __future__ import annotations

import hashlib
import io
import xml.etree.ElementTree as ElementTree

from PIL import Image

from exec_server.terminal import open_engine
from exec_server.terminal.png_picture import png_picture
from exec_server.terminal.svg_picture import svg_picture
from tests.requirements import requirement

_OUTPUT = (
    "plain \x1b[1;31mbold red\x1b[0m \x1b[7minverse\x1b[0m \x1b[4munder\x1b[0m <&>\r\n"
    "┌──┐ 漢字 é \x1b[48;2;9;99;200mblue\x1b[K\x1b[0m\r\n\x1b[2mfaint\x1b[8mhidden\x1b[0m\x1b[5 q"
).encode()


def _screen():
    engine = open_engine(40, 4)
    engine.feed(_OUTPUT)
    rows, cursor = engine.cells(), engine.cursor
    engine.close()
    return rows, cursor


@requirement("screen:pictures")
def test_svg_is_a_document_with_the_text():
    rows, cursor = _screen()
    picture = svg_picture(rows, 40, cursor=cursor, title="a <title>\x01")
    root = ElementTree.fromstring(picture)
    assert root.get("width") == "376" and root.get("height") == "88"
    text = "".join(root.itertext()).replace("\u00a0", " ")
    assert "a <title>" in text and "bold red" in text and "<&>" in text and "漢字" in text
    assert b"#0963c8" in picture


@requirement("screen:pictures")
def test_png_has_the_same_pixels_each_time():
    rows, cursor = _screen()
    one, two = (png_picture(rows, 40, cursor=cursor) for _ in range(2))
    assert one == two
    image = Image.open(io.BytesIO(one))
    assert image.size == (376, 88)
    colors = {color for _, color in image.getcolors(maxcolors=100_000) or []}
    assert {(0x10, 0x10, 0x10), (9, 99, 200), (0xD8, 0xD8, 0xD8)} <= colors
    assert len(hashlib.sha256(image.tobytes()).hexdigest()) == 64
