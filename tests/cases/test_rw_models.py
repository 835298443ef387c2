"""RW-18, models: every listed id can be retrieved and used, whatever characters it holds."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import openai
import pytest

from tests.fakes.gateway import config, running_gateway
from tests.fakes.raw_client import r0, t0
from tests.fakes.scripted import (
    Request,
    Script,
    ScriptedUpstream,
    chat_stream,
    completion,
    json_answer,
    text_completion,
)

IDS = ["org/model-7b", "hf.co/u/x-GGUF:Q4_K_M", "m:latest", "plain", "a/b/c/d", "with space", "v1/models", "é+x%2F"]


def answer(request: Request) -> Script:
    if request.target.endswith("/chat/completions"):
        return chat_stream("ab") if request.asked_for_stream else json_answer(completion("ab"))
    return json_answer(text_completion("ab"))


def pools(url: str, *names: str, **options: Any) -> str:
    return json.dumps({"pools": {name: {"endpoints": [{"url": url, "engine": "vllm"}], **options} for name in names}})


async def test_rw_18_each_pool_is_listed_once_with_all_its_fields() -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, *IDS)) as gw:
        reply = await gw.get("/v1/models")
        listed = reply.json()
        assert listed["object"] == "list"
        assert sorted(entry["id"] for entry in listed["data"]) == sorted(IDS)
        for entry in listed["data"]:
            assert entry["object"] == "model"
            assert isinstance(entry["created"], int)
            assert isinstance(entry["owned_by"], str)
        assert not u.requests


@pytest.mark.parametrize("model", IDS)
async def test_rw_18_a_listed_id_can_be_retrieved_in_every_spelling(model: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, *IDS)) as gw:
        for spelled in (quote(model), quote(model, safe="")):
            reply = await gw.get(f"/v1/models/{spelled}")
            assert reply.status == 200, spelled
            entry = reply.json()
            assert (entry["id"], entry["object"]) == (model, "model")
            assert {"created", "owned_by"} <= entry.keys()
        assert (await gw.sdk().models.retrieve(model)).id == model


@pytest.mark.parametrize("model", IDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_rw_18_a_listed_id_can_be_used(model: str, stream: bool) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, *IDS)) as gw:
        reply = await gw.post(r0(model=model, stream=stream))
        assert reply.status == 200
        said = {piece["model"] for piece in reply.chunks} if stream else {reply.json()["model"]}
        assert said == {model}
        assert (await gw.post(t0(model=model, stream=False), "/v1/completions")).json()["model"] == model


async def test_rw_18_an_alias_is_read_back_as_it_was_asked_for() -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, "m", aliases=["default", "x/y"])) as gw:
        for name in ("m", "default", "x/y"):
            reply = await gw.post(r0(model=name))
            assert {piece["model"] for piece in reply.chunks} == {name}
            assert (await gw.post(r0(model=name, stream=False))).json()["model"] == name
            assert (await gw.get(f"/v1/models/{name}")).status == 200


async def test_rw_18_the_official_client_lists_and_uses_every_model() -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, *IDS)) as gw:
        sdk = gw.sdk()
        found = [model.id async for model in sdk.models.list()]
        assert sorted(found) == sorted(IDS)
        for model in found:
            made = await sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
            assert made.model == model


@pytest.mark.parametrize("model", ["plian", "org/model-8b", "nothing like it", "M:latest"])
async def test_rw_18_an_unknown_id_is_a_404_that_is_not_an_unknown_path(model: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, *IDS)) as gw:
        replies = [await gw.post(r0(model=model, stream=s)) for s in (True, False)]
        replies.append(await gw.get(f"/v1/models/{quote(model)}"))
        for reply in replies:
            assert reply.status == 404
            assert reply.header("content-type") == "application/json"
            assert reply.error["code"] == "model_not_found"
        unknown_path = await gw.get("/nothing")
        assert unknown_path.status == 404
        assert unknown_path.error["code"] != "model_not_found"
        assert not u.requests


@pytest.mark.parametrize(
    ("asked", "near"), [("plian", "plain"), ("org/model-8b", "org/model-7b"), ("m:lates", "m:latest")]
)
async def test_rw_18_an_unknown_id_is_told_the_names_near_it(asked: str, near: str) -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(pools(u.url, *IDS)) as gw:
        assert near in (await gw.post(r0(model=asked))).error["message"]
        with pytest.raises(openai.NotFoundError, match=near):
            await gw.sdk().chat.completions.create(model=asked, messages=[{"role": "user", "content": "hi"}])


async def test_rw_18_mistyped_models_share_one_series() -> None:
    async with ScriptedUpstream(answer) as u, running_gateway(config(u.url)) as gw:
        await gw.post(r0(model="first-typo"))
        before = len((await gw.metrics()).samples)
        for i in range(20):
            await gw.post(r0(model=f"typo-{i}"))
        metrics = await gw.settled(lambda m: m.total("weir_requests_total", outcome="client_error") == 21)
        assert len(metrics.samples) == before
        assert "typo" not in metrics.text
