"""The style sheet of the page: light and dark, wide and narrow."""

from __future__ import annotations

# Each colour has a contrast of at least 3 to 1 with its background; blue, orange and green are told apart by people who
# see few colours, and no figure depends on colour alone: kinds of prediction differ in their dashes, groups in panels.
_LIGHT = ("#1f5fc4", "#c2560a", "#0c7d5c", "#8046c2", "#b0306f", "#0b7b93", "#77611a", "#5b6675")
_DARK = ("#74a9ff", "#f39a4a", "#43c99b", "#b794f6", "#f07fb2", "#4fc3dc", "#d4b95a", "#a3aebd")


def _colors(values: tuple[str, ...]) -> str:
    return " ".join(f"--c{number}: {value};" for number, value in enumerate(values))


def _classes(count: int) -> str:
    return "\n".join(f".c{number} {{ --color: var(--c{number}); }}" for number in range(count))


STYLE = f"""
:root {{ color-scheme: light dark; --back: #fff; --ink: #1b2027; --soft: #5a6472; --line: #dde1e7; --panel: #f6f7f9;
  --good: #0c7d5c; --warn: #a85b00; --bad: #b3261e; {_colors(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --back: #14171b; --ink: #e7eaee; --soft: #a1abb8; --line: #323942; --panel: #1b1f25;
    --good: #43c99b; --warn: #f2b45a; --bad: #ff8f86; {_colors(_DARK)} }}
}}
* {{ box-sizing: border-box; }}
html {{ scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }}
@media (prefers-reduced-motion: reduce) {{ html {{ scroll-behavior: auto; }} }}
body {{ margin: 0 auto; max-width: 74rem; padding: 2rem clamp(1rem, 3vw, 2rem) 5rem; background: var(--back);
  color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
h1, h2, h3 {{ line-height: 1.25; overflow-wrap: anywhere; text-wrap: balance; }}
h1 {{ font-size: 1.7rem; margin: 0 0 .3rem; letter-spacing: -.01em; }}
h2 {{ font-size: 1.25rem; margin: 2.4rem 0 .8rem; padding-top: 1rem; border-top: 1px solid var(--line); }}
h3 {{ font-size: 1rem; margin: 0; }}
p {{ margin: .4rem 0; max-width: 46rem; }}
a {{ color: var(--c0); }}
:focus-visible {{ outline: 2px solid var(--c0); outline-offset: 2px; }}
.note, figcaption, caption {{ color: var(--soft); }}
.note {{ overflow-wrap: anywhere; }}
.skip {{ position: absolute; left: -999rem; }}
.skip:focus {{ left: 1rem; top: .5rem; background: var(--back); padding: .4rem .8rem; z-index: 2; }}
.hidden {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: 1rem 0 0; list-style: none;
  font-size: .92rem; }}
.verdict {{ margin: 1.4rem 0 0; padding: 1.1rem 1.3rem 1.2rem; background: var(--panel); border: 1px solid var(--line);
  border-left: 4px solid var(--c0); border-radius: 8px; }}
.verdict h2 {{ margin: 0 0 .3rem; padding: 0; border: 0; font-size: .85rem; letter-spacing: .06em;
  text-transform: uppercase; color: var(--soft); }}
.verdict p {{ font-size: 1.13rem; line-height: 1.5; max-width: 58rem; }}
.findings {{ list-style: none; padding: 0; margin: 1rem 0 0; display: grid; gap: .6rem; }}
.findings li {{ padding-left: .9rem; border-left: 3px solid var(--soft); max-width: 58rem; }}
.findings .error {{ border-color: var(--bad); }}
.findings .warning {{ border-color: var(--warn); }}
.findings b:first-child {{ margin-right: .35rem; }}
.wide {{ position: relative; overflow-x: auto; margin: 0 0 1.4rem; }}
table {{ min-width: min(100%, 32rem); border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: .95rem; }}
caption {{ text-align: left; font-size: .9rem; padding-bottom: .45rem; max-width: min(46rem, calc(100vw - 2.2rem));
  position: sticky; left: 0; }}
th, td {{ padding: .42rem 1.15rem .42rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; }}
thead th {{ color: var(--soft); font-weight: 600; font-size: .86rem; vertical-align: bottom; }}
tbody th {{ font-weight: 500; min-width: 8.5rem; position: sticky; left: 0; background: var(--back); }}
thead th:first-child {{ position: sticky; left: 0; background: var(--back); }}
figure th {{ background: var(--panel) !important; }}
.keyed {{ display: inline-flex; align-items: baseline; }} .keyed .key {{ flex: none; transform: translateY(-.3em); }}
.number {{ text-align: right; white-space: nowrap; }}
thead .number {{ white-space: normal; min-width: 5.2rem; }}
.spread {{ color: var(--soft); font-size: .86em; }}
.best {{ font-weight: 700; }}
.best::before {{ content: "\\2605"; color: var(--good); font-size: .8em; margin-right: .3em; }}
.panels > div:only-child {{ max-width: none; }}
td .bar {{ display: block; height: 4px; margin: .15rem 0 .1rem auto; border-radius: 2px; background: var(--color); }}
.key {{ display: inline-block; width: 1.5rem; height: 0; border-top: 3px solid var(--color); vertical-align: middle;
  margin-right: .45rem; }}
.key.d1 {{ border-top-style: dashed; }} .key.d2 {{ border-top-style: dotted; }} .key.d3 {{ border-top-style: double; }}
.soft {{ --color: var(--soft); }}
{_classes(len(_LIGHT))}
.figures {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }}
.figures.two {{ grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); }}
figure {{ margin: 0; padding: .9rem 1rem .8rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; min-width: 0; }}
figure.all {{ grid-column: 1 / -1; }}
@media (min-width: 48rem) {{ figure.double {{ grid-column: span 2; }} }}
figcaption {{ font-size: .88rem; line-height: 1.45; margin-top: .5rem; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; padding: 0; margin: .35rem 0 .3rem;
  font-size: .85rem; }}
.panels {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
  gap: .7rem .9rem; }}
@media (min-width: 48rem) {{ .panels {{ grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); }} }}
.panels > div {{ max-width: 26rem; }}
.panels h4 {{ font-size: .82rem; font-weight: 600; margin: .3rem 0 .1rem; overflow-wrap: anywhere; line-height: 1.3; }}
.plot {{ width: 100%; height: auto; display: block; overflow: visible; margin-top: .35rem; }}
.plot text {{ font-size: 12.5px; fill: var(--soft); font-variant-numeric: tabular-nums; }}
.plot .name {{ fill: var(--ink); }}
.two > figure > .plot text {{ font-size: 11px; }}
.panels .plot text {{ font-size: 10.5px; }} .panels .line {{ stroke-width: 1.4; }}
.axes {{ font-size: .85rem; margin: .2rem 0 .3rem; }}
.plot .end {{ text-anchor: end; }} .plot .middle {{ text-anchor: middle; }}
.plot .grid {{ stroke: var(--line); fill: none; }} .plot .axis {{ stroke: var(--soft); fill: none; }}
.line {{ stroke: var(--color); fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }}
.line.thin {{ stroke-width: 1.2; }} .others .line {{ stroke: var(--line); stroke-width: 1; }}
.line.d1 {{ stroke-dasharray: 6 4; }} .line.d2 {{ stroke-dasharray: 1 4; }} .line.d3 {{ stroke-dasharray: 9 3 2 3; }}
.line.soft {{ stroke-width: 1.3; }}
.dot {{ fill: var(--color); }} .dot.faint {{ opacity: .35; }}
.band {{ fill: var(--color); opacity: .2; stroke: none; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: .9rem; list-style: none;
  padding: 0; margin: .6rem 0 1.6rem; }}
.cards.large {{ grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); }}
.cards li {{ font-size: .86rem; line-height: 1.4; min-width: 0; overflow-wrap: anywhere; }}
.cards.large > li {{ padding: .9rem 1rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; }}
.cards img {{ display: block; width: 100%; max-width: 7rem; image-rendering: pixelated; border: 1px solid var(--line);
  border-radius: 4px; margin-bottom: .4rem; }}
.says {{ display: grid; gap: .55rem; margin: .7rem 0 0; }}
.says dt {{ color: var(--soft); }}
.says dd {{ margin: 0; display: grid; grid-template-columns: minmax(1.2rem, auto) 1fr 2.7rem; gap: .5rem;
  align-items: center; font-variant-numeric: tabular-nums; }}
.says dd span:last-child {{ text-align: right; }}
.track {{ background: var(--line); border-radius: 4px; }}
.track .bar {{ display: block; height: 7px; border-radius: 4px; background: var(--color); min-width: 1px; }}
details {{ margin-top: .5rem; font-size: .9rem; }}
.wide + details {{ margin: -.7rem 0 1.7rem; }}
summary {{ cursor: pointer; color: var(--soft); }}
pre {{ background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; overflow-x: auto;
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, monospace; }}
footer {{ margin-top: 3rem; color: var(--soft); font-size: .86rem; }}
@media (max-width: 36rem) {{
  body {{ padding-top: 1.2rem; }}
  h1 {{ font-size: 1.35rem; }} .verdict p {{ font-size: 1.02rem; }} .verdict {{ padding: .8rem .95rem; }}
  table {{ font-size: .88rem; }} th, td {{ padding-right: .8rem; }} tbody th {{ min-width: 7.6rem; }}
  .cards {{ grid-template-columns: repeat(auto-fill, minmax(6.4rem, 1fr)); }}
}}
@media print {{ figure, .verdict {{ break-inside: avoid; }} nav {{ display: none; }} }}
"""
