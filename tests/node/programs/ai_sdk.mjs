// Vercel's AI SDK with its provider for servers that speak OpenAI's API.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, embedMany, generateText, jsonSchema, streamText, tool } from "ai";
import { z } from "zod";

import { baseURL, calls, tell } from "./calls.mjs";

const weir = createOpenAICompatible({
  name: "weir", baseURL, apiKey: "none", includeUsage: true, supportsStructuredOutputs: true,
});
const short = { maxOutputTokens: calls.max_tokens, maxRetries: 0 };
const reasons = { "tool-calls": "tool_calls" }; // its own spelling

async function all(stream) {
  const pieces = [];
  for await (const piece of stream) if (piece) pieces.push(piece);
  return pieces;
}

// A stream tells its errors to `onError` and then ends: they are kept, and thrown once it has.
async function streamed(options) {
  let failure;
  const result = streamText({ ...options, onError: ({ error }) => (failure = error) });
  const pieces = await all(result.textStream);
  if (failure) throw failure;
  const [finishReason, usage, toolCalls, request] = await Promise.all([
    result.finishReason, result.usage, result.toolCalls, result.request,
  ]);
  return { pieces, toolCalls, usage, request, finish_reason: reasons[finishReason] ?? finishReason };
}

// It makes a dialogue of a prompt, even for a text model: what it sent is told, and not calls.prompt.
const promptOf = ({ body }) => (typeof body === "string" ? JSON.parse(body) : body).prompt;

const made = {
  async chat(model) {
    const answer = await generateText({ model: weir(model), prompt: calls.question, ...short });
    return { text: answer.text, finish_reason: answer.finishReason, completion_tokens: answer.usage.outputTokens };
  },
  async chat_stream(model) {
    const { pieces, usage, finish_reason } = await streamed({ model: weir(model), prompt: calls.question, ...short });
    return { text: pieces.join(""), pieces: pieces.length, finish_reason, completion_tokens: usage.outputTokens };
  },
  async tool_stream(model) {
    const { name, description, parameters } = calls.tool;
    const { toolCalls, finish_reason } = await streamed({
      model: weir(model),
      prompt: calls.weather_question,
      tools: { [name]: tool({ description, inputSchema: jsonSchema(parameters) }) },
      maxRetries: 0,
    });
    return { name: toolCalls[0].toolName, arguments: toolCalls[0].input, finish_reason };
  },
  async structured(model) {
    const { output } = await generateText({
      model: weir(model),
      prompt: calls.person_question,
      output: Output.object({ schema: z.object({ name: z.string(), age: z.int() }) }),
      maxRetries: 0,
    });
    return output;
  },
  async embeddings(model) {
    const { embeddings } = await embedMany({ model: weir.embeddingModel(model), values: calls.texts, maxRetries: 0 });
    return { vectors: embeddings };
  },
  async completion(model) {
    const answer = await generateText({ model: weir.completionModel(model), prompt: calls.prompt, ...short });
    return { prompt: promptOf(answer.request), text: answer.text, finish_reason: answer.finishReason };
  },
  async completion_stream(model) {
    const { pieces, request, finish_reason } = await streamed({
      model: weir.completionModel(model), prompt: calls.prompt, ...short,
    });
    return { prompt: promptOf(request), text: pieces.join(""), pieces: pieces.length, finish_reason };
  },
  async unknown_model() {
    await generateText({ model: weir(calls.unknown_model), prompt: calls.question, ...short });
    throw new Error("an unknown model answered");
  },
};

await tell(made, (error) =>
  APICallError.isInstance(error)
    ? { status: error.statusCode, code: error.data?.error.code, message: error.message }
    : undefined,
);
