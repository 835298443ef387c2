// OpenAI's client for Node.js.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { baseURL, calls, tell } from "./calls.mjs";

const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const question = { messages: user(calls.question), max_tokens: calls.max_tokens };
const text = { prompt: calls.prompt, max_tokens: calls.max_tokens };

async function choicesOf(stream) {
  const choices = [];
  for await (const chunk of stream) choices.push(...chunk.choices);
  return choices;
}

const made = {
  async chat(model) {
    const { choices, usage } = await client.chat.completions.create({ model, ...question });
    return {
      text: choices[0].message.content,
      finish_reason: choices[0].finish_reason,
      completion_tokens: usage.completion_tokens,
    };
  },
  async chat_stream(model) {
    const pieces = [];
    const stream = client.chat.completions.stream({ model, ...question, stream_options: { include_usage: true } });
    stream.on("content", (piece) => pieces.push(piece));
    const { choices, usage } = await stream.finalChatCompletion();
    return {
      text: choices[0].message.content,
      pieces: pieces.length,
      finish_reason: choices[0].finish_reason,
      completion_tokens: usage.completion_tokens,
    };
  },
  async tool_stream(model) {
    const choices = await choicesOf(
      await client.chat.completions.create({
        model, messages: user(calls.weather_question), tools: [{ type: "function", function: calls.tool }], stream: true,
      }),
    );
    const functions = choices.flatMap((choice) => choice.delta.tool_calls ?? []).map((call) => call.function);
    return {
      name: functions.map((piece) => piece.name ?? "").join(""),
      arguments: JSON.parse(functions.map((piece) => piece.arguments ?? "").join("")),
      finish_reason: choices.at(-1).finish_reason,
    };
  },
  async structured(model) {
    const person = z.object({ name: z.string(), age: z.int() });
    const { choices } = await client.chat.completions.parse({
      model, messages: user(calls.person_question), response_format: zodResponseFormat(person, "person"),
    });
    return choices[0].message.parsed;
  },
  async embeddings(model) {
    const { data } = await client.embeddings.create({ model, input: calls.texts });
    return { vectors: data.map((entry) => entry.embedding) };
  },
  async completion(model) {
    const { choices } = await client.completions.create({ model, ...text });
    return { text: choices[0].text, finish_reason: choices[0].finish_reason };
  },
  async completion_stream(model) {
    const choices = await choicesOf(await client.completions.create({ model, ...text, stream: true }));
    const pieces = choices.map((choice) => choice.text).filter(Boolean);
    return { text: pieces.join(""), pieces: pieces.length, finish_reason: choices.at(-1).finish_reason };
  },
  async unknown_model() {
    await client.chat.completions.create({ model: calls.unknown_model, ...question });
    throw new Error("an unknown model answered");
  },
};

await tell(made, (error) =>
  error instanceof OpenAI.APIError ? { status: error.status, code: error.code, message: error.message } : undefined,
);
