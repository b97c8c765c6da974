// Native streams as the `eventsource` package reads and, after a cut, resumes them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EventSource } from "eventsource";

import { startCuttingProxy } from "./cutting_proxy.mjs";
import { LONG, MEDIUM, TOKEN, URL_OF_GATEWAY, WEATHER, says, until } from "./gateway.mjs";

const EVENTS = ["token", "reasoning", "refusal", "tool_call", "usage", "done", "canceled"];
const TERMINAL = ["done", "canceled", "error"];

function bearer(token) {
  return { authorization: `Bearer ${token}` };
}

/**
 * Opens a native stream, sees that its first frame comes, and hangs up: it goes on by itself.
 * Gives its path and the frame's text.
 */
async function openStream(body, token = TOKEN.alice) {
  const hangUp = new AbortController();
  const response = await fetch(`${URL_OF_GATEWAY}/v1/streams`, {
    method: "POST",
    headers: { ...bearer(token), "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: hangUp.signal,
  });
  assert.ok([200, 201].includes(response.status), `status ${response.status}`);
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const id = response.headers.get("x-stream-id");
  assert.ok(id, "x-stream-id");
  const location = new URL(response.headers.get("location"), URL_OF_GATEWAY);
  assert.equal(location.pathname, `/v1/streams/${id}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  await until("the first frame", async () => {
    text += (await reader.read()).value ?? "";
    return /^id: 1$/m.test(text);
  });
  hangUp.abort();
  return { path: location.pathname, text };
}

/** Reads `url` with an EventSource, which resumes by itself; closes it after a terminal frame. */
function follow(url, token = TOKEN.alice) {
  const seen = { frames: [], errors: [], sent: [], opened: 0 };
  const source = new EventSource(url, {
    fetch: (input, init) => {
      const headers = { ...init.headers, ...bearer(token) };
      seen.sent.push({ id: headers["Last-Event-ID"] ?? "", after: seen.frames.at(-1)?.id ?? "" });
      return fetch(input, { ...init, headers });
    },
  });
  const take = (event) => {
    const frame = { ...JSON.parse(event.data), event: event.type, id: event.lastEventId };
    seen.frames.push(frame);
    if (TERMINAL.includes(event.type)) source.close();
  };
  for (const name of EVENTS) source.addEventListener(name, take);
  source.addEventListener("open", () => (seen.opened += 1));
  // A frame named `error` and the EventSource's own errors come by the same name.
  source.addEventListener("error", (event) =>
    event.data === undefined ? seen.errors.push(event) : take(event),
  );
  seen.source = source;
  seen.ended = () => until("the stream to end", () => terminals(seen).length > 0, 40_000);
  return seen;
}

function terminals(seen) {
  return seen.frames.filter((frame) => TERMINAL.includes(frame.event));
}

/** Asserts that the frames are 1, 2, 3… without gap or double, each under its own id. */
function assertWhole(seen) {
  const seqs = seen.frames.map((frame) => frame.seq);
  assert.deepEqual(
    seqs,
    seqs.map((_, at) => at + 1),
  );
  for (const frame of seen.frames) assert.equal(frame.id, String(frame.seq));
  assert.equal(terminals(seen).length, 1);
  assert.equal(terminals(seen)[0], seen.frames.at(-1), "the terminal frame is the last");
}

function textOf(seen) {
  return seen.frames
    .filter((frame) => frame.event === "token")
    .map((frame) => frame.delta)
    .join("");
}

async function cancel(path, token = TOKEN.alice) {
  const options = { method: "DELETE", headers: bearer(token) };
  const response = await fetch(URL_OF_GATEWAY + path, options);
  await response.body?.cancel();
  return response.status;
}

test("a stream whose connection is cut twice is resumed without gap or double", async (t) => {
  const { path } = await openStream({ model: "demo", messages: says(MEDIUM) });
  const proxy = await startCuttingProxy(URL_OF_GATEWAY, [12, 40]);
  t.after(() => proxy.close());
  const seen = follow(proxy.url + path);
  t.after(() => seen.source.close());
  await seen.ended();

  assert.equal(proxy.cutsMade, 2, "the stream was long enough to be cut");
  assert.equal(seen.opened, 3);
  assert.ok(seen.errors.length >= 2, "each cut was noticed");
  // It asked to go on after the last whole frame that it had, and was further each time. (How far
  // exactly is the client's: fetch drops what it has not handed out when a body breaks off.)
  for (const { id, after } of seen.sent) assert.equal(id, after);
  const [first, second, third] = seen.sent.map(({ id }) => Number(id));
  assert.ok(first === 0 && second > first && third > second, JSON.stringify(seen.sent));
  assertWhole(seen);
  assert.equal(terminals(seen)[0].event, "done");
  assert.equal(terminals(seen)[0].finish_reason, "stop");
  assert.match(textOf(seen), /word0 word1 .*word159/s);
});

test("a finished stream replays to its end", async (t) => {
  const { path } = await openStream({ model: "demo-fast", messages: says("an ibex please") });
  const first = follow(URL_OF_GATEWAY + path);
  t.after(() => first.source.close());
  await first.ended();
  const again = follow(URL_OF_GATEWAY + path);
  t.after(() => again.source.close());
  await again.ended();

  assertWhole(first);
  assert.match(textOf(first), /ibex/);
  assert.deepEqual(again.frames, first.frames);
  const [usage] = first.frames.filter((frame) => frame.event === "usage");
  assert.ok(usage.output_tokens > 0);
});

test("two readers of one stream see the same", async (t) => {
  const { path } = await openStream({ model: "demo", messages: says("a few words for two") });
  const readers = [follow(URL_OF_GATEWAY + path), follow(URL_OF_GATEWAY + path)];
  t.after(() => readers.forEach((seen) => seen.source.close()));
  await Promise.all(readers.map((seen) => seen.ended()));
  assertWhole(readers[0]);
  assert.deepEqual(readers[1].frames, readers[0].frames);
});

test("a tool call is one frame with its arguments as an object", async (t) => {
  const { path } = await openStream({
    model: "demo-tool",
    messages: says("What is the weather in Bern?"),
    tools: [WEATHER],
  });
  const seen = follow(URL_OF_GATEWAY + path);
  t.after(() => seen.source.close());
  await seen.ended();
  assertWhole(seen);
  const calls = seen.frames.filter((frame) => frame.event === "tool_call");
  assert.equal(calls.length, 1);
  assert.equal(calls[0].name, "get_weather");
  assert.equal(typeof calls[0].arguments, "object");
  assert.equal(terminals(seen)[0].finish_reason, "tool_calls");
});

test("a canceled stream ends in one `canceled`, and canceling again is no error", async (t) => {
  const { path } = await openStream({ model: "demo", messages: says(LONG) });
  const seen = follow(URL_OF_GATEWAY + path);
  t.after(() => seen.source.close());
  await until("some frames", () => seen.frames.length >= 3);
  assert.equal(await cancel(path), 202);
  await seen.ended();

  assertWhole(seen);
  assert.equal(terminals(seen)[0].event, "canceled");
  assert.equal(terminals(seen)[0].reason, "requested");
  assert.equal(await cancel(path), 202);
  // Who comes late sees the same end.
  const late = follow(URL_OF_GATEWAY + path);
  t.after(() => late.source.close());
  await late.ended();
  assert.deepEqual(late.frames, seen.frames);
});

test("another subject finds no such stream, and its owner's goes on", async (t) => {
  const { path } = await openStream({ model: "demo", messages: says(LONG) });
  const stranger = follow(URL_OF_GATEWAY + path, TOKEN.stranger);
  t.after(() => stranger.source.close());
  await until("a refusal", () => stranger.errors.length > 0);
  assert.equal(stranger.errors[0].code, 404);
  assert.equal(stranger.source.readyState, EventSource.CLOSED, "a refusal is not tried again");
  assert.deepEqual(stranger.frames, []);
  assert.equal(await cancel(path, TOKEN.stranger), 404);

  const owner = follow(URL_OF_GATEWAY + path);
  t.after(() => owner.source.close());
  await until("frames", () => owner.frames.length > 3);
  assert.deepEqual(terminals(owner), []);
  assert.equal(await cancel(path), 202);
  await owner.ended();
});

test("a stream that never was is not found", async () => {
  for (const method of ["GET", "DELETE"]) {
    const response = await fetch(`${URL_OF_GATEWAY}/v1/streams/no-such-stream`, {
      method,
      headers: bearer(TOKEN.alice),
    });
    assert.equal(response.status, 404);
    assert.match((await response.json()).error.code, /^stream_(not_found|gone)$/);
  }
});
