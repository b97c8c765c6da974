"""Chat completions as the OpenAI SDK for Python does them."""

import asyncio
import os
import re
import time

import openai
from conftest import LONG, says, text_of


def test_models_are_listed_and_found_by_name(client):
    names = {model.id for model in client.models.list()}
    assert {"demo", "demo-fast", "demo-tool"} <= names
    assert client.models.retrieve("demo").id == "demo"


def test_models_that_a_caller_may_not_use_are_not_listed(bare_client):
    assert list(bare_client.models.list()) == []


def test_an_answer_comes_whole(client):
    completion = client.chat.completions.create(model="demo-fast", messages=says("a zebra please"))
    assert completion.object == "chat.completion"
    assert completion.model == "demo-fast"
    [choice] = completion.choices
    assert choice.message.role == "assistant"
    assert "zebra" in choice.message.content
    assert choice.finish_reason == "stop"
    usage = completion.usage
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_an_answer_comes_in_pieces(client):
    with client.chat.completions.create(
        model="demo-fast", messages=says("an okapi please"), stream=True
    ) as stream:
        chunks = list(stream)
    assert len(chunks) > 2
    assert "okapi" in text_of(chunks)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.model for chunk in chunks} == {"demo-fast"}
    assert len({chunk.id for chunk in chunks}) == 1
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in finishes if reason] == ["stop"]


def test_streamed_and_whole_answers_say_the_same(client):
    request = {"model": "demo-fast", "messages": says("Grüezi, 世界, 👋🏽!")}
    whole = client.chat.completions.create(**request).choices[0].message.content
    with client.chat.completions.create(**request, stream=True) as stream:
        assert text_of(stream) == whole


def test_usage_comes_last_and_alone_where_it_was_asked_for(client):
    with client.chat.completions.create(
        model="demo-fast",
        messages=says("count me"),
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        *chunks, last = stream
    assert last.choices == []
    assert last.usage.completion_tokens > 0
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_usage_that_was_not_asked_for_is_not_shown(client):
    with client.chat.completions.create(
        model="demo-fast", messages=says("count me"), stream=True
    ) as stream:
        for chunk in stream:
            assert chunk.choices, "a chunk without choices is the usage chunk"
            assert chunk.usage is None


def test_the_sdk_s_own_accumulation_of_a_stream_works(client):
    with client.chat.completions.stream(
        model="demo-fast", messages=says("a quokka please")
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert "quokka" in final.choices[0].message.content


def test_a_stream_that_is_read_as_it_comes_does_not_come_all_at_once(client):
    stamps = []
    with client.chat.completions.create(
        model="demo", messages=says("take your time with these ten or so words"), stream=True
    ) as stream:
        for chunk in stream:
            if text_of([chunk]):
                stamps.append(time.monotonic())
    assert stamps[-1] - stamps[0] > 0.05, "paced by the model, buffered by nobody"


def test_a_stream_that_is_closed_early_leaves_the_client_usable(client):
    for _ in range(3):
        stream = client.chat.completions.create(model="demo", messages=says(LONG), stream=True)
        assert next(stream).object == "chat.completion.chunk"
        stream.close()
    completion = client.chat.completions.create(model="demo-fast", messages=says("still here"))
    assert "still here" in completion.choices[0].message.content


def test_async_streams_at_once_are_not_mixed_up(async_client):
    async def read(client, marker):
        stream = await client.chat.completions.create(
            model="demo-fast", messages=says(f"only {marker} of all"), stream=True
        )
        async with stream:
            return text_of([chunk async for chunk in stream])

    async def read_all():
        async with async_client() as client:
            return await asyncio.gather(*(read(client, f"<{number}>") for number in range(12)))

    for number, text in enumerate(asyncio.run(read_all())):
        assert set(re.findall(r"<\d+>", text)) == {f"<{number}>"}


def test_an_async_stream_that_is_left_early_leaves_the_client_usable(async_client):
    async def leave_and_ask():
        async with async_client() as client:
            stream = await client.chat.completions.create(
                model="demo", messages=says(LONG), stream=True
            )
            async for _ in stream:
                break
            await stream.close()
            return await client.chat.completions.create(
                model="demo-fast", messages=says("still here")
            )

    completion = asyncio.run(leave_and_ask())
    assert "still here" in completion.choices[0].message.content


def test_a_field_that_nobody_knows_is_no_error(client):
    completion = client.chat.completions.create(
        model="demo-fast",
        messages=says("fine"),
        extra_body={"x_of_tomorrow": {"deep": [1.10, 12345678901234567890]}},
    )
    assert completion.choices[0].finish_reason == "stop"


def test_content_in_parts_is_taken(client):
    completion = client.chat.completions.create(
        model="demo-fast",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "an axolotl please"}]},
        ],
    )
    assert completion.choices[0].finish_reason == "stop"


def test_an_old_key_style_is_only_the_token():
    # The SDK's `api_key` is the JWT, also where it comes from the environment.
    with openai.OpenAI(
        base_url=os.environ["TOLLGATE_URL"] + "/v1",
        api_key=lambda: os.environ["TOLLGATE_TOKEN"],
        max_retries=0,
    ) as client:
        assert client.models.retrieve("demo-fast").id == "demo-fast"
