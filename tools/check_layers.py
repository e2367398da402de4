#!/usr/bin/env python3
"""Checks the folder graph against tools/layers.txt: includes, library owners, refused code, README contracts, link dependencies.

Prints every offending include with the chain of files that leads to it. Usage: check_layers.py [FILE …] (default: all tracked code).
"""

import fnmatch
import os
import re
import sys

import checklib

STANDARD = set(
    """algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits clocale cmath
    codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime
    cuchar cwchar cwctype deque exception execution filesystem forward_list fstream functional future initializer_list iomanip ios iosfwd
    iostream istream iterator latch limits list locale map memory memory_resource mutex new numbers numeric optional ostream queue random
    ranges ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf
    string string_view system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant
    vector version stdint.h stddef.h string.h math.h stdlib.h stdio.h""".split()
)
# What the contract of a folder must speak about.
CONTRACT = ("purpose", "owns", "does not know", "invariants", "threads", "add")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


class Rules:
    """tools/layers.txt, parsed."""

    def __init__(self, text):
        self.layers, self.extra, self.headers = {}, {}, []
        self.isolate, self.only, self.refuse, self.problems = [], [], [], []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if not self.parse(line):
                self.problems.append(f"tools/layers.txt:{number}: cannot read '{line}'")
        for name, allowed in list(self.layers.items()):
            if allowed == {"all"}:
                self.layers[name] = set(self.layers) - {name}
        for table in (self.layers, self.extra):
            for name, allowed in table.items():
                for other in sorted((allowed | {name}) - set(self.layers)):
                    self.problems.append(f"tools/layers.txt: '{other}' is named by {name} but has no layer line")
        self.find_cycle()

    def parse(self, line):
        kind, _, rest = line.partition(" ")
        if kind == "refuse":
            match = re.fullmatch(r"(.+): ([a-z/ ]+): (.+)", rest)
            if match:
                self.refuse.append((re.compile(match[1]), set(match[2].split()) - {"none"}, match[3]))
            return bool(match)
        match = re.fullmatch(r"(\S+):\s?(.*)", rest) if kind in ("layer", "tests") else re.fullmatch(r"(.+): (.+)", rest)
        if not match:
            return False
        if kind == "layer":
            self.layers[match[1]] = set(match[2].split())
        elif kind == "tests":
            self.extra[match[1]] = set(match[2].split())
        elif kind == "header":
            self.headers.append((re.compile(match[1]), set(match[2].split())))
        elif kind in ("isolate", "only"):
            getattr(self, kind).append((match[1], re.compile(match[2])))
        else:
            return False
        return True

    def find_cycle(self):
        done, path = set(), []

        def visit(name):
            if name in path:
                self.problems.append("tools/layers.txt: cycle " + " -> ".join(path[path.index(name):] + [name]))
            elif name not in done:
                path.append(name)
                for other in sorted(self.layers.get(name, ())):
                    visit(other)
                done.add(path.pop())

        for name in sorted(self.layers):
            visit(name)

    def layer_of(self, path):
        """The layer that holds src/…; None outside src or in no layer."""
        if not path.startswith("src/"):
            return None
        parts = path.split("/")[1:-1]
        for length in range(len(parts), 0, -1):
            if "/".join(parts[:length]) in self.layers:
                return "/".join(parts[:length])
        return None

    def allowed(self, layer, test):
        extra = self.extra.get(layer, set()) if test else set()
        return self.layers[layer] | extra | {layer, "base"}


class Tree:
    """The include graph of the files under check."""

    def __init__(self, root):
        self.root = root
        self.texts = {path: checklib.read(path, root) for path in checklib.code_files(root)}
        self.includes = {path: self.parse(path, text) for path, text in self.texts.items()}

    def parse(self, path, text):
        clean = checklib.blank_literals(text, keep_strings=True)
        found = []
        for match in INCLUDE.finditer(clean):
            line = clean.count("\n", 0, match.start()) + 1
            name = match[1] or match[2]
            found.append((line, name, self.resolve(path, name) if match[1] else None))
        return found

    def resolve(self, path, name):
        for candidate in ("src/" + name, name, os.path.join(os.path.dirname(path), name)):
            if os.path.isfile(os.path.join(self.root, candidate)):
                return os.path.normpath(candidate)
        return ""

    def chain_to(self, path, matches):
        """The shortest chain of includes from `path` to one for which matches(name, target) holds, as text, or None."""
        queue, seen = [(path, [path])], {path}
        while queue:
            at, chain = queue.pop(0)
            for _, name, target in self.includes.get(at, ()):
                if matches(name, target):
                    return " -> ".join(chain + [name])
                if target and target not in seen:
                    seen.add(target)
                    queue.append((target, chain + [target]))
        return None


def check_include(rules, path, include):
    """A sentence about what is wrong with one include, or None."""
    _, name, target = include
    layer, test = rules.layer_of(path), checklib.is_test(path)
    if target == "":
        return f'"{name}" is no file under src/; quotes are for our own headers, written from src/ on'
    if target is not None:
        other = rules.layer_of(target)
        if layer is None or other is None or other in rules.allowed(layer, test):
            return None
        return f"{layer} may not include {other}; it may include: {' '.join(sorted(rules.allowed(layer, test)))}"
    if name in STANDARD:
        return None
    owners = [folders for pattern, folders in rules.headers if pattern.fullmatch(name)]
    if not owners:
        return f"<{name}> has no owner in tools/layers.txt; a library enters by a design note (docs/adr/0006-dependencies.md)"
    if any("all" in folders or layer in folders or (test and "tests" in folders) for folders in owners):
        return None
    if layer is None:
        return None
    return f"<{name}> belongs to {' '.join(sorted(set().union(*owners)))}, not to {layer}"


def check_file(rules, tree, path):
    problems = []
    text = tree.texts[path]
    layer = rules.layer_of(path)
    if path.startswith("src/") and layer is None:
        problems.append(f"{path}: this folder is no layer; give it a line in tools/layers.txt")
        return problems
    for include in tree.includes[path]:
        wrong = check_include(rules, path, include)
        if wrong:
            problems.append(f"{path}:{include[0]}: {path} -> {include[1]}: {wrong}")
    for glob, pattern in rules.only:
        if fnmatch.fnmatch(path, glob):
            chain = tree.chain_to(path, lambda name, target: target is None and not pattern.fullmatch(name))
            if chain:
                problems.append(f"{path}: a system header in an instruction-set file, allowed are {pattern.pattern}: {chain}")
    if checklib.is_test(path):
        return problems
    for glob, pattern in rules.isolate:
        chain = tree.chain_to(path, lambda name, _: bool(pattern.fullmatch(name))) if fnmatch.fnmatch(path, glob) else None
        if chain:
            problems.append(f"{path}: must not reach a header that matches '{pattern.pattern}': {chain}")
    if layer is not None:
        clean = checklib.blank_literals(text)
        for pattern, folders, reason in rules.refuse:
            match = pattern.search(clean) if layer not in folders else None
            if match:
                problems.append(f"{path}:{clean.count(chr(10), 0, match.start()) + 1}: '{match[0]}': {reason}")
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
        problems.append(f"{path}: header without #pragma once")
    return problems


def check_cycles(tree):
    """Headers that include each other."""
    problems, done, path = [], set(), []

    def visit(name):
        if name in path:
            problems.append("include cycle: " + " -> ".join(path[path.index(name):] + [name]))
        elif name not in done:
            path.append(name)
            for _, _, target in tree.includes.get(name, ()):
                if target:
                    visit(target)
            done.add(path.pop())

    for name in sorted(tree.includes):
        visit(name)
    return problems


def check_folders(rules, root):
    """Each layer that holds something has its contract, and links what it may include."""
    problems = []
    files = checklib.tracked_files(root)
    for layer in sorted(rules.layers):
        inside = [path for path in files if rules.layer_of(path) == layer]
        if layer == "kernels" or not any(path.endswith(checklib.CODE_SUFFIXES) for path in inside):
            continue
        contract = f"src/{layer}/README.md"
        text = checklib.read(contract, root).lower() if contract in inside else ""
        missing = [word for word in CONTRACT if word not in text]
        if missing:
            problems.append(f"src/{layer}: README.md contract lacks: {', '.join(missing)}")
    for path in files:
        if not (path.startswith("src/") and path.endswith("CMakeLists.txt")):
            continue
        text = re.sub(r"#.*", "", checklib.read(path, root))
        for match in re.finditer(r"lathe_layer\(\s*([\w/]+)\b([^)]*)\)", text):
            name = match[1] if match[1] in rules.layers else rules.layer_of(path)
            deps = re.search(r"\bDEPS\b((?:\s+(?!SOURCES\b|LINK\b)\S+)*)", match[2])
            for dep in deps[1].split() if deps else ():
                if name and dep in rules.layers and dep not in rules.allowed(name, False):
                    problems.append(f"{path}: {name} may not link {dep}")
    return problems


def main():
    root = checklib.ROOT
    rules = Rules(checklib.read("tools/layers.txt", root))
    tree = Tree(root)
    wanted = [os.path.normpath(path) for path in sys.argv[1:]] or sorted(tree.texts)
    problems = list(rules.problems)
    for path in wanted:
        if path in tree.texts:
            problems += check_file(rules, tree, path)
    problems += check_cycles(tree) + check_folders(rules, root)
    checklib.finish("layers", problems, f"{len(wanted)} files, {len(rules.layers)} layers")


if __name__ == "__main__":
    main()
