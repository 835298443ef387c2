"""YAML text to plain data, remembering on which line each key stands.

Every scalar stays the text it is in the file: the key decides whether it is a number, and YAML never gets to
turn ``no``, ``8080:80`` or ``1e3`` into something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import yaml

from gateway.config.environ import expand
from gateway.config.problems import Problem, dotted

Location = tuple[str | int, ...]

_NULL: Final = "tag:yaml.org,2002:null"
_MERGE: Final = "tag:yaml.org,2002:merge"

# Aliases can make a short file endless. The configuration is five levels deep.
_DEEPEST: Final = 32  # levels
_LARGEST: Final = 100_000  # keys and values


@dataclass(slots=True)
class Tree:
    """A file's data.

    Attributes:
        data: Dicts, lists, texts and None.
        lines: The line of each key or list entry, counted from 1.
        problems: What is wrong with the YAML or the variables in it.
        broken: Keys whose value is unknown because of such a problem; ``data`` holds an empty text there.
    """

    data: object = None
    lines: dict[Location, int] = field(default_factory=dict[Location, int])
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: set[Location] = field(default_factory=set[Location])

    def line(self, location: Location) -> int:
        """Returns the line of a key, or of the nearest one above it that is in the file."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def is_broken(self, location: Location) -> bool:
        """Whether the value there, or one that holds it, is unknown."""
        return any(location[:length] in self.broken for length in range(len(location) + 1))

    def holds_broken(self, location: Location) -> bool:
        """Whether the value there, or one in it, is unknown."""
        return any(broken[: len(location)] == location for broken in self.broken)


def read_tree(text: str, environ: Mapping[str, str], without: Collection[Location] = ()) -> Tree:
    """Reads YAML and fills in variables; never raises, all that is wrong is in the tree's problems.

    Args:
        text: YAML.
        environ: The variables.
        without: Keys that are passed over, with all that is in them.
    """
    try:
        node = yaml.SafeLoader(text).get_single_node()
        tree = Tree()
        tree.data = {} if node is None else _Reader(tree, environ, without).read(node, ())
    except yaml.YAMLError as error:
        return Tree(problems=[_syntax_problem(error, text)], broken={()})
    except (_Endless, RecursionError):
        return Tree(problems=[Problem(1, "", "is nested too deeply, or an alias in it holds itself")], broken={()})
    return tree


class _Endless(Exception):
    """The file is far larger or deeper than any configuration."""


class _Reader:
    def __init__(self, tree: Tree, environ: Mapping[str, str], without: Collection[Location]) -> None:
        self._tree = tree
        self._environ = environ
        self._without = without
        self._read = 0

    def read(self, node: yaml.Node, at: Location) -> object:
        self._read += 1
        if len(at) > _DEEPEST or self._read > _LARGEST:
            raise _Endless
        if not node.tag.startswith("tag:yaml.org,2002:"):
            return self._refuse(node, at, "has a YAML tag (!...), which has no meaning here: quote the value")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            entries: list[object] = []
            for index, entry in enumerate(node.value):
                self._tree.lines[*at, index] = _line(entry)
                entries.append(self.read(entry, (*at, index)))
            return entries
        return self._scalar(node, at)

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                self._problem(
                    _line(key_node), at, "has a << key, which is not read: alias whole blocks (timeouts: *name)"
                )
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(_line(key_node), at, "has a key that is not plain text")
                continue
            key: str = key_node.value
            location = (*at, key)
            if location in self._without:
                continue
            if key in data:
                self._problem(_line(key_node), location, f"is given twice, first on line {self._tree.lines[location]}")
                continue
            self._tree.lines[location] = _line(key_node)
            data[key] = self.read(value_node, location)
        return data

    def _scalar(self, node: yaml.Node, at: Location) -> str | None:
        text: str = node.value
        if node.tag == _NULL:
            return None if text else self._refuse(node, at, "has no value: give one, or remove the key")
        expanded, wrong = expand(text, self._environ)
        for message in wrong:
            self._refuse(node, at, message)
        return "" if wrong else expanded

    def _refuse(self, node: yaml.Node, at: Location, message: str) -> str:
        self._problem(self._tree.lines.get(at, _line(node)), at, message)
        self._tree.broken.add(at)
        return ""

    def _problem(self, line: int, at: Location, message: str) -> None:
        self._tree.problems.append(Problem(line, dotted(at), message))


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem(line, "", "has a character that YAML does not allow: remove it")
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(1, "", "is not YAML")
    mark = error.problem_mark
    # PyYAML quotes what it found; more than one character of it may be part of a credential.
    found = re.sub(r"""'(?!<)[^']{2,}'|"(?!<)[^"]{2,}\"""", "...", error.problem or "is not YAML")
    lines = text.splitlines()
    broken_line = lines[mark.line] if mark.line < len(lines) else ""
    hint = ""
    if "\\t" in found or "\t" in broken_line[: mark.column + 1]:
        hint = "; indent with spaces, not tabs"
    elif "undefined alias" in found:
        hint = "; quote a value that begins with *"
    elif "${" in broken_line:
        hint = '; inside { } and [ ] quote values that have variables: "${VARIABLE}"'
    return Problem(mark.line + 1, "", f"column {mark.column + 1}: YAML syntax: {found}{hint}")
