"""One step of a script, taken by an engine of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from servery.errors import ServeryError


def taken(engine: Any, step: tuple[str, tuple[Any, ...]], plain: Callable[[Any], Any]) -> Any:
    """What the method that `step` names gives for its arguments, events made comparable by `plain`; of an
    exception its type and text.
    """
    method, arguments = step
    try:
        result = getattr(engine, method)(*arguments)
    except ServeryError as error:
        return type(error), str(error)
    return [plain(one) for one in result] if isinstance(result, list) else result
