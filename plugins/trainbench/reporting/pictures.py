"""The one engine of pictures, matplotlib: PNG files for the store, and SVG inside of reports and pages.

SVG needs no script, prints, and takes its colours from the page's palette, in the light and in the dark. matplotlib's
settings are global: one picture is drawn at a time, as readers of pages are served by threads.
"""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Name in the style sheets -> colour in a PNG; no two are equal, since an SVG's colours become names again.
PALETTE = {
    "ink": "#22272e", "soft": "#8a929c", "line": "#e4e7ea", "card": "#ffffff", "band": "#dfe7dc",
    "good": "#1d6b5f", "warn": "#a35b00", "bad": "#b3261e", "accent": "#3b6fa0",
    "p1": "#31363c", "p2": "#6b4fa0", "p3": "#a78bd0", "p4": "#d5c9e8", "p5": "#e0a458", "p6": "#3f8f63",
    "p7": "#c3c8cd", "p8": "#b8573a", "p9": "#7fb5d6",
}  # fmt: skip
INK, SOFT, LINE, CARD, BAND, GOOD, WARN, BAD, ACCENT = list(PALETTE.values())[:9]
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # dollars are dollars
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "trainbench",
}
_one_at_a_time = threading.RLock()


@contextmanager
def drawing() -> Iterator[None]:
    """Figures are made within."""
    from matplotlib import rc_context

    with _one_at_a_time, rc_context(_STYLE):
        yield


def png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(110)
    image = io.BytesIO()
    # No version string, so that equal data gives equal bytes. `savefig` would draw everything twice.
    with drawing():
        FigureCanvasAgg(figure).print_png(image, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return image.getvalue()


def tell(line: Line2D, texts: Sequence[str]) -> None:
    """Give each mark of a line a text, which an SVG shows under the pointer."""
    line.set_gid("told:" + "\n\n".join(texts))


def svg(figure: Figure) -> Markup:
    """The picture for an HTML page, as wide as its place and at most as wide as it was drawn."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    told = {}
    lines = (line for axes in figure.axes for line in axes.lines)  # `findobj` would make every tick
    for number, line in enumerate(line for line in lines if str(line.get_gid()).startswith("told:")):
        told[f"told-{number}"] = str(line.get_gid()).removeprefix("told:").split("\n\n")
        line.set_gid(f"told-{number}")
    text = io.StringIO()
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with drawing():
        FigureCanvasSVG(figure).print_svg(text, metadata=nothing)  # type: ignore[no-untyped-call]
    drawn = text.getvalue()
    head, body = drawn[drawn.index("<svg") :].split(">", 1)
    for gid, texts in told.items():
        body = _with_titles(body, gid, texts)
    body = re.sub(r" id=\"(?![mph][0-9a-f]{8})[^\"]*\"", "", re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL))
    mark = hashlib.sha256(body.encode()).hexdigest()[:6]  # the ids of several pictures of one page differ
    body = re.sub(r"(id=\"|#)([mph][0-9a-f]{8})", rf"\g<1>{mark}\g<2>", body)
    for name, colour in PALETTE.items():
        body = body.replace(colour, f"var(--{name})")
    # Attributes instead of styles: no page needs to allow inline styles. The page's font applies.
    body = re.sub(r'style="([^"]*)"', lambda style: re.sub(r"([\w-]+): ([^;]*);?", r'\1="\2"', style[1]), body)
    body = re.sub(r" font-family=\"[^\"]*\"", "", body)
    width, height = (96 * inches for inches in figure.get_size_inches())
    view = re.search(r'viewBox="[^"]*"', head)
    assert view, "matplotlib writes it"
    start = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} width="{width:.0f}" height="{height:.0f}"'
    return Markup(f'{start} aria-hidden="true">{body}')  # noqa: S704 - matplotlib escapes texts


def _with_titles(body: str, gid: str, texts: Iterable[str]) -> str:
    begin = body.index(f'id="{gid}"')
    left = iter(texts)
    titled = re.sub(
        r"<use [^>]*/>",
        lambda use: f"<g><title>{escape(next(left))}</title>{use[0]}</g>",
        body[begin:],
        count=len(list(texts)),
    )
    return body[:begin] + titled


def add_legend(figure: Figure, order: Iterable[str], **look: Any) -> None:
    """One legend below all axes, in this order, of the labels that any of them has."""
    labelled = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
    handles = {label: handle for pairs in labelled for handle, label in pairs}
    shown = [label for label in order if label in handles]
    figure.legend([handles[label] for label in shown], shown, loc="outside lower center", fontsize=9, **look)
