"""What `test_frameworks.py` asks of every framework, in Django; and its threads and cancellation."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.urls import path
from django.views.decorators.http import require_POST

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for tests only",
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    FILE_UPLOAD_MAX_MEMORY_SIZE=1000,
    DATA_UPLOAD_MAX_MEMORY_SIZE=10_000_000,
    LOGGING_CONFIG=None,
)

happenings: asyncio.Queue[str] = asyncio.Queue()
gate = asyncio.Event()
loop_thread = threading.current_thread()


async def hello(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(f"Hello, {name}{request.GET.get('mark', '')}", content_type="text/plain")


def in_thread(request: HttpRequest) -> JsonResponse:
    return JsonResponse(threading.current_thread() is not loop_thread, safe=False)


async def client(request: HttpRequest) -> JsonResponse:
    return JsonResponse([request.method, request.scope["client"][1]], safe=False)  # type: ignore[attr-defined]


@require_POST
def echo(request: HttpRequest) -> JsonResponse:
    digest, parts = hashlib.sha256(), 0
    while part := request.read(65_536):
        digest.update(part)
        parts += 1
    return JsonResponse({"sha256": digest.hexdigest(), "parts": parts})


@require_POST
def upload(request: HttpRequest) -> JsonResponse:
    file = request.FILES["file"]
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    return JsonResponse({"name": file.name, "sha256": digest.hexdigest()})


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        await gate.wait()
        yield b" and " + b"last" * 50_000

    gate.clear()
    return StreamingHttpResponse(parts(), content_type="application/octet-stream")


async def release(request: HttpRequest) -> HttpResponse:
    gate.set()
    return HttpResponse(status=204)


async def forever(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(0.005)
        finally:
            happenings.put_nowait("left")

    return StreamingHttpResponse(parts())


async def slow(request: HttpRequest) -> HttpResponse:
    try:
        happenings.put_nowait("begun")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        happenings.put_nowait("cancelled")
        raise
    return HttpResponse("never")


async def happened(request: HttpRequest) -> HttpResponse:
    return HttpResponse(await happenings.get())


def file(request: HttpRequest) -> HttpResponseBase:
    return FileResponse(Path(__file__).open("rb"))


async def error(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("django fails on purpose")


urlpatterns = [
    path("hello/<str:name>", hello),
    path("thread", in_thread),
    path("client", client),
    path("echo", echo),
    path("upload", upload),
    path("stream", stream),
    path("release", release),
    path("forever", forever),
    path("slow", slow),
    path("happened", happened),
    path("file", file),
    path("error", error),
]
make = get_asgi_application
