"""How a report looks: one style sheet, in the page itself.

Both palettes keep the contrast of WCAG AA (texts 4.5 : 1, parts of plots 3 : 1) against their
background, which a test computes. Paper always gets the light one.
"""

from typing import Final

LIGHT: Final = {
    "back": "#ffffff",
    "panel": "#f4f5f7",
    "text": "#1b1e24",
    "muted": "#545b67",
    "rule": "#c9cdd4",
    "bar": "#2463a6",
    "track": "#e7eaee",
    "good": "#17683a",
    "bad": "#b0221a",
}
DARK: Final = {
    "back": "#14171c",
    "panel": "#1d2128",
    "text": "#e7e9ed",
    "muted": "#a8b0bc",
    "rule": "#3c434e",
    "bar": "#72aae8",
    "track": "#2a303a",
    "good": "#74d494",
    "bad": "#ff8f86",
}
_RULES: Final = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 68rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.25rem; }
p { margin: 0.5rem 0; }
.verdict { padding: 1rem; background: var(--panel); border-left: 6px solid var(--rule); }
.verdict p:first-child { margin-top: 0; font-size: 1.25rem; font-weight: 700; }
.good { border-color: var(--good); } .good p:first-child { color: var(--good); }
.bad { border-color: var(--bad); } .bad p:first-child { color: var(--bad); }
ul { padding-left: 1.25rem; margin: 0.5rem 0; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 0.15rem 1rem;
  margin: 1rem 0; }
dt { color: var(--muted); } dd { margin: 0; }
code { font: 0.9em ui-monospace, monospace; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--bar); outline-offset: 2px; }
table { border-collapse: collapse; min-width: 100%; font-size: 0.9rem; }
caption { text-align: left; color: var(--muted); padding-bottom: 0.25rem; }
caption span { display: inline-block; max-width: min(66rem, 100vw - 2rem); }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0;
  border-bottom: 1px solid var(--rule); }
.short { white-space: nowrap; } .long { min-width: 11rem; } .longer { min-width: 18rem; }
th { white-space: nowrap; overflow-wrap: normal; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.plots { display: grid; gap: 1.5rem 2.5rem; margin: 1.5rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; margin-bottom: 0.25rem; }
svg { display: block; overflow: visible; }
svg text { font: 13px system-ui, sans-serif; fill: var(--muted); }
svg .label { fill: var(--text); } svg .end { text-anchor: end; }
.bar { fill: var(--bar); } .track { fill: var(--track); }
.grid { stroke: var(--rule); stroke-dasharray: 3 3; } .axis { stroke: var(--muted); }
.border { stroke: var(--muted); } line.fault { stroke: var(--bad); stroke-width: 2; }
circle.fault { fill: var(--bad); }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  .scroll { overflow: visible; } table { font-size: 8pt; }
  .short { white-space: normal; } .long, .longer { min-width: 0; }
  figure, tr, .verdict { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
  rect, circle, line, .verdict { print-color-adjust: exact; }
}
"""


def _palette(colors: dict[str, str]) -> str:
    values = " ".join(f"--{name}: {color};" for name, color in colors.items())
    return f":root {{ {values} }}"


STYLE: Final = "\n".join(
    (
        ":root { color-scheme: light dark; }",
        _palette(LIGHT),
        f"@media screen and (prefers-color-scheme: dark) {{ {_palette(DARK)} }}",
        _RULES.strip(),
        "",
    )
)
