"""The server of `exec-server mcp` with what the scenarios of the MCP conformance suite ask for.

    python mcp_fixtures.py URL              the server and the fixtures, over HTTP; prints the URL

Most scenarios of the suite ask for a tool or a prompt of a certain name and answer. The server that
they test is ours: its object, its HTTP and its settings.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Annotated, Any, Literal

import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

import exec_server
from exec_server.integrations.mcp.mcp_box import McpBox
from exec_server.integrations.mcp.mcp_http import listen, serve_http, url_of
from exec_server.integrations.mcp.mcp_server import make_server
from exec_server.integrations.mcp.mcp_settings import McpSettings

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5E"
    "rkJggg=="
)
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0"
).decode()


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, content: str, kind: str = "text/plain") -> types.EmbeddedResource:
    inner = types.TextResourceContents(uri=uri, mime_type=kind, text=content)
    return types.EmbeddedResource(type="resource", resource=inner)


def asking(message: str, **properties: str) -> types.ElicitRequest:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def sampling(question: str, tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text(question))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=tokens)
    return types.CreateMessageRequest(params=params)


def answer(ctx: Context[Any], name: str) -> Any:
    """The response to the input request *name*, if it came and can be used."""
    return (ctx.input_responses or {}).get(name)


def form(ctx: Context[Any], name: str) -> dict[str, Any] | None:
    found = answer(ctx, name)
    if isinstance(found, types.ElicitResult) and found.action == "accept":
        return dict(found.content or {})
    return None


def needs(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def required(ctx: Context[Any], *kinds: str) -> None:
    """Raise if the client has not declared what the input requests need."""
    has = ctx.client_capabilities
    missing = [kind for kind in kinds if has is None or getattr(has, kind, None) is None]
    if missing:
        data = {"requiredCapabilities": {kind: {} for kind in missing}}
        raise MCPError(-32021, "the client lacks a capability", data)


def done(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[text(words)])


class Contact(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


_TITLED = [("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option")]
_CHOICES = [{"const": value, "title": title} for value, title in _TITLED]
_PLAIN = ["option1", "option2", "option3"]
_LEGACY = {
    "enum": ["opt1", "opt2", "opt3"],
    "enumNames": ["Option One", "Option Two", "Option Three"],
}
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _PLAIN},
        "titledSingle": {"type": "string", "oneOf": _CHOICES},
        "legacyEnum": {"type": "string", **_LEGACY},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
        "titledMulti": {"type": "array", "items": {"anyOf": _CHOICES}},
    },
}


def add_fixtures(server: MCPServer) -> None:
    """Add what the scenarios ask for."""
    _add_contents(server)
    _add_conversations(server)
    _add_input_required(server)
    _add_resources(server)
    _add_prompts(server)


def _add_contents(server: MCPServer) -> None:
    @server.tool()
    async def test_simple_text() -> types.CallToolResult:
        """Text."""
        return done("This is a simple text response for testing.")

    @server.tool()
    async def test_image_content() -> types.CallToolResult:
        """A picture."""
        return types.CallToolResult(content=[image()])

    @server.tool()
    async def test_audio_content() -> types.CallToolResult:
        """A sound."""
        sound = types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")
        return types.CallToolResult(content=[sound])

    @server.tool()
    async def test_embedded_resource() -> types.CallToolResult:
        """A resource."""
        content = "This is an embedded resource content."
        return types.CallToolResult(content=[embedded("test://embedded-resource", content)])

    @server.tool()
    async def test_multiple_content_types() -> types.CallToolResult:
        """Several kinds of content."""
        data = json.dumps({"test": "data", "value": 123})
        mixed = embedded("test://mixed-content-resource", data, "application/json")
        content = [text("Multiple content types test:"), image(), mixed]
        return types.CallToolResult(content=content)

    @server.tool()
    async def test_error_handling() -> types.CallToolResult:
        """An error."""
        raise ToolError("This tool intentionally returns an error for testing")


def _add_conversations(server: MCPServer) -> None:
    @server.tool()
    async def test_tool_with_logging(ctx: Context[Any]) -> types.CallToolResult:
        """Three messages."""
        for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(line)
            await asyncio.sleep(0.05)
        return done("logged")

    @server.tool()
    async def test_tool_with_progress(ctx: Context[Any]) -> types.CallToolResult:
        """Progress."""
        for number in (0, 50, 100):
            await ctx.report_progress(number, 100)
            await asyncio.sleep(0.05)
        return done("progressed")

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context[Any]) -> types.CallToolResult:
        """Ask the client's model."""
        message = types.SamplingMessage(role="user", content=text(prompt))
        said = await ctx.session.create_message([message], max_tokens=100)
        return done(f"LLM response: {getattr(said.content, 'text', said.content)}")

    @server.tool()
    async def test_elicitation(message: str, ctx: Context[Any]) -> types.CallToolResult:
        """Ask the user."""
        said: Any = await ctx.elicit(message, schema=Contact)
        content = said.data.model_dump() if said.action == "accept" else {}
        return done(f"User response: action={said.action}, content={json.dumps(content)}")

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context[Any]) -> types.CallToolResult:
        """Ask with defaults."""
        said: Any = await ctx.elicit("Please answer", schema=Defaults)
        content = said.data.model_dump() if said.action == "accept" else {}
        return done(f"Elicitation completed: action={said.action}, content={json.dumps(content)}")

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context[Any]) -> types.CallToolResult:
        """Ask with choices."""
        said = await ctx.session.elicit_form("Please choose", ENUMS, ctx.request_id)
        content = json.dumps(said.content or {})
        return done(f"Elicitation completed: action={said.action}, content={content}")


Reply = types.CallToolResult | types.InputRequiredResult


def _add_input_required(server: MCPServer) -> None:
    @server.tool()
    async def test_input_required_result_elicitation(ctx: Context[Any]) -> Reply:
        """Ask for a name."""
        said = form(ctx, "user_name")
        if said is None or not isinstance(said.get("name"), str):
            required(ctx, "elicitation")
            return needs(user_name=asking("What is your name?", name="string"))
        return done(f"Hello, {said['name']}!")

    @server.tool()
    async def test_missing_capability(ctx: Context[Any]) -> Reply:
        """Needs a client with a model."""
        required(ctx, "sampling")
        return done("the client has a model")

    @server.tool()
    async def test_input_required_result_sampling(ctx: Context[Any]) -> Reply:
        """Ask the client's model."""
        said = answer(ctx, "capital_question")
        if said is None:
            return needs(capital_question=sampling("What is the capital of France?", 100))
        return done(f"{getattr(said.content, 'text', said.content)}")

    @server.tool()
    async def test_input_required_result_list_roots(ctx: Context[Any]) -> Reply:
        """Ask for roots."""
        said = answer(ctx, "client_roots")
        if said is None:
            return needs(client_roots=types.ListRootsRequest())
        return done(f"{[str(root.uri) for root in said.roots]}")

    @server.tool()
    async def test_input_required_result_request_state(ctx: Context[Any]) -> Reply:
        """Keep a state."""
        if form(ctx, "confirm") is None or ctx.request_state != "confirming":
            return needs("confirming", confirm=asking("Please confirm", ok="boolean"))
        return done("state-ok")

    @server.tool()
    async def test_input_required_result_tampered_state(ctx: Context[Any]) -> Reply:
        """Keep a state that is signed."""
        if form(ctx, "confirm") is None or ctx.request_state != "signed":
            return needs("signed", confirm=asking("Please confirm", ok="boolean"))
        return done("state-ok")

    @server.tool()
    async def test_input_required_result_multiple_inputs(ctx: Context[Any]) -> Reply:
        """Ask for three things."""
        if any(answer(ctx, name) is None for name in ("user_name", "greeting", "client_roots")):
            return needs(
                "several",
                user_name=asking("What is your name?", name="string"),
                greeting=sampling("Generate a greeting", 50),
                client_roots=types.ListRootsRequest(),
            )
        return done("complete")

    @server.tool()
    async def test_input_required_result_multi_round(ctx: Context[Any]) -> Reply:
        """Ask twice."""
        if ctx.request_state == "two" and form(ctx, "step2") is not None:
            return done("complete")
        if ctx.request_state == "one" and form(ctx, "step1") is not None:
            question = "Step 2: What is your favorite color?"
            return needs("two", step2=asking(question, color="string"))
        return needs("one", step1=asking("Step 1: What is your name?", name="string"))

    @server.tool()
    async def test_input_required_result_capabilities(ctx: Context[Any]) -> Reply:
        """Ask for what the client can do."""
        has = ctx.client_capabilities
        requests: dict[str, Any] = {}
        if has is not None and has.sampling is not None:
            requests["capital_question"] = sampling("What is the capital of France?", 100)
        if has is not None and has.elicitation is not None:
            requests["user_name"] = asking("What is your name?", name="string")
        return needs(**requests) if requests and not ctx.input_responses else done("complete")


def _add_resources(server: MCPServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """Text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A picture."""
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: Annotated[str, Field()]) -> str:
        """Data."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    low = server._lowlevel_server

    async def accept(ctx: Any, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)


def _add_prompts(server: MCPServer) -> None:
    @server.prompt()
    def test_simple_prompt() -> str:
        """Text."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(
        arg1: Annotated[str, Field(description="First test argument")],
        arg2: Annotated[str, Field(description="Second test argument")],
    ) -> str:
        """Text with arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
        """A resource."""
        resource = embedded(resourceUri, "Embedded resource content for testing.")
        asked = UserMessage(text("Please process the embedded resource above."))
        return [UserMessage(resource), asked]

    @server.prompt()
    def test_prompt_with_image() -> list[Any]:
        """A picture."""
        return [UserMessage(image()), UserMessage(text("Please analyze the image above."))]

    @server.prompt()
    async def test_input_required_result_prompt(ctx: Context[Any]) -> Any:
        """Ask for a context."""
        said = form(ctx, "user_context")
        if said is None:
            question = "What context should the prompt use?"
            return needs(user_context=asking(question, context="string"))
        return f"Use this context: {said.get('context')}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
        words = [word for word in ("paris", "park", "party") if word.startswith(argument.value)]
        return types.Completion(values=words, total=len(words), has_more=False)


async def main(url: str) -> None:
    settings = McpSettings(server=url)
    async with McpBox(lambda token: exec_server.connect(url), settings) as box:
        server = make_server(box, settings)
        add_fixtures(server)
        listener = listen("127.0.0.1", 0, token=None)
        print(url_of(listener), flush=True)
        await serve_http(server, listener, token=None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
