// Chat completions as the OpenAI SDK for Node.js does them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LONG, TOKEN, WEATHER, clientWith, collect, says, textOf } from "./gateway.mjs";

const client = clientWith(TOKEN.alice);

test("models are listed and found by name", async () => {
  const names = (await collect(await client.models.list())).map((model) => model.id);
  for (const name of ["demo", "demo-fast", "demo-tool"]) assert.ok(names.includes(name), name);
  assert.equal((await client.models.retrieve("demo")).id, "demo");
});

test("models that a caller may not use are not listed", async () => {
  assert.deepEqual(await collect(await clientWith(TOKEN.bare).models.list()), []);
});

test("an answer comes whole", async () => {
  const completion = await client.chat.completions.create({
    model: "demo-fast",
    messages: says("a zebra please"),
  });
  assert.equal(completion.object, "chat.completion");
  assert.equal(completion.model, "demo-fast");
  assert.match(completion.choices[0].message.content, /zebra/);
  assert.equal(completion.choices[0].finish_reason, "stop");
  const { prompt_tokens, completion_tokens, total_tokens } = completion.usage;
  assert.ok(completion_tokens > 0);
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
});

test("an answer comes in pieces", async () => {
  const chunks = await collect(
    await client.chat.completions.create({
      model: "demo-fast",
      messages: says("an okapi please"),
      stream: true,
    }),
  );
  assert.match(textOf(chunks), /okapi/);
  assert.ok(chunks.every((chunk) => chunk.object === "chat.completion.chunk"));
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
  const reasons = chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.finish_reason);
  assert.deepEqual(reasons.filter(Boolean), ["stop"]);
});

test("usage comes last and alone where it was asked for", async () => {
  const chunks = await collect(
    await client.chat.completions.create({
      model: "demo-fast",
      messages: says("count me"),
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.ok(last.usage.completion_tokens > 0);
  assert.ok(chunks.every((chunk) => chunk.choices.length === 1 && chunk.usage === null));
});

test("usage that was not asked for is not shown", async () => {
  const chunks = await collect(
    await client.chat.completions.create({
      model: "demo-fast",
      messages: says("count me"),
      stream: true,
    }),
  );
  assert.ok(chunks.every((chunk) => chunk.choices.length === 1 && chunk.usage == null));
});

test("the SDK's own accumulation of a stream works", async () => {
  const stream = client.chat.completions.stream({
    model: "demo-fast",
    messages: says("a quokka please"),
  });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  assert.equal(await stream.finalContent(), text);
  assert.match(text, /quokka/);
});

test("a tool call comes whole", async () => {
  const completion = await client.chat.completions.create({
    model: "demo-tool",
    messages: says("What is the weather in Bern?"),
    tools: [WEATHER],
  });
  const [choice] = completion.choices;
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(choice.message.tool_calls.length, 1);
  assert.equal(choice.message.tool_calls[0].function.name, "get_weather");
  assert.equal(typeof JSON.parse(choice.message.tool_calls[0].function.arguments), "object");
});

test("a tool call in pieces assembles to valid JSON", async () => {
  const chunks = await collect(
    await client.chat.completions.create({
      model: "demo-tool",
      messages: says("What is the weather in Bern?"),
      tools: [WEATHER],
      stream: true,
    }),
  );
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const calls = choices.flatMap((choice) => choice.delta.tool_calls ?? []);
  assert.ok(calls.length > 0);
  assert.ok(calls.every((call) => call.index === 0));
  assert.equal(calls.map((call) => call.function.name ?? "").join(""), "get_weather");
  const text = calls.map((call) => call.function.arguments ?? "").join("");
  assert.equal(typeof JSON.parse(text), "object");
  const reasons = choices.map((choice) => choice.finish_reason).filter(Boolean);
  assert.deepEqual(reasons, ["tool_calls"]);
});

test("a tool that the SDK runs by itself gets its arguments", async () => {
  const seen = [];
  const runner = client.chat.completions.runTools(
    {
      model: "demo-tool",
      messages: says("What is the weather in Bern?"),
      tools: [
        {
          ...WEATHER,
          function: {
            ...WEATHER.function,
            parse: JSON.parse,
            function: (given) => {
              seen.push(given);
              return "Sunny, 21 °C";
            },
          },
        },
      ],
      stream: true,
    },
    // `demo-tool` only ever calls: one round is enough.
    { maxChatCompletions: 1 },
  );
  await runner.done();
  assert.equal(seen.length, 1);
  assert.equal(typeof seen[0], "object");
});

test("streams at once are not mixed up", async () => {
  const markers = Array.from({ length: 12 }, (_, number) => `<${number}>`);
  const texts = await Promise.all(
    markers.map(async (marker) =>
      textOf(
        await collect(
          await client.chat.completions.create({
            model: "demo-fast",
            messages: says(`only ${marker} of all`),
            stream: true,
          }),
        ),
      ),
    ),
  );
  for (const [number, text] of texts.entries()) {
    assert.deepEqual([...new Set(text.match(/<\d+>/g))], [markers[number]]);
  }
});

test("a stream that is left early leaves the client usable", async () => {
  for (let round = 0; round < 3; round += 1) {
    const stream = await client.chat.completions.create({
      model: "demo",
      messages: says(LONG),
      stream: true,
    });
    for await (const chunk of stream) {
      assert.equal(chunk.object, "chat.completion.chunk");
      break;
    }
    stream.controller.abort();
  }
  const completion = await client.chat.completions.create({
    model: "demo-fast",
    messages: says("still here"),
  });
  assert.match(completion.choices[0].message.content, /still here/);
});
