// The official OpenAI client for Node.js against Weir: every call of the API surface.
//
// WEIR_BASE_URL is Weir's URL with /v1, WEIR_MODEL a model it serves. WEIR_REAL=1 says that a real model answers, which is not
// sure to call a tool or to fill a schema just because it may; WEIR_EMBEDS=1 that the engines make embeddings.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

const model = process.env.WEIR_MODEL;
const real = process.env.WEIR_REAL === "1";
const client = new OpenAI({ baseURL: process.env.WEIR_BASE_URL, apiKey: "none", maxRetries: 0, timeout: 50_000 });

const messages = [{ role: "user", content: "Why is the sky blue?" }];
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const callOf = (city, number) => [
  { role: "user", content: `What is the weather in ${city}?` },
  {
    role: "assistant",
    content: null,
    tool_calls: [
      { id: `call_${number}`, type: "function", function: { name: "get_weather", arguments: JSON.stringify({ city }) } },
    ],
  },
];
// A conversation in which even a small model calls the tool again. Others are told that they must.
const toolCall = {
  model,
  messages: [...callOf("Rome", 1), ...callOf("Oslo", 2), { role: "user", content: "What is the weather in Paris?" }],
  tools: [weather],
  tool_choice: real ? "auto" : "required",
  max_tokens: 60,
  temperature: 0,
};

async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const choicesOf = (chunks) => chunks.flatMap((chunk) => chunk.choices);

test("a chat answer comes whole, under the model name that was asked for", async () => {
  for (const name of [model, "default"]) {
    const answer = await client.chat.completions.create({ model: name, messages, max_tokens: 5, temperature: 0 });
    assert.equal(answer.model, name);
    assert.ok(answer.choices[0].message.content);
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, 5);
  }
});

test("a chat answer streams", async () => {
  const chunks = await all(await client.chat.completions.create({ model, messages, max_tokens: 5, temperature: 0, stream: true }));
  const text = choicesOf(chunks).map((choice) => choice.delta.content ?? "").join("");
  assert.ok(text.length > 0);
  assert.ok(chunks.every((chunk) => chunk.model === model));
  assert.ok(chunks.every((chunk) => !chunk.usage), "usage came although nobody asked for it");
  assert.equal(choicesOf(chunks).at(-1).finish_reason, "length");
});

test("a stream ends with the usage if asked for it", async () => {
  const chunks = await all(
    await client.chat.completions.create({
      model, messages, max_tokens: 5, temperature: 0, stream: true, stream_options: { include_usage: true },
    }),
  );
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, 5);
});

test("the streaming helper puts the answer together", async () => {
  const pieces = [];
  const stream = client.chat.completions.stream({ model, messages, max_tokens: 8, temperature: 0 });
  stream.on("content", (piece) => pieces.push(piece));
  const answer = await stream.finalChatCompletion();
  assert.ok(pieces.length > 1);
  assert.equal(pieces.join(""), answer.choices[0].message.content);
});

test("a stream that is aborted ends", async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 200, temperature: 0, stream: true });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.equal(chunk.model, model);
    chunks += 1;
    if (chunks === 3) stream.controller.abort();
  }
  assert.ok(chunks < 200);
});

test("several choices come from one request, streaming and not", async () => {
  const request = { model, messages, max_tokens: 3, n: 2, temperature: 1, seed: 1 };
  const answer = await client.chat.completions.create(request);
  assert.deepEqual(answer.choices.map((choice) => choice.index).sort(), [0, 1]);
  const choices = choicesOf(await all(await client.chat.completions.create({ ...request, stream: true })));
  assert.deepEqual([...new Set(choices.map((choice) => choice.index))].sort(), [0, 1]);
  assert.equal(choices.filter((choice) => choice.finish_reason === "length").length, 2);
});

test("logprobs come, streaming and not", async () => {
  const request = { model, messages, max_tokens: 3, temperature: 0, logprobs: true, top_logprobs: 2 };
  const answer = await client.chat.completions.create(request);
  assert.equal(answer.choices[0].logprobs.content.length, 3);
  assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  const choices = choicesOf(await all(await client.chat.completions.create({ ...request, stream: true })));
  assert.equal(choices.flatMap((choice) => choice.logprobs?.content ?? []).length, 3);
});

test("a tool call comes whole", async () => {
  const answer = await client.chat.completions.create(toolCall);
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.ok("city" in JSON.parse(call.function.arguments));
});

test("a tool call streams, and the helper puts it together", async () => {
  const choices = choicesOf(await all(await client.chat.completions.create({ ...toolCall, stream: true })));
  const functions = choices.flatMap((choice) => choice.delta.tool_calls ?? []).map((call) => call.function);
  assert.equal(functions.map((piece) => piece.name ?? "").join(""), "get_weather");
  assert.ok("city" in JSON.parse(functions.map((piece) => piece.arguments ?? "").join("")));
  assert.equal(choices.at(-1).finish_reason, "tool_calls");
  const answer = await client.chat.completions.stream(toolCall).finalChatCompletion();
  assert.equal(answer.choices[0].message.tool_calls[0].function.name, "get_weather");
});

test("a schema binds the answer, and the client reads it", async () => {
  const schema = {
    type: "object",
    properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 99 } },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const answer = await client.chat.completions.parse({
    model,
    messages: [{ role: "user", content: "Ann is 7 years old. Give her name and age as JSON." }],
    response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema } },
    max_tokens: 80,
    temperature: 0,
  });
  assert.deepEqual(Object.keys(answer.choices[0].message.parsed).sort(), ["age", "name"]);
});

test("a content may be a list of text parts", async () => {
  const content = [{ type: "text", text: "Why is " }, { type: "text", text: "the sky blue?" }];
  const answer = await client.chat.completions.create({ model, messages: [{ role: "user", content }], max_tokens: 4, temperature: 0 });
  assert.ok(answer.choices[0].message.content);
});

test("a text is continued: a string, several, token ids, streaming and not", async () => {
  const request = { model, prompt: "Once upon a", max_tokens: 4, temperature: 0 };
  const answer = await client.completions.create(request);
  assert.ok(answer.choices[0].text);
  assert.equal(answer.usage.completion_tokens, 4);
  const chunks = await all(await client.completions.create({ ...request, stream: true }));
  assert.equal(choicesOf(chunks).map((choice) => choice.text).join(""), answer.choices[0].text);
  const several = await client.completions.create({ ...request, prompt: ["Once upon a", "One two three"] });
  assert.deepEqual(several.choices.map((choice) => choice.index).sort(), [0, 1]);
  assert.ok((await client.completions.create({ ...request, prompt: [100, 200, 300] })).choices[0]);
});

test("embeddings come, or the engine's refusal in words", async () => {
  const request = { model, input: ["a river", "a lake"] };
  if (process.env.WEIR_EMBEDS === "1") {
    const answer = await client.embeddings.create(request);
    assert.equal(answer.data.length, 2);
    assert.ok(answer.data[0].embedding.length > 1);
    assert.equal(typeof answer.data[0].embedding[0], "number");
    return;
  }
  await assert.rejects(client.embeddings.create(request), (error) => {
    assert.ok(error instanceof OpenAI.APIError);
    assert.ok([400, 404, 501].includes(error.status), `status ${error.status}`);
    assert.match(error.message, /embedding/);
    return true;
  });
});

test("the models are listed, and found one by one", async () => {
  const listed = await all(await client.models.list());
  assert.ok(listed.some((entry) => entry.id === model));
  for (const name of [model, "default"]) assert.equal((await client.models.retrieve(name)).id, name);
  await assert.rejects(client.models.retrieve("no-such-model"), OpenAI.NotFoundError);
});

test("an unknown model is an error that names a near one", async () => {
  await assert.rejects(client.chat.completions.create({ model: `${model}x`, messages }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    assert.match(error.message, new RegExp(`did you mean .*${model}`));
    assert.ok(error.requestID);
    return true;
  });
});

test("the response has Weir's headers", async () => {
  const { data, response, request_id: id } = await client.chat.completions
    .create({ model, messages, max_tokens: 3, temperature: 0 }, { headers: { "x-request-id": "my-request-1" } })
    .withResponse();
  assert.ok(data.choices[0].message.content);
  assert.equal(id, "my-request-1");
  assert.ok(response.headers.get("x-weir-endpoint").startsWith(`${model}-`));
  assert.equal(response.headers.get("x-weir-attempts"), "1");
  assert.match(response.headers.get("server-timing"), /total;dur=/);
});

test("fields that the client does not know reach the engine", async () => {
  const answer = await client.chat.completions.create({ model, messages, max_tokens: 3, temperature: 0, top_k: 5, min_p: 0.1 });
  assert.ok(answer.choices[0].message.content);
});
