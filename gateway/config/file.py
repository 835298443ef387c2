"""A configuration file to a ``Config``, or to all of its mistakes at once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config import promised
from gateway.config.models import CONFLICT, Config
from gateway.config.names import PoolNames, conflicts
from gateway.config.problems import ConfigError, Problem, dotted
from gateway.config.references import KeepNames, PoolReferences, RuleNames, missing_in_keep, missing_in_routing
from gateway.config.schema import blocks, key_path, key_paths
from gateway.config.tree import Location, Tree, read_tree

DEFAULT_FILE: Final = "weir.yaml"
"""What commands read that are given no other; `weir serve` looks for engines then."""

Part = TypeVar("Part", bound=BaseModel)

_KEY: Final = "[key]"  # pydantic's mark for an error in the name of a key

_WORDS: Final = {
    "missing": "is missing",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number, for example 0.5",
    "float_type": "must be a number, for example 0.5",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "tuple_type": "must be a list: - entries below each other, or [in, brackets]",
    "dict_type": "must be a mapping: keys with values below it",
    "model_type": "must be a mapping: keys with values below it",
    "string_too_short": "is empty: give a value, or remove the key",
    "too_short": "needs at least one entry",
}


def load(path: str | Path) -> Config:
    """Reads a file, with variables from this process's environment.

    Raises:
        ConfigError: The file cannot be read, or has mistakes; it holds all of them.
    """
    return parse(_read(path), os.fspath(path), os.environ)


def load_part(path: str | Path, part: type[Part], without: Collection[Location] = ()) -> Part:
    """Reads only what a command goes by: the mistakes of other keys, and variables there that are not set, are not its.

    Args:
        path: The file.
        part: A model of some of the top level's keys.
        without: Keys in it that are not needed either.

    Raises:
        ConfigError: The file cannot be read, or this part of it has mistakes; it holds all of them.
    """
    others = [(key,) for key in blocks()[()] if key not in part.model_fields]
    return _validated(part, read_tree(_read(path), os.environ, [*others, *without]), os.fspath(path))


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        message = "there is no such file: name another with -c FILE, or create it; pools.NAME.endpoints is all it needs"
    except IsADirectoryError:
        message = "is a directory: name the file in it with -c FILE"
    except PermissionError:
        message = "may not be read by this user: change its permissions"
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text (byte {error.start}): save it as UTF-8"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    raise ConfigError(os.fspath(path), [Problem(None, "", message)])


def parse(text: str, source: str, environ: Mapping[str, str]) -> Config:
    """Reads the text of a file.

    Args:
        text: YAML.
        source: The file's name, for messages.
        environ: Variables that values may refer to.

    Raises:
        ConfigError: The text has mistakes; it holds all of them.
    """
    return _validated(Config, read_tree(text, environ), source)


def _validated(part: type[Part], tree: Tree, source: str) -> Part:
    problems = list(tree.problems)
    config: Part | None = None
    if not tree.is_broken(()):
        try:
            config = part.model_validate(tree.data, by_alias=True, by_name=False)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=True)
            problems += [_problem(detail, tree) for detail in details if _is_news(detail, tree)]
        told = {problem.path for problem in problems}
        problems += [problem for problem in _conflicts(tree) if problem.path not in told]
    if problems or config is None:
        raise ConfigError(source, problems)  # outside the except: the cause would hold the input, perhaps a credential
    return config


def _is_news(detail: ErrorDetails, tree: Tree) -> bool:
    if detail["type"] == CONFLICT or tree.is_broken(_location(detail)):
        return False
    return detail["type"] != "too_short" or not detail["input"]  # entries with mistakes of their own are entries


def _location(detail: ErrorDetails) -> Location:
    return tuple(part for part in detail["loc"] if part != _KEY)


def _problem(detail: ErrorDetails, tree: Tree) -> Problem:
    location = _location(detail)
    message, suggestion = _explain(detail, location)
    return Problem(tree.line(location), dotted(location), message, suggestion)


def _explain(detail: ErrorDetails, location: Location) -> tuple[str, str | None]:
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(location)
        case "literal_error":
            return _unknown_value(location, detail["input"])
        case "value_error":
            return str(context["error"]), None
        case "greater_than":
            return f"must be more than {context['gt']:g}", None
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}", None
        case "less_than_equal":
            return f"must be at most {context['le']:g}", None
        case kind:
            return _WORDS.get(kind, detail["msg"]), None


def _unknown_key(location: Location) -> tuple[str, str | None]:
    path = key_path(location[:-1])
    key = str(location[-1])
    if (*path, key) in promised.KEYS:
        return "is not supported yet: remove it", None
    known = sorted(blocks()[path])
    near = _nearest(key, known)
    if near is not None:
        return "unknown key", near
    elsewhere = sorted(dotted(other) for other in key_paths() if other[-1] == key)
    if elsewhere:
        return f"unknown key here; it belongs at {' or '.join(elsewhere)}", None
    return f"unknown key; the keys here are {', '.join(known)}", None


def _unknown_value(location: Location, given: object) -> tuple[str, str | None]:
    path = key_path(location)
    allowed: list[str] = blocks()[path[:-1]][path[-1]].get("enum") or [blocks()[path[:-1]][path[-1]]["const"]]
    text = str(given).strip().lower()
    return f"must be {' or '.join(allowed)}", _nearest(text, allowed)


def _nearest(word: str, known: Iterable[str]) -> str | None:
    spelled = {name.replace("_", ""): name for name in known}
    found = difflib.get_close_matches(word.lower().replace("_", "").replace("-", ""), spelled, n=1, cutoff=0.7)
    return spelled[found[0]] if found else None


def _conflicts(tree: Tree) -> list[Problem]:
    references, kept = _references(tree), _kept(tree.data)
    found = [
        *conflicts(_names(tree.data)),
        *missing_in_routing(references),
        *missing_in_keep(kept, references),
    ]
    return [
        Problem(tree.line(conflict.path), dotted(conflict.path), conflict.message)
        for conflict in found
        if not tree.is_broken(conflict.path)
    ]


def _names(data: object) -> list[PoolNames]:
    """What an unchecked file names; anything of the wrong shape names nothing."""
    names: list[PoolNames] = []
    for name, pool in _mapping(_mapping(data).get("pools")).items():
        ids = tuple(str(_mapping(entry).get("id") or "") for entry in _list(_mapping(pool).get("endpoints")))
        names.append(PoolNames(name, _aliases(pool), ids))
    return names


def _references(tree: Tree) -> list[PoolReferences]:
    """What an unchecked file's routing names."""
    found: list[PoolReferences] = []
    for name, pool in _mapping(_mapping(tree.data).get("pools")).items():
        endpoints, routing = _list(_mapping(pool).get("endpoints")), _mapping(_mapping(pool).get("routing"))
        at = ("pools", name, "endpoints")
        known = not any(tree.is_broken((*at, index, "label")) for index in range(len(endpoints)))
        labels = tuple(_text(_mapping(entry).get("label")) for entry in endpoints) if known else ()
        at_rules: Location = ("pools", name, "routing", "rules")
        rules = tuple(
            _rule(entry, known=not tree.holds_broken((*at_rules, index)))
            for index, entry in enumerate(_list(routing.get("rules")))
        )
        canary = _text(_mapping(routing.get("canary")).get("label"))
        found.append(PoolReferences(name, _aliases(pool), labels, rules, canary))
    return found


def _rule(entry: object, *, known: bool) -> RuleNames:
    rule = _mapping(entry)
    when = _mapping(rule.get("when"))
    of_its_shape = isinstance(rule.get("when", {}), dict)
    about_all = known and "to" in rule and of_its_shape and not any(when.values())
    return RuleNames(_text(rule.get("to")), _text(when.get("model")), about_all)


def _kept(data: object) -> list[KeepNames]:
    rules = [_mapping(entry) for entry in _list(_mapping(_mapping(data).get("telemetry")).get("keep"))]
    return [KeepNames(_text(rule.get("pool")), _text(rule.get("model"))) for rule in rules]


def _aliases(pool: object) -> tuple[str, ...]:
    return tuple(str(alias) for alias in _list(_mapping(pool).get("aliases")))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> dict[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast(list[object], value) if isinstance(value, list) else []
