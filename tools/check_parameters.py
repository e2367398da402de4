#!/usr/bin/env python3
"""Parameters of functions: four at most, and none of type bool. More of them, or a switch, go into an option struct or an enum.

A bool that is a value and no switch is called `value`, `fallback` or `ok`. Kernels and tests are left out, lambdas as well. What has more than
four already stands in tools/parameter_ratchet.txt and may shrink, never grow.
"""

import re

import check_sizes
import checklib

PARAMETERS = 4
RATCHET = "tools/parameter_ratchet.txt"
VALUES = ("value", "fallback", "ok")
NO_FUNCTIONS = ("for", "if", "while", "switch", "return", "LATHE_TRY")
NAME = re.compile(r"([~\w:]+)\s*\(")
BOOL = re.compile(r"^(?:const\s+)?bool\s+(\w+)\s*(?:=.*)?$", re.S)
# "const T& name = value", "T (&name)[3]": what a call cannot have in all its arguments.
PARAMETER = re.compile(r"^(?:const\s+)?[\w:]+(?:<.*>)?(?:\s+const)?(?:\s*[&*]+\s*(?:const\s+)?|\s+)(?:\w+|\(&\w+\))(?:\[\w*\])*\s*(?:=.*)?$", re.S)


def split(text):
    """Parts between the commas that stand in no bracket."""
    parts, depth, part = [], 0, ""
    for char in text:
        depth += {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}.get(char, 0)
        if char == "," and depth <= 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    return parts + [part.strip()] if part.strip() else parts


def lists(code):
    """Yields (name, line, parameters) of everything that looks like a declaration or a call."""
    code = check_sizes.strip_preprocessor(checklib.blank_literals(code))
    for match in NAME.finditer(code):
        end, depth = match.end(), 1
        while end < len(code) and depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        if match[1] not in NO_FUNCTIONS:
            yield match[1], code.count("\n", 0, match.start()) + 1, split(code[match.end() : end - 1])


def check(code):
    """Names of switches as [(function, line, parameter)], and long lists as {function: (number, line)}."""
    switches, long = [], {}
    for name, line, parameters in lists(code):
        found = [BOOL.match(parameter) for parameter in parameters]
        switches += [(name, line, match[1]) for match in found if match and match[1] not in VALUES]
        if len(parameters) > max(PARAMETERS, long.get(name, (0, 0))[0]) and all(PARAMETER.match(parameter) for parameter in parameters):
            long[name] = (len(parameters), line)
    return switches, long


def main():
    root = checklib.ROOT
    listed, problems, checked, seen = check_sizes.read_ratchet(checklib.read(RATCHET, root)), [], 0, {}
    for path in checklib.code_files(root):
        if checklib.is_test(path) or path.startswith("src/kernels/"):
            continue
        checked += 1
        switches, long = check(checklib.read(path, root))
        problems += [f"{path}:{line}: {name}() takes the bool '{what}': make it an enum or an option struct" for name, line, what in switches]
        for name, (count, line) in long.items():
            seen[(path, name)] = count
            if count > listed.get((path, name), PARAMETERS):
                problems.append(f"{path}:{line}: {name}() takes {count} parameters, more than {listed.get((path, name), PARAMETERS)}: make an option struct")
    for key, limit in sorted(listed.items()):
        if seen.get(key, 0) < limit:
            problems.append(f"{RATCHET}: {' '.join(key)} is down to {seen.get(key, 'the limit')}: lower or remove it")
    checklib.finish("parameters", problems, f"{checked} files, {len(listed)} in the ratchet")


if __name__ == "__main__":
    main()
