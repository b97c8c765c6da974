"""Tool calls, whole and in pieces."""

import json

from conftest import WEATHER, says


def test_a_tool_call_comes_whole(client):
    completion = client.chat.completions.create(
        model="demo-tool", messages=says("What is the weather in Bern?"), tools=[WEATHER]
    )
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert call.id
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments), dict)


def test_a_tool_call_in_pieces_assembles_to_valid_json(client):
    name, arguments, ids, reasons = "", "", [], []
    with client.chat.completions.create(
        model="demo-tool",
        messages=says("What is the weather in Bern?"),
        tools=[WEATHER],
        stream=True,
    ) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                reasons += [choice.finish_reason] if choice.finish_reason else []
                for call in choice.delta.tool_calls or []:
                    assert call.index == 0
                    ids += [call.id] if call.id else []
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
    assert len(ids) == 1
    assert name == "get_weather"
    assert isinstance(json.loads(arguments), dict)
    assert reasons == ["tool_calls"]


def test_the_sdk_s_own_accumulation_of_a_tool_call_works(client):
    with client.chat.completions.stream(
        model="demo-tool", messages=says("What is the weather in Bern?"), tools=[WEATHER]
    ) as stream:
        stream.until_done()
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments), dict)


def test_a_tool_s_result_goes_back_to_the_model(client):
    asked = client.chat.completions.create(
        model="demo-tool", messages=says("What is the weather in Bern?"), tools=[WEATHER]
    )
    message = asked.choices[0].message
    answered = client.chat.completions.create(
        model="demo-fast",
        messages=[
            *says("What is the weather in Bern?"),
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Sunny, 21 °C"},
        ],
        tools=[WEATHER],
    )
    assert answered.choices[0].finish_reason == "stop"
    assert answered.choices[0].message.content
