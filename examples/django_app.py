"""Django in one file. Run it: servery django_app:app"""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        ROOT_URLCONF=__name__,
        SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    )


async def hello(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(f"Hello, {name}\n", content_type="text/plain")


urlpatterns = [path("hello/<str:name>/", hello)]
app = get_asgi_application()
