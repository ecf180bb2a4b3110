"""Tables and plots inside documents: each stands between markers <!-- MARK:NAME --> and <!-- /MARK:NAME --> and is made anew."""
import sys

import rows


def with_tables(text, mark, tables):
    """The text with each marked table (or line of text) made anew; one without results (None) keeps what stands there."""
    for name, table in tables.items():
        begin, end = f"<!-- {mark}:{name} -->", f"<!-- /{mark}:{name} -->"
        if begin not in text or table is None:
            continue
        before, rest = text.split(begin, 1)
        if end not in rest:
            raise ValueError(f"{begin} without {end}")
        lines = [table] if isinstance(table, str) else rows.markdown(table)
        text = before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    return text


def update(paths, mark, tables, check):
    """Writes the documents anew, or with `check` ends with an error where one is not as its tables say."""
    stale = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        made = with_tables(text, mark, tables)
        if made != text:
            stale.append(path.name)
            if not check:
                path.write_text(made, encoding="utf-8")
    if check and stale:
        sys.exit(f"tables not as {mark}/results says (run {mark}/tables.py): {', '.join(stale)}")
