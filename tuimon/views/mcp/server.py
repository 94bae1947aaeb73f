"""The server: its tools, their arguments and what they are for, as an assistant reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING

from tuimon.errors import TuimonError
from tuimon.text import plain
from tuimon.views.mcp.tools import Tools

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.types import CallToolResult, InputRequiredResult

_ABOUT = (
    "tuimon watches PyTorch trainings: what a training waits for, which line of code causes it, and what fixing it"
    " gains. Begin with trainings, or with a log; then verdict. evidence, hot_lines and stacks show what it rests on,"
    " explain what it means. Nothing here changes a training. Numbers marked ~ are estimates, a dash is 'not measured'."
    " Where a tool takes `training`, give the pid of one of the user's trainings, which is then watched for `seconds`"
    " (1 to 60) before the answer, or the path of a log that tuimon has written (of a folder, the latest run in it);"
    " without it, the one training of the user's that runs is meant."
)
_INSTALL = 'Install it: pip install "tuimon[mcp]"'


def server(tools: Tools) -> MCPServer:
    """The server with these tools. Raises TuimonError without the package."""
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415  (an extra)
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415
        from mcp.types import ToolAnnotations  # noqa: PLC0415
    except ImportError as error:
        raise TuimonError("tuimon mcp needs the package mcp, which is not installed.", _INSTALL) from error

    arguments_of = {tool.__name__: list(signature(tool).parameters) for tool in tools.all()}

    class Server(MCPServer):  # type: ignore[misc]  # unknown where the extra is not installed
        """Refuses arguments that a tool does not take: left out, the answer would be of another training."""

        async def call_tool(
            self, name: str, arguments: dict[str, object], context: Context[object] | None = None
        ) -> CallToolResult | InputRequiredResult:
            known = arguments_of.get(name, list(arguments))
            unknown = ", ".join(repr(plain(each)) for each in arguments if each not in known)
            if unknown:
                raise ToolError(f"{name} takes no argument {unknown}. It takes: {', '.join(known) or 'none'}")
            return await super().call_tool(name, arguments, context)

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
            raise error_type(f"{error.message}. {error.hint or ''}".strip()) from error

    return reporting
