#!/usr/bin/env python3
"""Refuses what must not enter the repository: unfinished-work marks, absolute paths of one machine, conflict marks, stray whitespace.

Usage: check_words.py [FILE …] (default: all tracked text files outside data/).
"""

import re
import sys

import checklib

# Character classes keep these lines from matching themselves.
WORDS = [
    (re.compile(r"\b(?:TO[D]O|FI[X]ME|X[X]X|HA[C]K)\b"), "unfinished work: finish it, or file it as an issue"),
    (re.compile(r"(?<![\w.$}])/(?:wo[r]k|ho[m]e|ro[o]t|mn[t]|Us[e]rs)/[\w.]"), "absolute path of one machine"),
    (re.compile(r"(?<![\w.$}])/tm[p]/\w"), "fixed temporary path: use testing::TempDir() or mktemp"),
    (re.compile(r"^(?:<{7} |>{7} |={7}$)"), "conflict mark"),
    (re.compile(r"[ \t]+$"), "blank at the end of the line"),
    (re.compile(r"\r$"), "carriage return at the end of the line"),
]
TAB = re.compile(r"^ *\t")
SKIP_FOLDERS = ("data/", "fuzz/corpus/")
SKIP_SUFFIXES = (".png", ".safetensors", ".jsonl", ".tsv", ".bin", ".gz", ".pdf", "package-lock.json", "LICENSE", ".patch")
TAB_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", "CMakeLists.txt")


def check_text(path, text):
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, reason in WORDS:
            match = pattern.search(line)
            if match:
                problems.append(f"{path}:{number}: '{match[0].strip()}': {reason}")
        if path.endswith(TAB_SUFFIXES) and TAB.search(line):
            problems.append(f"{path}:{number}: tab in the indentation")
    if text and not text.endswith("\n"):
        problems.append(f"{path}: no newline at the end")
    return problems


def wanted_files(root):
    return [p for p in checklib.tracked_files(root) if not p.startswith(SKIP_FOLDERS) and not p.endswith(SKIP_SUFFIXES) and "/testdata/" not in p]


def main():
    root = checklib.ROOT
    tracked = wanted_files(root)
    files = [path for path in sys.argv[1:] if path in set(tracked)] if len(sys.argv) > 1 else tracked
    problems = []
    for path in files:
        with open(f"{root}/{path}", "rb") as file:
            raw = file.read()
        if b"\0" in raw:
            continue
        problems += check_text(path, raw.decode("utf-8", "replace"))
    checklib.finish("words", problems, f"{len(files)} files")


if __name__ == "__main__":
    main()
