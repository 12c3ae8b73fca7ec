"""What the compiled module offers: to its callers its classes are the reference's."""

from ..websocket.engine import WebSocketEngine as WebSocketEngine
from ..websocket.frames import FrameDecoder as FrameDecoder
