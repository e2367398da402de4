#!/usr/bin/env python3
"""Every relative link in a tracked Markdown file leads to a tracked file or folder, and every #anchor to a heading of it."""

import os
import re

import checklib

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
PICTURE = re.compile(r"!\[[^\]\n]*\]\(([^()\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)
SKIP = ("data/builtin/", "data/golden/", "data/eval/")


def without_code(text):
    return CODE.sub(lambda match: "\n" * match.group(0).count("\n"), text)


def anchors(text):
    """Anchors of the headings, made as the usual web views make them."""
    found = set()
    for heading in re.findall(r"^#{1,6}\s+(.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M):
        plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", heading).strip().lower()
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain)))
    return found


def check_file(path, root, known):
    problems = []
    text = without_code(checklib.read(path, root))
    for match in list(LINK.finditer(text)) + list(PICTURE.finditer(text)):
        target = match[1]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        line = text.count("\n", 0, match.start()) + 1
        if file not in known:
            problems.append(f"{path}:{line}: link to '{target}', which is not in the repository")
        elif anchor and file.endswith(".md") and anchor not in anchors(checklib.read(file, root)):
            problems.append(f"{path}:{line}: '{file}' has no heading '#{anchor}'")
    return problems


def main():
    root = checklib.ROOT
    files = checklib.tracked_files(root)
    known = set(files) | {"."}
    for path in files:
        while os.path.dirname(path):
            path = os.path.dirname(path)
            known.add(path)
    pages = [path for path in files if path.endswith(".md") and not path.startswith(SKIP)]
    problems = []
    for path in pages:
        problems += check_file(path, root, known)
    checklib.finish("links", problems, f"{len(pages)} pages")


if __name__ == "__main__":
    main()
