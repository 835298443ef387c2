"""How commands reach a gateway that runs: where it listens, and the token that lets them in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from .config import Config
from .config.file import DEFAULT_FILE, load
from .config.problems import ConfigError
from .config.values import split_address

_ANSWER_S = 30.0
_DEFAULT_LISTEN = "127.0.0.1:8080"
_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SHOWN_CHARS = 300


class CannotAsk(Exception):
    """The gateway cannot be asked, or refuses; the message says why and what to do."""


def ask_gateway(
    url: str, token: str | None, method: str, path: str, query: Mapping[str, str] | None = None
) -> httpx2.Response:
    """Asks a gateway at one of the operator's paths.

    Args:
        url: Of its listener with the operator's paths.
        token: Its ``admin.token``, None without one.
        method: HTTP method.
        path: Quoted.
        query: What comes behind it.

    Raises:
        httpx2.HTTPError, httpx2.InvalidURL: There is no answer.
    """
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx2.request(
        method, url.rstrip("/") + path, params=query, headers=headers, timeout=_ANSWER_S, trust_env=False
    )


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
        found: list[dict[str, Any]] = self._ask("GET", "/weir/endpoints")
        return found

    def order(self, id: str, word: str) -> dict[str, Any]:
        """Drains or readmits an endpoint; returns what is known of it then.

        Raises:
            CannotAsk: It does not answer, or refuses.
        """
        found: dict[str, Any] = self._ask("POST", f"/weir/endpoints/{quote(id, safe='')}/{word}")
        return found

    def _ask(self, method: str, path: str) -> Any:
        try:
            answer = ask_gateway(self._url, self._token, method, path)
            told = answer.json()
            if answer.status_code == 200:
                return told
            message = str(told["error"]["message"])
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise CannotAsk(
                f"no Weir answers at {self._url}: {error or type(error).__name__}; name it with --url, or its"
                " configuration with -c"
            ) from error
        hint = "; give it with --token" if answer.status_code == 401 else ""
        raise CannotAsk(f"{message[:_SHOWN_CHARS]}{hint}")


def add_gateway_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("which gateway")
    where.add_argument(
        "-c", "--config", metavar="FILE",
        help=f"its configuration, which names address and token (default: {DEFAULT_FILE}, if there is one)",
    )  # fmt: skip
    where.add_argument("--url", help=f"its address instead (default without a file: http://{_DEFAULT_LISTEN})")
    where.add_argument("--token", help="its admin.token, if it is not the configuration's")


def client(args: argparse.Namespace) -> OperatorClient:
    """Returns a client for the gateway that the arguments name.

    Raises:
        CannotAsk: They name none.
        ConfigError: The file is wrong.
    """
    config = _config(args)
    token = args.token
    if token is None and config is not None and config.admin.token is not None:
        token = config.admin.token.get_secret_value()
    if args.url is not None:
        return OperatorClient(args.url, token)
    listen = (config.admin.listen or config.listen) if config is not None else _DEFAULT_LISTEN
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


def _config(args: argparse.Namespace) -> Config | None:
    """Returns the named configuration, or the one that ``weir serve`` would be given; none where only a URL is."""
    if args.config is not None:
        return load(args.config)
    return load(DEFAULT_FILE) if args.url is None and Path(DEFAULT_FILE).exists() else None
