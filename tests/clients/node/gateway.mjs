// What the tests share: where the gateway is, and clients that differ in whose token they carry.

import OpenAI from "openai";

export const URL_OF_GATEWAY = process.env.TOLLGATE_URL;

export const TOKEN = {
  alice: process.env.TOLLGATE_TOKEN,
  stranger: process.env.TOLLGATE_TOKEN_STRANGER,
  // The tier `free`: 5 requests a minute and 2 at once, for each model apart.
  free: process.env.TOLLGATE_TOKEN_FREE,
  bare: process.env.TOLLGATE_TOKEN_BARE,
};

/** A client that tries once, so that a test sees what the gateway said first. */
export function clientWith(apiKey, options = {}) {
  return new OpenAI({
    baseURL: `${URL_OF_GATEWAY}/v1`,
    apiKey,
    maxRetries: 0,
    timeout: 30_000,
    ...options,
  });
}

/** Messages of one turn. */
export function says(text) {
  return [{ role: "user", content: text }];
}

export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** What a list of chunks says, all deltas together. */
export function textOf(chunks) {
  return chunks
    .flatMap((chunk) => chunk.choices)
    .map((choice) => choice.delta.content ?? "")
    .join("");
}

/** Polls until `probe` gives something truthy, which is then the result. */
export async function until(what, probe, withinMs = 10_000) {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Long enough that `demo`, which streams at a reader's pace, is at it for a few seconds.
export const LONG = Array.from({ length: 400 }, (_, number) => `word${number}`).join(" ");
// Long enough to be cut twice and resumed; short enough to wait for.
export const MEDIUM = Array.from({ length: 160 }, (_, number) => `word${number}`).join(" ");

export const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  },
};
