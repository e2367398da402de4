#!/usr/bin/env python3
"""Looks for weak symbols in objects that were compiled for more than the base instruction set.

The linker keeps one copy of an inline function or template. If it keeps the one from an AVX-512 object, portable code crashes on older
machines. So those objects may define no weak symbol. Usage: check_isa.py [BUILD_FOLDER] (default: build/release).
"""

import json
import os
import re
import shlex
import subprocess
import sys

import checklib

# Flags that allow instructions beyond x86-64.
ISA_FLAG = re.compile(r"-m(avx|avx2|fma|f16c|avx512\w*|avxvnni|amx-\w+|sse4\.?\d?|bmi2?|arch=(?!x86-64$)\S+)$|-march=(?!x86-64$)\S+$")
ISA_NAME = re.compile(r"_(avx|amx)\w*\.cc$")


def isa_objects(build):
    """(source, object) of every translation unit with such a flag."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    for entry in commands:
        words = entry.get("arguments") or shlex.split(entry["command"])
        if any(ISA_FLAG.match(word) for word in words):
            output = entry.get("output") or words[words.index("-o") + 1]
            yield entry["file"], os.path.join(entry["directory"], output)
        elif ISA_NAME.search(entry["file"]) and "/kernels/" in entry["file"] and not entry["file"].endswith("_test.cc"):
            yield entry["file"], None


def weak_symbols(path):
    """Names of weak definitions: W and V, and u (unique). Lower case w and v are references or debug groups."""
    listing = subprocess.run(["nm", "--demangle", "--defined-only", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    found = []
    for line in listing.splitlines():
        match = re.match(r"[0-9a-fA-F]*\s+([A-Za-z])\s+(.*)", line)
        # DW.ref.* are pointers that exception tables share, no code.
        if match and match[1] in "WVu" and not match[2].startswith("DW.ref."):
            found.append(match[2])
    return found


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(checklib.ROOT, "build", "release")
    if not os.path.exists(os.path.join(build, "compile_commands.json")):
        checklib.finish("isa", [f"{build} is no build folder; run `make` first"], "0 objects")
    problems, checked, missing = [], 0, 0
    for source, target in isa_objects(build):
        name = os.path.relpath(source, checklib.ROOT)
        if target is None:
            problems.append(f"{name}: named for an instruction set but compiled without its flag")
        elif not os.path.exists(target):
            missing += 1
        else:
            checked += 1
            problems += [f"{name}: weak symbol {symbol}; make it static, or keep library code out of this file" for symbol in weak_symbols(target)]
    if missing and not checked:
        problems.append(f"none of {missing} instruction-set objects is built; run `make` first")
    checklib.finish("isa", problems, f"{checked} objects" + (f", {missing} not built" if missing else ""))


if __name__ == "__main__":
    main()
