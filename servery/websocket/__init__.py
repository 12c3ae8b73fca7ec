"""The WebSocket engine: RFC 6455, and permessage-deflate of RFC 7692. No I/O."""
