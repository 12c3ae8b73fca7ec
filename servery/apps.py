"""From an import string or a callable to an ASGI 3 application, or an error that tells what to change.

Knows how modules are found and what callables look like; it never calls an application.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .config import Config
from .engine import Message, Scope
from .errors import AppImportError, ConfigError
from .failures import user_traceback
from .settings import nearest

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI3 = Callable[[Scope, Receive, Send], Awaitable[None]]

_importing: list[str] = []
"""The import strings of applications that are being imported now."""

DEFAULT_ATTRIBUTES = ("app", "application")
"""What is looked for when the import string has no colon."""


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """The application as ASGI 3, and what it spoke before: ``asgi3`` or ``asgi2``."""

    app: ASGI3
    interface: str


def load_app(config: Config) -> LoadedApp:
    """Import the application, call its factory, find its interface.

    Raises ConfigError if none is named, AppImportError if it cannot be had. If the user's own code
    raised, that error is the AppImportError's ``__cause__``; see `servery.failures`.
    """
    if config.app is None:
        raise ConfigError("no application is named: set app to an import string such as main:app")
    if isinstance(config.app, str):
        name, app = repr(config.app), _import(config.app, config.app_dir)
    else:
        name, app = "app", config.app
    _check_callable(app, name)
    if config.factory:
        app, name = _call_factory(app, name), f"what the factory {name} returned"
        _check_callable(app, name)
    interface = config.interface or _interface(app, name)
    return LoadedApp(app if interface == "asgi3" else _from_double(app), interface)


# --- the import string -------------------------------------------------------------------------------


def _import(spec: str, app_dir: str) -> Any:
    module_name, colon, attribute = spec.partition(":")
    _check_spec(spec, module_name, colon, attribute)
    directory = os.path.abspath(app_dir)
    if sys.path[:1] != [directory]:
        sys.path.insert(0, directory)
    _importing.append(spec)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if user_traceback(error) is None and isinstance(error, ModuleNotFoundError) and error.name:
            raise AppImportError(_not_found(error.name, directory)) from None
        text = f"module {module_name!r} cannot be imported: it raised {type(error).__name__}"
        raise AppImportError(text) from error
    finally:
        _importing.remove(spec)
    return _find_attribute(module, attribute, spec)


def refuse_while_importing() -> None:
    """Raises `ConfigError` if a program serves, by its import, an application that imports the program."""
    if _importing:
        raise ConfigError(
            f"{_importing[0]} serves while it is imported, and so would serve itself without end: "
            'let it do so only below `if __name__ == "__main__":`'
        )


def _check_spec(spec: str, module_name: str, colon: str, attribute: str) -> None:
    """Name what is wrong with an import string before the import system says it in its own words."""
    path, extension = os.path.splitext(module_name)
    if extension == ".py" or "/" in module_name or os.sep in module_name:
        directory, stem = os.path.split(path if extension == ".py" else module_name)
        right = f"{f'--app-dir {directory} ' if directory else ''}{stem}{colon}{attribute}"
        raise AppImportError(f"{spec!r} names a file, not a module: write {right}")
    if attribute.endswith("()"):
        raise AppImportError(f"{spec!r} has brackets: write --factory {spec[:-2]}")
    parts = module_name.split(".") + (attribute.split(".") if colon else [])
    if not all(part.isidentifier() for part in parts):
        raise AppImportError(f"{spec!r} is not an import string: write MODULE:ATTR, as in main:app")


def _not_found(missing: str, directory: str) -> str:
    """Why module `missing` was not found, and what is there instead."""
    parent, _, leaf = missing.rpartition(".")
    if not os.path.isdir(directory):
        return f"module {missing!r} was not found: --app-dir {directory} is not a directory"
    searched = list(getattr(sys.modules[parent], "__path__", [])) if parent else [directory]
    names = [name for place in searched for name in _modules_in(place)]
    below = (
        []
        if parent
        else [name for name in _folders_in(directory) if leaf in _modules_in(f"{directory}/{name}")]
    )
    if below:
        hint = f"; it is in {below[0]}: add --app-dir {os.path.relpath(os.path.join(directory, below[0]))}"
    else:
        hint = nearest(leaf, names) or ("" if parent else "; if it is elsewhere, add --app-dir DIR")
    place = ", ".join(searched) if searched else f"{parent}, which is a module and not a package"
    return f"module {missing!r} was not found in {place}{'' if parent else ' or on the import path'}{hint}"


def _modules_in(directory: str) -> list[str]:
    files = [name.removesuffix(".py") for name in _entries(directory) if name.endswith(".py")]
    return files + _folders_in(directory)


def _folders_in(directory: str) -> list[str]:
    entries = [name for name in _entries(directory) if name.isidentifier()]
    return [name for name in entries if os.path.isdir(os.path.join(directory, name))]


def _entries(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        # What cannot be read holds no hint; the error that is being explained is another one.
        return []


def _find_attribute(module: Any, attribute: str, spec: str) -> Any:
    names = [attribute] if attribute else [name for name in DEFAULT_ATTRIBUTES if hasattr(module, name)]
    if not names:
        wanted = " or ".join(map(repr, DEFAULT_ATTRIBUTES))
        raise AppImportError(f"{_describe(module)} has no {wanted}: write {spec}:ATTR to name another")
    found = module
    for part in names[0].split("."):
        if not hasattr(found, part):
            owner = _describe(module) if found is module else f"{type(found).__name__} object in {spec!r}"
            near = nearest(part, [name for name in dir(found) if not name.startswith("__")])
            raise AppImportError(f"{owner} has no attribute {part!r}{near}")
        found = getattr(found, part)
    return found


def _describe(module: Any) -> str:
    """The module with its file: the wrong one is often found, such as the standard library's `test`."""
    file = getattr(module, "__file__", None)
    where = file or f"the folder {next(iter(module.__path__), '')}, without __init__.py"
    return f"module {module.__name__!r} ({where})"


# --- the callable ------------------------------------------------------------------------------------


def _check_callable(app: Any, name: str) -> None:
    if inspect.iscoroutine(app):
        app.close()  # it will never be awaited, which Python would complain about
        raise AppImportError(f"{name} is a coroutine: a factory must be a plain function, not async")
    if not callable(app):
        raise AppImportError(f"{name} is of type {type(app).__name__}, which is no application: not callable")


def _call_factory(factory: Any, name: str) -> Any:
    signature = _signature(factory, follow=True)
    if signature and not _takes(signature, 0):
        raise AppImportError(f"{name} needs arguments, so it is no factory: drop --factory, or name another")
    try:
        return factory()
    except Exception as error:
        raise AppImportError(f"the factory {name} raised {type(error).__name__}") from error


def _interface(app: Any, name: str) -> str:
    """What `app` speaks, told from how it can be called (ASGI 3: `app(scope, receive, send)`)."""
    # asgiref's decorators say it outright.
    if getattr(app, "_asgi_single_callable", False):
        return "asgi3"
    if getattr(app, "_asgi_double_callable", False):
        return "asgi2"
    # What a wrapper itself takes counts more than what it wraps, unless it takes anything.
    for follow in (False, True):
        signature = _signature(app, follow)
        if signature is None:
            break
        interface = _from_signature(app, signature, name)
        if interface:
            return interface
    return "asgi2" if inspect.isclass(app) and not hasattr(app, "__await__") else "asgi3"


def _from_signature(app: Any, signature: inspect.Signature, name: str) -> str | None:
    """The interface if `signature` settles it; AppImportError if it is no application's."""
    any_number = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    if any_number and _takes(signature, 3):
        return None
    if _takes(signature, 0):
        text = f"{name} can be called without arguments, so it seems to make the application: add --factory"
        raise AppImportError(text)
    if _takes(signature, 3):
        return "asgi3"
    if _takes(signature, 1) and not _is_async(app):
        return "asgi2"
    if _takes(signature, 2):
        text = f"{name} takes two arguments, as WSGI applications do: wrap it in an adapter such as a2wsgi's"
        raise AppImportError(text)
    raise AppImportError(f"{name} is no ASGI application: it cannot be called with (scope, receive, send)")


def _is_async(app: Any) -> bool:
    if inspect.isclass(app):
        return False  # calling it makes an instance, whatever its __call__ is
    return inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(app.__call__)


def _signature(app: Any, follow: bool) -> inspect.Signature | None:
    """None for callables that do not tell, such as some written in C."""
    try:
        return inspect.signature(app, follow_wrapped=follow)
    except (TypeError, ValueError):
        return None


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _from_double(app: Any) -> ASGI3:
    """ASGI 2 (`app(scope)` gives `instance(receive, send)`) as ASGI 3."""

    async def single(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope)(receive, send)

    return single
