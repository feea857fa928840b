"""Lines of the evidence page as a reader sees them."""

import re


def line_of(page, words):
    """The one table row that begins with these words after its number."""
    row = re.compile(rf"\| (\d+|–) \| \[?{re.escape(words)}(\]\([a-z0-9_./]+\))? \|")
    (line,) = (line for line in page.splitlines() if row.match(line))
    return plain(line)


def note_of(page, words):
    """What stands below the ranking about a decision; empty: nothing."""
    noted = page.split("To know before believing them:")[1].split("##")[0]
    lines = [line for line in plain(noted).splitlines() if line.startswith(f"- **{words}**: ")]
    return lines[0].removeprefix(f"- **{words}**: ") if lines else ""


def plain(line):
    """As a reader sees it: without backslashes and the pages behind names, and with plain
    spaces."""
    return (
        re.sub(r"\[([^\[\]]*)\]\(\.\./levers/\w+\.md\)", r"\1", line)
        .replace("\\", "")
        .replace("\u00a0", " ")
    )
