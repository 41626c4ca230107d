"""The status page: metrics and a table of environments, as HTML without scripts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from exec_server.hub.http.environment_listing import EnvironmentPage, ListedEnvironment
from exec_server.prometheus import Metric

# The page may not load, run, frame or send anything, whatever text an environment reports.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# All colours come from the browser's light or dark scheme.
_STYLE = """
:root { color-scheme: light dark; --faint: color-mix(in srgb, CanvasText 68%, Canvas);
        --line: color-mix(in srgb, CanvasText 18%, Canvas); }
body { background: Canvas; color: CanvasText; font: 15px/1.45 system-ui, sans-serif;
       margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 1rem 0 1.5rem; }
dt, th, .faint { color: var(--faint); font-size: .85rem; font-weight: normal; }
dd { font-size: 1.2rem; font-variant-numeric: tabular-nums; margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .45rem 1.2rem .45rem 0;
         text-align: left; vertical-align: top; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
td:first-child { overflow-wrap: anywhere; white-space: normal; }
td.number, th.number { font-variant-numeric: tabular-nums; text-align: right; }
.online::before { color: #2a9d4a; content: "\\25cf  "; }
.offline::before { color: var(--faint); content: "\\25cb  "; }
"""

# Environments on one page.
ENVIRONMENTS = 200
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def render(page: EnvironmentPage, found: Sequence[Metric], *, now: float) -> str:
    online = sum(each.is_online for each in page.environments)
    is_all = not page.turn.after and page.following is None
    rows = "".join(_row(each, now) for each in page.environments)
    none = "<p>No environment has registered yet.</p>" if is_all else "<p>No more environments.</p>"
    facts = "".join(_metric(each) for each in found if each.kind == "gauge")
    return _PAGE.format(
        style=_STYLE,
        online=online,
        count=len(page.environments),
        where="" if is_all else " on this page",
        metrics=facts,
        table=_TABLE.format(rows=rows) if rows else none,
        links=_links(page),
        at=_moment(now),
    )


def _links(page: EnvironmentPage) -> str:
    links = []
    if page.turn.after:
        links.append('<a href="./">First page</a>')
    if page.following is not None:
        links.append(f'<a href="?{escape(page.following.query)}" rel="next">Next page</a>')
    return f"<p>{' '.join(links)}</p>" if links else ""


def _metric(metric: Metric) -> str:
    is_bytes = metric.name.endswith("bytes")
    shown = _size(metric.value) if is_bytes else f"{metric.value:.0f}"
    title = escape(metric.name.replace("_", " "))
    return f'<div title="{escape(metric.help)}"><dt>{title}</dt><dd>{shown}</dd></div>'


def _row(each: ListedEnvironment, now: float) -> str:
    labels = " ".join(f"{name}={value}" for name, value in each.labels.items())
    state = "online" if each.is_online else "offline"
    cells = [
        f'<td class="{state}">{escape(each.name)}<div class="faint">{escape(labels)}</div></td>',
        f"<td>{state}{_for_how_long(each, now)}</td>",
        f"<td>{escape(each.version or '-')}</td>",
        f"<td>{escape(each.platform or '-')}</td>",
        f"<td>{escape(each.sandbox or '-')}</td>",
        f"<td>{escape(each.principal)}</td>",
        f"<td>{'yes' if each.is_encrypted else 'no'}</td>",
        f'<td class="number">{each.streams}</td>',
        f'<td class="number">{_size(each.bytes)}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _for_how_long(each: ListedEnvironment, now: float) -> str:
    if each.online_since is not None:
        return f" for {_length(now - each.online_since)}"
    return f'<div class="faint">registered {_moment(each.registered_at)}</div>'


def _size(count: float) -> str:
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def _length(seconds: float) -> str:
    minutes = int(seconds // 60)
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


_TABLE = """<div class="scroll"><table><thead><tr><th>Environment</th><th>State</th>
<th>Version</th><th>Platform</th><th>Sandbox</th><th>Enrolled by</th><th>Encrypted</th>
<th class="number">Streams</th><th class="number">Relayed</th></tr></thead>
<tbody>{rows}</tbody></table></div>"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>exec-server registry</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><h1>exec-server registry: {online} of {count} environments{where} online</h1>
<dl>{metrics}</dl>
{table}{links}
<p class="faint">As of {at}</p></body></html>
"""
