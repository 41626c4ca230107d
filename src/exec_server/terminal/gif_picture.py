"""Screens one after another as a moving GIF, drawn with Pillow (extra `png`)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from exec_server.terminal.cells import Row, ScreenCursor
from exec_server.terminal.picture_colors import BACKGROUND
from exec_server.terminal.png_picture import png_picture

if TYPE_CHECKING:
    from PIL.Image import Image


class GifFrame(NamedTuple):
    """A screen, and how many seconds it is shown."""

    rows: Sequence[Row]
    columns: int
    cursor: ScreenCursor | None
    seconds: float


def gif_picture(frames: Sequence[GifFrame]) -> bytes:
    """The frames as a GIF file; smaller ones have a margin. Raises ImportError without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "GIF pictures need Pillow: pip install 'exec-server[png]', or export as svg"
        ) from None

    images = []
    for frame in frames:
        data = png_picture(frame.rows, frame.columns, cursor=frame.cursor)
        with Image.open(io.BytesIO(data)) as image:
            images.append(image.convert("P", palette=Image.Palette.ADAPTIVE, colors=128))
    size = max(image.width for image in images), max(image.height for image in images)
    whole = [image if image.size == size else _on(image, size) for image in images]
    file = io.BytesIO()
    whole[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=whole[1:],
        # GIF counts hundredths of a second, and players take less than two of them for ten.
        duration=[max(20, round(frame.seconds * 1000)) for frame in frames],
        loop=0,
    )
    return file.getvalue()


def _on(image: Image, size: tuple[int, int]) -> Image:
    from PIL import Image as images

    whole = images.new("RGB", size, BACKGROUND)
    whole.paste(image.convert("RGB"), (0, 0))
    return whole.convert("P", palette=images.Palette.ADAPTIVE, colors=128)
