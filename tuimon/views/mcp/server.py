"""The server: its tools, their arguments and what they are for, as an assistant reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING

from tuimon.errors import TuimonError
from tuimon.views.mcp.limits import names_of, refusal, shortened
from tuimon.views.mcp.tools import Tools

if TYPE_CHECKING:
    from mcp.server.lowlevel.helper_types import ReadResourceContents
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.types import CallToolResult, GetPromptResult, InputRequiredResult

_ABOUT = (
    "tuimon watches PyTorch trainings: what a training waits for, which line of code causes it, and what fixing it"
    " gains. Begin with trainings, or with a log; then verdict. evidence, hot_lines and stacks show what it rests on,"
    " explain what it means. Nothing here changes a training. Numbers marked ~ are estimates, a dash is 'not measured'."
    " Where a tool takes `training`, give the pid of one of the user's trainings, which is then watched for `seconds`"
    " (1 to 60) before the answer, or the path of a log that tuimon has written (of a folder, the latest run in it);"
    " without it, the one training of the user's that runs is meant."
)
#: Calls that are answered at a time: each holds a log's tables (some 15 MB), or a training that is watched.
_AT_ONCE = 4
_INSTALL = 'Install it: pip install "tuimon[mcp]"'


def server(tools: Tools) -> MCPServer:
    """The server with these tools. Raises TuimonError without the package."""
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415  (an extra)
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415
        from mcp.types import INVALID_PARAMS, ToolAnnotations  # noqa: PLC0415
    except ImportError as error:
        raise TuimonError("tuimon mcp needs the package mcp, which is not installed.", _INSTALL) from error

    arguments_of = {tool.__name__: list(signature(tool).parameters) for tool in tools.all()}

    turns = asyncio.Semaphore(_AT_ONCE)

    class Server(MCPServer):  # type: ignore[misc]  # unknown where the extra is not installed
        """Refuses arguments that a tool does not take: left out, the answer would be of another training.

        The others are answered some at a time, in the order in which they came.
        """

        async def call_tool(
            self, name: str, arguments: dict[str, object], context: Context[object] | None = None
        ) -> CallToolResult | InputRequiredResult:
            known = arguments_of.get(name)
            if known is None:
                raise ToolError(f"there is no tool {shortened(name, 40)!r}. There are: {', '.join(arguments_of)}")
            if unknown := [each for each in arguments if each not in known]:
                raise ToolError(f"{name} takes no argument {names_of(unknown)}. It takes: {', '.join(known) or 'none'}")
            if refused := refusal(arguments):
                raise ToolError(refused)
            async with turns:
                return await super().call_tool(name, arguments, context)

        async def get_prompt(self, *_asked: object, **_named: object) -> GetPromptResult:
            """There is none; the package would print a traceback with the name, however long."""
            raise MCPError(INVALID_PARAMS, "there are no prompts, only tools")

        async def read_resource(self, *_asked: object, **_named: object) -> list[ReadResourceContents]:
            """There is none."""
            raise MCPError(INVALID_PARAMS, "there are no resources, only tools")

    made = Server("tuimon", instructions=_ABOUT, log_level="WARNING")
    read_only = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for tool in tools.all():
        made.add_tool(_reporting_errors(tool, ToolError), annotations=read_only, structured_output=False)
    return made


def _reporting_errors(tool: Callable[..., str], error_type: type[Exception]) -> Callable[..., str]:
    """The tool, whose errors for the user reach the assistant: cause and next step."""

    @wraps(tool)
    def reporting(*args: object, **kwargs: object) -> str:
        try:
            return tool(*args, **kwargs)
        except TuimonError as error:
            raise error_type(f"{shortened(error.message)}. {shortened(error.hint or '')}".strip()) from error

    return reporting
