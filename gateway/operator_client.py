"""How commands reach a gateway that runs: where it listens, and the token that lets them in."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from adapters.json_values import as_list, as_object

from .config import OperatorConfig
from .config.file import DEFAULT_FILE, load_part
from .config.models import DEFAULT_LISTEN
from .config.problems import ConfigError
from .config.values import split_address

_ANSWER_S = 30.0
_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SHOWN_CHARS = 300
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


class CannotAsk(Exception):
    """The gateway cannot be asked; the message says why and what to do."""


class Refused(CannotAsk):
    """The gateway answers, and refuses; the message is its own.

    Attributes:
        code: Of the refusal, as ``unknown_request``.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def ask_gateway(
    url: str, token: str | None, method: str, path: str, key: str, query: Mapping[str, str] | None = None
) -> Any:
    """Asks a gateway at one of the operator's paths; returns the object that it tells, or the list of such.

    Args:
        url: Of its listener with the operator's paths, without a slash at its end.
        token: Its ``admin.token``, None without one.
        method: HTTP method.
        path: Quoted.
        key: Each told object has it.
        query: What comes behind the path.

    Raises:
        Refused: It refuses.
        CannotAsk: There is no answer, or none of a gateway's.
    """
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx2.request(method, url + path, params=query, headers=headers, timeout=_ANSWER_S, trust_env=False)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:  # the last: a token that no header can carry
        reason = _NUMBER.sub("", str(error)) or type(error).__name__
        raise CannotAsk(f"no Weir answers at {url}: {reason}; name its address with --url") from error
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.status_code == 200 and _has(told, key):
        return told
    refusal = as_object((as_object(told) or {}).get("error")) or {}
    if "weir" not in refusal or refusal.get("code") == "unknown_path":
        raise CannotAsk(
            f"what answers at {url} is no Weir, or not where its /weir/* is (status {answer.status_code}): name its"
            " address, or that of its admin.listen"
        )
    hint = "; give it with --token" if answer.status_code == 401 else ""
    raise Refused(f"{str(refusal.get('message'))[:_SHOWN_CHARS]}{hint}", str(refusal.get("code")))


def _has(told: Any, key: str) -> bool:
    """Whether an object, or each one of a list, has a key."""
    listed = as_list(told)
    return all(key in (as_object(one) or ()) for one in ([told] if listed is None else listed))


class OperatorClient:
    """Asks one gateway.

    Args:
        url: Of its listener with the operator's paths.
        token: Its ``admin.token``, None without one.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def endpoints(self) -> list[dict[str, Any]]:
        """Returns what it knows of each endpoint.

        Raises:
            CannotAsk: It does not answer so.
        """
        found: list[dict[str, Any]] = ask_gateway(self._url, self._token, "GET", "/weir/endpoints", "id")
        return found

    def order(self, id: str, word: str) -> dict[str, Any]:
        """Drains or readmits an endpoint; returns what is known of it then.

        Raises:
            CannotAsk: It does not answer, or refuses.
        """
        path = f"/weir/endpoints/{quote(id, safe='')}/{word}"
        found: dict[str, Any] = ask_gateway(self._url, self._token, "POST", path, "id")
        return found


def add_gateway_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("which gateway")
    where.add_argument(
        "-c", "--config", metavar="FILE",
        help=f"its configuration, which names address and token (default: {DEFAULT_FILE}, if there is one)",
    )  # fmt: skip
    where.add_argument("--url", help=f"its address instead (default without a file: http://{DEFAULT_LISTEN})")
    where.add_argument("--token", help="its admin.token, if it is not the configuration's")


def client(args: argparse.Namespace) -> OperatorClient:
    """Returns a client for the gateway that the arguments name.

    Raises:
        CannotAsk: They name none.
        ConfigError: The file is wrong.
    """
    config = _config(args)
    token = args.token
    if token is None and config.admin.token is not None:
        token = config.admin.token.get_secret_value()
    if args.url is not None:
        return OperatorClient(args.url, token)
    listen = config.admin.listen or config.listen
    host, port = split_address(listen)
    if port == 0:
        raise CannotAsk(f"the configuration leaves the port open ({listen}): name the gateway with --url")
    host = _EVERY_INTERFACE.get(host, host)
    return OperatorClient(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", token)


def add_order_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a command that tells a gateway what to do with an endpoint."""
    parser.add_argument("id", help="the endpoint, as `weir endpoints` lists it")
    add_gateway_arguments(parser)


def give_order(args: argparse.Namespace, word: str, done: str) -> int:
    """Tells the gateway, and prints ``done`` with the endpoint's name for ``{id}``.

    Returns:
        The exit code: 0, or 1 if it could not be done.
    """
    try:
        known = client(args).order(args.id, word)
    except (CannotAsk, ConfigError) as error:
        print(error, file=sys.stderr)
        return 1
    print(done.format(id=known["id"]))
    return 0


def _config(args: argparse.Namespace) -> OperatorConfig:
    """Returns what the named file says, or the one in this folder; the defaults where neither is, or only a URL."""
    if args.config is None and (args.url is not None or not Path(DEFAULT_FILE).exists()):
        return OperatorConfig()
    given = () if args.token is None else (("admin", "token"),)
    return load_part(args.config or DEFAULT_FILE, OperatorConfig, without=given)
