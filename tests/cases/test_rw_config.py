"""RW-34, config-lifecycle: what the environment holds is what the engine gets, or the gateway does not start."""

from __future__ import annotations

import pytest

from gateway.config.problems import ConfigError
from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0
from tests.fakes.scripted import ScriptedUpstream, chat_stream

UNUSED = "http://127.0.0.1:9"


@pytest.mark.parametrize("value", ["sk-1", "sk-1 ", "sk-1\n", " sk-1\r\n", "\tsk-1\t"])
async def test_rw_34_a_key_from_the_environment_reaches_the_engine_without_its_white_space(value: str) -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config({"url": u.url, "api_key": "${KEY}"}), {"KEY": value}) as gw,
    ):
        assert (await gw.post(r0())).status == 200
        assert u.last.header("authorization") == b"Bearer sk-1"


async def test_rw_34_a_default_stands_in_for_a_variable_that_is_not_set() -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config({"url": u.url, "headers": {"x-team": "${TEAM:-blue}"}}), {}) as gw,
    ):
        await gw.post(r0())
        assert u.last.header("x-team") == b"blue"


async def test_rw_34_a_variable_wins_over_its_default() -> None:
    async with (
        ScriptedUpstream(chat_stream("ab")) as u,
        running_gateway(config({"url": u.url, "headers": {"x-team": "${TEAM:-blue}"}}), {"TEAM": "red"}) as gw,
    ):
        await gw.post(r0())
        assert u.last.header("x-team") == b"red"


async def test_rw_34_parts_of_a_value_may_come_from_the_environment() -> None:
    async with ScriptedUpstream(chat_stream("ab")) as u:
        text = config({"url": "http://${HOST}:${PORT}", "api_key": "sk-${KEY}"})
        async with running_gateway(text, {"HOST": "127.0.0.1", "PORT": str(u.port), "KEY": "1"}) as gw:
            assert (await gw.post(r0())).status == 200
            assert u.last.header("authorization") == b"Bearer sk-1"


@pytest.mark.parametrize("place", ["api_key", "url", "model"])
async def test_rw_34_a_variable_that_is_not_set_stops_the_start_and_is_named(place: str) -> None:
    text = config({"url": UNUSED, place: "${NOT_SET}"})
    with pytest.raises(ConfigError, match="NOT_SET") as raised:
        async with running_gateway(text, {}):
            pass
    assert place in str(raised.value)


async def test_rw_34_an_empty_key_never_becomes_an_empty_bearer() -> None:
    text = config({"url": UNUSED, "api_key": "${KEY}"})
    with pytest.raises(ConfigError, match="api_key"):
        async with running_gateway(text, {"KEY": ""}):
            pass


@pytest.mark.parametrize("value", ["sk\n1", "sk\x00", "sk\r\nx-evil: 1", "ключ"])
async def test_rw_34_a_key_that_no_header_can_hold_stops_the_start(value: str) -> None:
    text = config({"url": UNUSED, "api_key": "${KEY}"})
    with pytest.raises(ConfigError, match="api_key") as raised:
        async with running_gateway(text, {"KEY": value}):
            pass
    assert value not in str(raised.value)


async def test_rw_34_the_environment_of_this_process_is_not_read_behind_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with ScriptedUpstream(chat_stream("ab")) as u, running_gateway(config(u.url)) as gw:
        assert (await gw.post(r0())).content() == "ab"
        assert u.last.header("authorization") is None
