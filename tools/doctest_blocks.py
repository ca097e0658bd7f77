"""For the documentation site: doctests in docstrings become code blocks.

mkdocstrings reads text outside named sections as Markdown, where `>>>` is a quotation of a quotation.
"""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """Text whose doctests, each from its prompt to the next empty line, stand in code blocks.

    >>> fenced("A sum.\\n\\n>>> 1 + 1\\n2\\n\\nThe end.").splitlines()
    ['A sum.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'The end.']
    """
    lines: list[str] = []
    is_inside = False
    for line in text.splitlines():
        if not is_inside and line.startswith(">>> "):
            lines.append("```pycon")
            is_inside = True
        elif is_inside and not line.strip():
            lines.append("```")
            is_inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if is_inside else lines)


class DoctestBlocks(griffe.Extension):
    """Applies `fenced` to every docstring that mkdocstrings loads."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
