#!/usr/bin/env python3
"""Compiles every header of src/ alone: whoever includes one needs nothing before it. Part of `make test-all`.

Usage: check_headers.py [BUILD_FOLDER] (default: build/release; its compilation database gives the flags).
"""

import concurrent.futures
import os
import subprocess
import sys

import checklib
import tidy


def flags_for(header, database):
    """Flags of a unit in the same folder, else of any unit; without input and output."""
    folder = os.path.dirname(header)
    units = sorted(database, key=lambda path: (path[:-3] != header[:-2], os.path.dirname(path) != folder, checklib.is_test(path), path))
    words, skip = [], False
    for word in database[units[0]]:
        if skip or word in ("-c", "-o") or word.endswith((".cc", ".o")):
            skip = word == "-o"
            continue
        words.append(word)
    return [word for word in words if "ccache" not in word]


def compile_alone(header, database):
    command = flags_for(header, database) + ["-fsyntax-only", "-x", "c++", "-"]
    text = f'#include "{header[len("src/"):]}"\n'
    done = subprocess.run(command, cwd=checklib.ROOT, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    first = next((line for line in done.stderr.splitlines() if "error" in line), "the compiler failed")
    return [f"{header}: does not compile alone: {first}"] if done.returncode else []


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(checklib.ROOT, "build", "release")
    database = {path: words for path, words in tidy.commands(build).items() if path.startswith("src/") and path.endswith(".cc")}
    headers = [path for path in checklib.code_files() if path.startswith("src/") and path.endswith(".h")]
    if not database:
        checklib.finish("headers", [f"{build} has no compilation database; run `make` first"], "0 headers")
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        problems = [line for lines in pool.map(lambda header: compile_alone(header, database), headers) for line in lines]
    checklib.finish("headers", problems, f"{len(headers)} headers")


if __name__ == "__main__":
    main()
