#!/usr/bin/env python3
"""Length of files (600 lines, 800 for tests) and functions (70 lines), with a ratchet for what is longer already.

Offenders stand in tools/size_ratchet.txt. They may shrink, never grow. `--tighten` lowers the numbers of those that shrank.
"""

import re
import sys

import checklib

FILE_LINES = 600
TEST_FILE_LINES = 800
FUNCTION_LINES = 70
RATCHET = "tools/size_ratchet.txt"
SCOPE = re.compile(r"^(?:(?:inline|typedef|static|export)\s+)*(namespace|class|struct|union|enum|extern\s*\"\")\b")
NAME = re.compile(r"([~\w:]*(?:operator\s*[^\s\w(]+|operator\s*\(\s*\)|[~\w]+))\s*\(")


def strip_preprocessor(code):
    """Blanks directives with their continuation lines: macro bodies are no functions."""
    lines, inside = code.split("\n"), False
    for index, line in enumerate(lines):
        starts = line.lstrip().startswith("#")
        if starts or inside:
            inside = line.rstrip().endswith("\\")
            lines[index] = ""
        else:
            inside = False
    return "\n".join(lines)


def header_kind(header):
    """What an opening brace begins: 'scope' (namespace, class), 'function', or 'other' (initialiser)."""
    text = re.sub(r"^\s*(?:template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*(?:requires\b[^{;]*?\s)?|\[\[[^\]]*\]\]\s*)*", "", header).strip()
    text = re.sub(r"^(?:public|private|protected)\s*:\s*", "", text)
    if SCOPE.match(text):
        return "scope", ""
    if "(" not in text or text.endswith(("=", ",", "(", "return")):
        return "other", ""
    match = NAME.search(text)
    if match and match[1].startswith(("TEST", "BENCHMARK")):
        return "function", re.sub(r"\s", "", text)
    return "function", match[1] if match else "?"


def functions(code):
    """Yields (name, first line, lines) of every function at namespace or class scope."""
    code = strip_preprocessor(checklib.blank_literals(code))
    stack, line, start, start_line, parens = [], 1, 0, None, 0
    for index, char in enumerate(code):
        if char == "\n":
            line += 1
            continue
        if char.isspace():
            continue
        in_body = any(kind != "scope" for kind, _, _ in stack)
        if not in_body and start_line is None and char not in "};":
            start, start_line = index, line
        if char in "()":
            parens += 1 if char == "(" else -1
        if char == "{":
            kind, name = header_kind(code[start:index]) if not in_body and parens <= 0 else ("other", "")
            stack.append((kind, name, start_line or line))
            if not in_body:
                start_line = None
        elif char == "}":
            if stack:
                kind, name, first = stack.pop()
                if kind == "function":
                    yield name, first, line - first + 1
            start_line = None if not any(kind != "scope" for kind, _, _ in stack) else start_line
            parens = 0 if not stack else parens
        elif char == ";" and not in_body:
            start_line = None


def measure(root):
    """All lengths above the limits: {('file', path): lines, ('function', path, name): lines}, and where functions begin."""
    found, places = {}, {}
    for path in checklib.code_files(root) + [p for p in checklib.tracked_files(root) if p.startswith("tools/") and p.endswith(".py")]:
        text = checklib.read(path, root)
        if checklib.is_generated(text):
            continue
        lines = text.count("\n")
        if lines > (TEST_FILE_LINES if checklib.is_test(path) else FILE_LINES):
            found[("file", path)] = lines
        if path.endswith(checklib.CODE_SUFFIXES):
            for name, first, length in functions(text):
                key = ("function", path, name)
                if length > FUNCTION_LINES and length > found.get(key, 0):
                    found[key], places[key] = length, first
    return found, places


def read_ratchet(text):
    listed = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            listed[tuple(words[:-1])] = int(words[-1])
    return listed


def tighten(text, found):
    """The ratchet file with smaller numbers where something shrank and without what is short enough now."""
    kept = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            now = found.get(tuple(words[:-1]))
            if now is None:
                continue
            if now < int(words[-1]):
                line = line.replace(words[-1], str(now), 1) if words[-1] not in words[:-1] else " ".join(words[:-1] + [str(now)])
        kept.append(line)
    return "\n".join(kept) + "\n"


def main():
    root = checklib.ROOT
    found, places = measure(root)
    text = checklib.read(RATCHET, root)
    if "--tighten" in sys.argv:
        with open(f"{root}/{RATCHET}", "w", encoding="utf-8") as file:
            file.write(tighten(text, found))
        return
    listed, problems = read_ratchet(text), []
    for key, length in sorted(found.items()):
        limit = listed.get(key)
        place = f"{key[1]}:{places[key]}: {key[2]}()" if key in places else key[1]
        if limit is None:
            normal = FUNCTION_LINES if key in places else TEST_FILE_LINES if checklib.is_test(key[1]) else FILE_LINES
            problems.append(f"{place} has {length} lines, the limit is {normal}: split it")
        elif length > limit:
            problems.append(f"{place} grew from {limit} to {length} lines; {RATCHET} lets it shrink only")
    for key, limit in sorted(listed.items()):
        if found.get(key, 0) < limit:
            problems.append(f"{RATCHET}: {' '.join(key)} is down to {found.get(key, 'the limit')}; lower it with `make fix`")
    checklib.finish("sizes", problems, f"{len(checklib.code_files(root))} files, {len(listed)} in the ratchet")


if __name__ == "__main__":
    main()
