"""apps.py: import strings, what is said when one does not lead to an application, and ASGI 2."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
import textwrap
import traceback

import pytest

from servery.apps import LoadedApp, load_app
from servery.config import Config
from servery.errors import AppImportError, ConfigError
from servery.failures import user_traceback


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """An empty current directory, and an import system that forgets what the test imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    importlib.invalidate_caches()


def load(app, **settings) -> LoadedApp:
    return load_app(Config(app=app, **settings))


def error_of(app, **settings) -> str:
    with pytest.raises(AppImportError) as caught:
        load(app, **settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


def call(loaded: LoadedApp) -> list:
    """What the application sends for one request."""
    sent: list = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    async def request():
        await loaded.app({"type": "http"}, receive, send)

    asyncio.run(request())
    return sent


APP = """
async def app(scope, receive, send):
    await send(scope["type"])
"""


def test_the_current_directory_comes_first_on_the_path(project):
    write(project / "json_like_name.py", APP)
    loaded = load("json_like_name:app")
    assert loaded.interface == "asgi3"
    assert call(loaded) == ["http"]
    assert sys.path[0] == str(project)
    length = len(sys.path)
    load("json_like_name:app")
    assert len(sys.path) == length


def test_app_dir(project):
    write(project / "src" / "inner.py", APP)
    assert call(load("inner:app", app_dir="src")) == ["http"]
    assert sys.path[0] == str(project / "src")


def test_nested_modules_and_attributes(project):
    write(project / "pkg" / "__init__.py", "")
    write(project / "pkg" / "web.py", APP + "class site:\n    v1 = app\n")
    assert call(load("pkg.web:site.v1")) == ["http"]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (APP, ["http"]),
        (APP.replace("def app", "def application"), ["http"]),
        (APP + "async def application(scope, receive, send): await send('other')\n", ["http"]),
    ],
)
def test_without_a_colon_app_then_application(project, text, sent):
    write(project / "site_one.py", text)
    assert call(load("site_one")) == sent


def test_a_callable_needs_no_import():
    async def app(scope, receive, send):
        await send("direct")

    assert load(app).app is app
    assert call(load(lambda: app, factory=True)) == ["direct"]


def test_no_application():
    with pytest.raises(ConfigError, match="no application is named: set app"):
        load(None)


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("main.py:app", "write main:app"),
        ("main.py", "write main"),
        ("src/main.py:app", "write --app-dir src main:app"),
        ("src/main:app", "write --app-dir src main:app"),
        ("main:create()", "write --factory main:create"),
        ("main:", "write MODULE:ATTR"),
        (":app", "write MODULE:ATTR"),
        ("main:a b", "write MODULE:ATTR"),
        ("main..x:app", "write MODULE:ATTR"),
        ("main:app:x", "write MODULE:ATTR"),
    ],
)
def test_what_is_no_import_string(spec, advice):
    text = error_of(spec)
    assert repr(spec) in text
    assert text.endswith(advice) or advice == "write MODULE:ATTR"
    assert advice in text


def test_module_not_found(project):
    text = error_of("qqqq:app")
    assert f"module 'qqqq' was not found in {project} or on the import path" in text
    assert "add --app-dir DIR" in text
    assert "is not a directory" in error_of("qqqq:app", app_dir="nowhere")


def test_a_near_module_is_named(project):
    write(project / "main_site.py", APP)
    (project / "not-a-module").mkdir()
    assert error_of("main_sitte:app").endswith("; did you mean 'main_site'?")
    write(project / "webshop" / "__init__.py", "")
    assert error_of("webshp:app").endswith("; did you mean 'webshop'?")


def test_the_directory_that_has_the_module_is_named(project):
    write(project / "src" / "deep_site.py", APP)
    assert error_of("deep_site:app").endswith("; it is in src: add --app-dir src")
    write(project / "base" / "lib" / "deeper_site.py", APP)
    assert error_of("deeper_site:app", app_dir="base").endswith("add --app-dir base/lib")


def test_a_missing_submodule(project):
    write(project / "pkg" / "__init__.py", "")
    write(project / "pkg" / "views.py", APP)
    text = error_of("pkg.viwes:app")
    assert f"module 'pkg.viwes' was not found in {project / 'pkg'}; did you mean 'views'?" in text
    assert "in pkg.views, which is a module and not a package" in error_of("pkg.views.x:app")


def test_a_package_path_that_cannot_be_listed_gives_no_hint(project):
    write(project / "pkg" / "__init__.py", "__path__ = ['/nonexistent/place']\n")
    assert error_of("pkg.web:app") == "module 'pkg.web' was not found in /nonexistent/place"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("import no_such_module_here", ModuleNotFoundError),
        ("import bad_site.sub", ModuleNotFoundError),
        ("1 / 0", ZeroDivisionError),
        ("raise ModuleNotFoundError('by hand')", ModuleNotFoundError),
        ("def broken(:", SyntaxError),
    ],
)
def test_an_error_inside_the_module_is_the_cause(project, body, kind):
    write(project / "bad_site.py", body + "\n")
    with pytest.raises(AppImportError) as caught:
        load("bad_site:app")
    assert str(caught.value) == f"module 'bad_site' cannot be imported: it raised {kind.__name__}"
    cause = caught.value.__cause__
    assert type(cause) is kind
    frames = traceback.extract_tb(user_traceback(cause))
    assert [frame.filename for frame in frames[:1]] in ([], [str(project / "bad_site.py")])
    assert bool(frames) == (kind is not SyntaxError)


def test_an_exit_while_importing_is_obeyed(project):
    write(project / "bad_site.py", "import sys\nsys.exit(7)\n")
    with pytest.raises(SystemExit, match="7"):
        load("bad_site:app")


def test_missing_attributes(project):
    write(project / "site_two.py", APP + "class site:\n    inner = app\n")
    text = error_of("site_two:aap")
    assert text.startswith(f"module 'site_two' ({project / 'site_two.py'}) has no attribute 'aap'")
    assert text.endswith("; did you mean 'app'?")
    assert error_of("site_two:site.iner") == (
        "type object in 'site_two:site.iner' has no attribute 'iner'; did you mean 'inner'?"
    )
    write(project / "site_three.py", "x = 1\n")
    assert error_of("site_three").endswith(
        "has no 'app' or 'application': write site_three:ATTR to name another"
    )


def test_a_folder_without_init_is_told(project):
    (project / "folder").mkdir()
    assert f"(the folder {project / 'folder'}, without __init__.py)" in error_of("folder:app")


async def three(scope, receive, send):
    await send("three")


def double(scope):
    async def instance(receive, send):
        await send(("double", scope["type"], await receive()))

    return instance


class Double:
    def __init__(self, scope):
        self.scope = scope

    async def __call__(self, receive, send):
        await send(("class", self.scope["type"]))


class Instance:
    async def __call__(self, scope, receive, send):
        await send("instance")


class DoubleInstance:
    def __call__(self, scope):
        return double(scope)


class Awaitable:
    """ASGI 3 as a class: the call makes the instance, the await runs it."""

    def __init__(self, *args):
        self.args = args

    def __await__(self):
        _, _, send = self.args
        return send("awaited").__await__()


class AnyArguments:
    def __init__(self, *args):
        self.scope = args[0]

    async def __call__(self, receive, send):
        await send("any")


def anything(wrapped):
    @functools.wraps(wrapped)
    def wrapper(*args, **kwargs):
        return wrapped(*args, **kwargs)

    return wrapper


def bare(*args):
    return three(*args)


def marked_double(*args):
    return double(*args)


marked_double._asgi_double_callable = True  # type: ignore[attr-defined]


def marked_single(scope, receive=None, send=None, **more):
    return three(scope, receive, send)


marked_single._asgi_single_callable = True  # type: ignore[attr-defined]


def adapter(wrapped):
    """Takes ASGI, although it says that it wraps something else."""

    @functools.wraps(wrapped)
    async def asgi(scope, receive, send):
        await send("adapted")

    return asgi


REQUEST = {"type": "http.request"}


@pytest.mark.parametrize(
    ("app", "interface", "sent"),
    [
        (three, "asgi3", "three"),
        (Instance(), "asgi3", "instance"),
        (Instance().__call__, "asgi3", "instance"),
        (functools.partial(three), "asgi3", "three"),
        (lambda scope, receive, send: three(scope, receive, send), "asgi3", "three"),
        (anything(three), "asgi3", "three"),
        (bare, "asgi3", "three"),
        (Awaitable, "asgi3", "awaited"),
        (marked_single, "asgi3", "three"),
        (adapter(lambda environ, start_response: []), "asgi3", "adapted"),
        (double, "asgi2", ("double", "http", REQUEST)),
        (Double, "asgi2", ("class", "http")),
        (DoubleInstance(), "asgi2", ("double", "http", REQUEST)),
        (anything(double), "asgi2", ("double", "http", REQUEST)),
        (AnyArguments, "asgi2", "any"),
        (marked_double, "asgi2", ("double", "http", REQUEST)),
    ],
)
def test_interfaces(app, interface, sent):
    loaded = load(app)
    assert loaded.interface == interface
    assert call(loaded) == [sent]


def test_interface_overrides_what_is_found():
    assert call(load(bare, interface="asgi3")) == ["three"]

    def optional(scope=None):
        return double(scope)

    assert load(optional, interface="asgi2").interface == "asgi2"
    assert call(load(optional, interface="asgi2")) == [("double", "http", REQUEST)]


def test_a_callable_without_signature_is_taken_as_asgi3():
    assert load(iter).interface == "asgi3"


def test_what_is_no_application(project):
    write(project / "things.py", "text = 'x'\nnothing = None\n")
    assert error_of("things:text") == "'things:text' is of type str, which is no application: not callable"
    assert "NoneType" in error_of("things:nothing")
    assert "takes two arguments, as WSGI applications do" in error_of(lambda environ, start_response: [])
    assert "cannot be called with (scope, receive, send)" in error_of(lambda a, b, c, d: None)

    async def one(scope):
        pass

    assert "cannot be called with (scope, receive, send)" in error_of(one)


def test_factory(project):
    write(project / "made.py", APP + "def create(debug=False):\n    return app\n")
    assert call(load("made:create", factory=True)) == ["http"]
    assert load(Instance, factory=True).interface == "asgi3"


@pytest.mark.parametrize("forgotten", [lambda: three, lambda settings=None: three, Instance])
def test_a_forgotten_factory_flag_is_noticed(forgotten):
    assert "so it seems to make the application: add --factory" in error_of(forgotten)


def test_factories_that_do_not_work(project):
    write(project / "made.py", "def create():\n    return {}['x']\n")
    assert error_of("made:create", factory=True) == "the factory 'made:create' raised KeyError"
    with pytest.raises(AppImportError) as caught:
        load("made:create", factory=True)
    frames = traceback.extract_tb(user_traceback(caught.value.__cause__))
    assert [frame.name for frame in frames] == ["create"]
    assert "needs arguments, so it is no factory: drop --factory" in error_of(three, factory=True)
    assert error_of(lambda: 5, factory=True) == (
        "what the factory app returned is of type int, which is no application: not callable"
    )
    assert load(functools.partial(type, "X", (Double,), {}), factory=True).interface == "asgi2"


def test_an_async_factory_is_refused():
    async def create():
        return three

    assert "is a coroutine: a factory must be a plain function" in error_of(create, factory=True)


def test_a_program_that_serves_while_it_is_imported(project):
    write(project / "unguarded.py", APP + "import servery\nservery.run('unguarded:app')\n")
    with pytest.raises(AppImportError, match="it raised ConfigError") as caught:
        load("unguarded:app")
    assert 'below `if __name__ == "__main__":`' in str(caught.value.__cause__)
    write(project / "guarded.py", APP + "import servery\nif __name__ == '__main__':\n    servery.run(app)\n")
    assert load("guarded:app")
