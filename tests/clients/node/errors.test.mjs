// Refusals as the SDK's error classes, and limits as the SDK meets them.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

import { LONG, TOKEN, clientWith, says, until } from "./gateway.mjs";

const ASK = { model: "demo-fast", messages: says("hello") };
const REQUESTS_A_MINUTE = 5;
// One slot of five a minute, and a second for rounding up.
const LONGEST_WAIT_S = 60 / REQUESTS_A_MINUTE + 1;
// A refusal for at least so long stays one for the length of a test's next step.
const SETTLED_S = 3;

/** The error that `promise` ends in. */
async function errorOf(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("it was not refused");
}

/** Asserts a refusal of the gateway's: its class, stable code, id to quote, hint of origin. */
function assertOurs(error, kind, code) {
  assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error}`);
  assert.equal(error.code, code);
  assert.deepEqual(Object.keys(error.error).sort(), ["code", "message", "param", "type"]);
  assert.ok(error.requestID);
  assert.equal(error.headers.get("x-request-id"), error.requestID);
  assert.equal(error.headers.get("x-tollgate-source"), "gateway");
}

/** Asks until the gateway refuses and will go on doing so for a while; gives the refusal. */
async function spendAll(client) {
  for (let asked = 0; asked < 2 * REQUESTS_A_MINUTE; asked += 1) {
    try {
      await client.chat.completions.create(ASK);
    } catch (error) {
      assert.ok(error instanceof OpenAI.RateLimitError, String(error));
      if (Number(error.headers.get("retry-after")) >= SETTLED_S) return error;
      // The next slot is near: take it, rather than race it in the test.
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
  assert.fail(`${2 * REQUESTS_A_MINUTE} requests at once passed`);
}

test("a bad token is an AuthenticationError, streamed or not", async () => {
  for (const bad of ["nonsense", "a.b.c", `${TOKEN.alice}x`]) {
    for (const stream of [false, true]) {
      const asked = clientWith(bad).chat.completions.create({ ...ASK, stream });
      assertOurs(await errorOf(asked), OpenAI.AuthenticationError, "invalid_token");
    }
  }
});

test("a missing capability is a PermissionDeniedError, streamed or not", async () => {
  for (const stream of [false, true]) {
    const asked = clientWith(TOKEN.bare).chat.completions.create({ ...ASK, stream });
    assertOurs(await errorOf(asked), OpenAI.PermissionDeniedError, "capability_denied");
  }
});

test("an unknown model is a NotFoundError", async () => {
  const client = clientWith(TOKEN.alice);
  const asked = client.chat.completions.create({ ...ASK, model: "no-such-model" });
  assertOurs(await errorOf(asked), OpenAI.NotFoundError, "model_not_found");
  const sought = client.models.retrieve("no-such-model");
  assertOurs(await errorOf(sought), OpenAI.NotFoundError, "model_not_found");
});

test("a bad request names the field at fault", async () => {
  const asked = clientWith(TOKEN.alice).chat.completions.create({
    model: "demo-fast",
    messages: "not a list",
  });
  const error = await errorOf(asked);
  assertOurs(error, OpenAI.BadRequestError, "invalid_request");
  assert.equal(error.param, "messages");
});

test("every answer names its request and its trace, and says what is left", async () => {
  const { data, response, request_id } = await clientWith(TOKEN.alice)
    .chat.completions.create(ASK)
    .withResponse();
  assert.ok(request_id);
  assert.equal(data._request_id, request_id);
  assert.match(response.headers.get("traceparent"), /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/);
  assert.ok(Number(response.headers.get("x-ratelimit-limit-requests")) > 0);
});

test("a spent budget is a RateLimitError that says when, and the SDK waits so long", async () => {
  const error = await spendAll(clientWith(TOKEN.free));
  assertOurs(error, OpenAI.RateLimitError, "rate_limited");
  const retryAfterS = Number(error.headers.get("retry-after"));
  assert.ok(retryAfterS <= LONGEST_WAIT_S, `retry-after: ${retryAfterS}`);
  assert.equal(error.headers.get("x-ratelimit-limit-requests"), String(REQUESTS_A_MINUTE));
  assert.equal(error.headers.get("x-ratelimit-remaining-requests"), "0");

  const statuses = [];
  const patient = clientWith(TOKEN.free, {
    maxRetries: 2,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      statuses.push(response.status);
      return response;
    },
  });
  const started = performance.now();
  const completion = await patient.chat.completions.create(ASK);
  const tookS = (performance.now() - started) / 1000;
  assert.equal(completion.choices[0].finish_reason, "stop");
  assert.deepEqual(statuses, [429, 200], "the first wait was the right one");
  assert.ok(tookS > 0.5 && tookS < LONGEST_WAIT_S + 2, `waited ${tookS} s`);
});

test("too many at once is a RateLimitError until one ends", async () => {
  const client = clientWith(TOKEN.free);
  const ask = { model: "demo", messages: says(LONG), stream: true };
  const streams = [];
  for (let open = 0; open < 2; open += 1) {
    const stream = await client.chat.completions.create(ask);
    await stream[Symbol.asyncIterator]().next();
    streams.push(stream);
  }
  const error = await errorOf(client.chat.completions.create(ask));
  assertOurs(error, OpenAI.RateLimitError, "concurrency_limited");
  for (const stream of streams) stream.controller.abort();

  const again = await until("a place to be free", async () => {
    try {
      return await client.chat.completions.create(ask);
    } catch (refusal) {
      assert.equal(refusal.code, "concurrency_limited", "a refusal spends no request");
      return null;
    }
  });
  again.controller.abort();
});
